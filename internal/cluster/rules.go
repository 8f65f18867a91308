package cluster

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"time"
)

// Policy is the record of policy: how the members of the group are ranked.
type Policy struct {
	Header
	// Revision grows with every publication.
	Revision int64 `json:"revision"`
	Rules
	// By is the id of the daemon, or user@host of the operator, that published it; Time is when, by their clock.
	By   string    `json:"by"`
	Time time.Time `json:"time"`
}

// Rules are the content of a policy (docs/policies.md).
type Rules struct {
	// Type names a policy type. Rank, if it is not empty, lists the rankers instead.
	Type string   `json:"type"`
	Rank []string `json:"rank,omitempty"`
	// Expr is the expression of the type expr. The command of the type exec comes from each host's own configuration: nothing that
	// is read from ZooKeeper ever becomes a command.
	Expr       string     `json:"expr,omitempty"`
	Strategies []Strategy `json:"strategies,omitempty"`
	// Sites maps sites to their priority, the highest first; a site that is not listed has 0.
	Sites map[string]int `json:"sites,omitempty"`
	// Hysteresis is by how many percent a latency or score must be better than the incumbent's.
	Hysteresis int `json:"hysteresis,omitempty"`

	Filter []string `json:"filter,omitempty"`
	// ApartStrict lists groups at whose leader's node this group has none.
	ApartStrict []string `json:"apart_strict,omitempty"`

	// Failback, empty for immediate, and FailbackDelay say when a better member replaces a healthy leader; MaxPreemptions bounds
	// how often that happens within PreemptionWindow, 0 for no bound.
	Failback         string   `json:"failback,omitempty"`
	FailbackDelay    Duration `json:"failback_delay,omitempty"`
	MaxPreemptions   int      `json:"max_preemptions,omitempty"`
	PreemptionWindow Duration `json:"preemption_window,omitempty"`

	Failsafe FailsafeRules `json:"failsafe,omitzero"`
}

// The failback modes: whether a better member may replace a healthy leader.
const (
	FailbackImmediate = "immediate"
	FailbackDelayed   = "delayed"
	FailbackManual    = "manual"
)

// Digest returns a hash of the rules, to show whether two sets differ.
func (r Rules) Digest() string {
	data, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("cluster: rules are plain: %v", err))
	}
	h := fnv.New32a()
	h.Write(data)
	return fmt.Sprintf("%08x", h.Sum32())
}

// Strategy is a policy type that is used if its condition holds; an empty condition always does.
type Strategy struct {
	When string `json:"when,omitempty" yaml:"when,omitempty"`
	Use  string `json:"use" yaml:"use"`
}
