package config

import (
	"slices"
	"time"
)

// defaultSpread is the default of moves.spread, which only matters if a host has many groups.
const defaultSpread = time.Minute

// completeDefaults sets the defaults that depend on other settings. values are the settings that were given, and many is true for a
// host with many groups.
func (c *Config) completeDefaults(values map[string]found, many bool) {
	given := func(key string) bool {
		_, set := values[key]
		return set
	}
	if many && !given("moves.spread") {
		c.Moves.Spread = defaultSpread
	}
	if !given("policy.failback") && c.spreads() {
		c.Policy.Failback = defaultFailback
	}
}

// defaultFailback is the default of policy.failback with the ranker spread.
const defaultFailback = "30s"

// spread is the ranker by which the loss of a host moves many groups, and its return moves them back.
const spread = "spread"

func (c *Config) spreads() bool {
	return c.Policy.Type == spread && len(c.Policy.Rank) == 0 || slices.Contains(c.Policy.Rank, spread)
}
