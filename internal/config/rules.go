package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/cluster"
)

// Rules returns the part of the configuration that applies to the whole group once it is published.
func (c Config) Rules() cluster.Rules {
	p, e := c.Policy, c.Election
	r := cluster.Rules{
		Type: p.Type, Rank: p.Rank, Sites: p.Sites, Strategies: p.Strategies, Expr: p.Expr, Hysteresis: p.Hysteresis,
		Filter: p.Filter, ApartStrict: p.ApartStrict,
		Failback: e.Failback.Mode, MaxPreemptions: e.MaxPreemptions, PreemptionWindow: cluster.Duration(e.PreemptionWindow),
	}
	if c.Failsafe.Enabled {
		r.Failsafe = cluster.FailsafeRules{Enabled: true, Max: cluster.Duration(c.Failsafe.Max)}
	}
	if e.Failback.Mode == cluster.FailbackDelayed {
		r.FailbackDelay = cluster.Duration(e.Failback.Delay)
	}
	return r
}

// withRules is the inverse of Rules: it returns c with the settings that the rules determine.
func (c Config) withRules(r cluster.Rules) Config {
	p := &c.Policy
	p.Type, p.Rank, p.Sites, p.Strategies, p.Expr, p.Hysteresis = r.Type, r.Rank, r.Sites, r.Strategies, r.Expr, r.Hysteresis
	p.Filter, p.ApartStrict = r.Filter, r.ApartStrict
	c.Election.Failback.Mode, c.Election.MaxPreemptions = cmp.Or(r.Failback, cluster.FailbackImmediate), r.MaxPreemptions
	if r.PreemptionWindow > 0 {
		c.Election.PreemptionWindow = time.Duration(r.PreemptionWindow)
	}
	if r.Failback == cluster.FailbackDelayed {
		c.Election.Failback.Delay = time.Duration(r.FailbackDelay)
	}
	if f := r.Failsafe; f.Enabled {
		c.Failsafe.Enabled, c.Failsafe.Max = true, time.Duration(f.Max)
	}
	return c
}

// ofRules reports whether a key is one from which Rules are derived.
func ofRules(key string) bool {
	switch key {
	case "policy.exec":
		return false
	case "election.max_preemptions", "election.preemption_window", failsafeEnabled, failsafeMax:
		return true
	}
	return strings.HasPrefix(key, "policy.") || strings.HasPrefix(key, "election.failback.")
}

func defaults() Config {
	c, err := merged(nil)
	if err != nil {
		panic(fmt.Sprintf("config: the defaults have the wrong type: %v", err))
	}
	return c
}

// RulesYAML returns the rules as the part of a configuration file that sets them.
func RulesYAML(r cluster.Rules) string {
	return yamlOf(defaults().withRules(r).settings(), nil, ofRules)
}

// RulesDiff returns the differences between rules, each as "key: before -> after".
func RulesDiff(before, after cluster.Rules) []string {
	a, b := defaults().withRules(before).settings(), defaults().withRules(after).settings()
	var lines []string
	for _, k := range Keys() {
		x, y := a[k.Name], b[k.Name]
		if !ofRules(k.Name) || reflect.DeepEqual(x, y) || (empty(x) && empty(y)) {
			continue
		}
		lines = append(lines, fmt.Sprintf("%s: %s -> %s", k.Name, inline(x), inline(y)))
	}
	return slices.Clip(lines)
}
