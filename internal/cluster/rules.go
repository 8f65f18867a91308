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

// Rules are the content of a policy (docs/policies.md). Package config reads them from the section policy, by their
// tags.
type Rules struct {
	// Type names a policy type. Rank, if it is not empty, lists the rankers instead.
	Type string   `json:"type" yaml:"type" default:"priority" reload:"yes" doc:"How nodes are ranked: one of {types}. See docs/policies.md."`
	Rank []string `json:"rank,omitempty" yaml:"rank" reload:"yes" doc:"A list of rankers to use instead of policy.type: {rankers}, newest:LABEL (the highest version in that label), oldest:LABEL, with:GROUP (the node that leads that group), apart:GROUP (any other node) or expr:EXPRESSION."`
	// Sites maps sites to their priority, the highest first; a site that is not listed has 0.
	Sites      map[string]int `json:"sites,omitempty" yaml:"sites" reload:"yes" doc:"The priority of each site, higher is better; a site that is not listed has 0."`
	Strategies []Strategy     `json:"strategies,omitempty" yaml:"strategies" reload:"yes" doc:"A list of {when: CONDITION, use: TYPE}. The first strategy whose condition is true ranks the members; a strategy without when always applies. If no condition is true, policy.type ranks them."`
	// Hysteresis is by how many percent a latency or score must be better than the incumbent's.
	Hysteresis int `json:"hysteresis,omitempty" yaml:"hysteresis" min:"0" max:"1000" default:"20" reload:"yes" doc:"By how many percent a latency or score must be better than the leader's."`
	// SpreadBy is [SpreadBySite] if sites share what is spread, and then the hosts of each; empty means hosts.
	SpreadBy string   `json:"spread_by,omitempty" yaml:"spread_by" oneof:"host, site" default:"host" reload:"yes" doc:"What shares slots, and groups by the rankers spread and fewest: all hosts, or the sites, and then the hosts of each."`
	Filter   []string `json:"filter,omitempty" yaml:"filter" reload:"yes" doc:"Expressions about a member; it can lead only if all of them are true."`
	// ApartStrict lists groups at whose leader's node this group has none.
	ApartStrict []string `json:"apart_strict,omitempty" yaml:"apart_strict" reload:"yes" doc:"Names of other groups of this host. A node that leads one of them is not eligible."`
	// Confirm is an expression: while it is true of the member that is to be elected, a person must approve.
	// ConfirmAfter is for how long nobody may answer before the election is held all the same, see [ParseConfirmAfter].
	// Observe lets nobody be elected.
	Confirm      string `json:"confirm,omitempty" yaml:"confirm" reload:"yes" doc:"An expression about the member that is to be elected. If it is true, the election waits until a person approves it ('zkelectd approve'). Without a leader before it never waits."`
	ConfirmAfter string `json:"confirm_after,omitempty" yaml:"confirm_after" default:"never" reload:"yes" doc:"For how long an election waits for a person, as in 10m, before it is held all the same; never for as long as it takes."`
	Observe      bool   `json:"observe,omitempty" yaml:"observe" default:"false" reload:"yes" doc:"Elect nobody, and only say who would be elected: to try a policy."`
	// Failback says when a better member replaces a healthy leader, see [ParseFailback]. A configuration always writes
	// it out: a record without it is one of an earlier version, and means immediate, whatever the default of a
	// configuration is. MaxPreemptions bounds how often a healthy leader is replaced within [PreemptionWindow], 0 for
	// no bound.
	Failback       string `json:"failback,omitempty" yaml:"failback" default:"manual" reload:"yes" doc:"When a better node replaces a healthy leader: manual (only by 'zkelectd reelect' or 'zkelectd move'), immediate, or a duration, as in 30s, for which the better node must have been eligible. Default: 30s with slots and with the rankers spread, with:GROUP and apart:GROUP, else manual."`
	MaxPreemptions int    `json:"max_preemptions,omitempty" yaml:"max_preemptions" min:"0" default:"6" reload:"yes" doc:"How often policy may replace a healthy leader (a preemption) within an hour; 0 for no limit."`

	Failsafe FailsafeRules `json:"failsafe,omitzero" yaml:"-"`
	RollCall RollCallRules `json:"roll_call,omitzero" yaml:"-"`
}

// ConfirmNever is the value of [Rules.ConfirmAfter] for an election that waits for as long as it takes. Empty means the
// same.
const ConfirmNever = "never"

// ParseConfirmAfter returns for how long an election waits for a person; 0 for as long as it takes.
func ParseConfirmAfter(text string) (time.Duration, error) {
	if text == "" || text == ConfirmNever {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 || d > MaxRequestTime {
		return 0, fmt.Errorf("%q is not %s, or a duration above 0, as in 10m", text, ConfirmNever)
	}
	return d, nil
}

// PreemptionWindow is the window in which preemptions are counted.
const PreemptionWindow = time.Hour

// Values of [Rules.SpreadBy].
const (
	SpreadByHost = "host"
	SpreadBySite = "site"
)

// Values of [Rules.Failback], besides a duration. Empty means immediate.
const (
	FailbackImmediate = "immediate"
	FailbackManual    = "manual"
)

// ParseFailback returns for how long a better member must have been eligible before it replaces a healthy leader.
// manual is true if it never does.
func ParseFailback(text string) (delay time.Duration, manual bool, err error) {
	switch text {
	case "", FailbackImmediate:
		return 0, false, nil
	case FailbackManual:
		return 0, true, nil
	}
	delay, err = time.ParseDuration(text)
	if err != nil || delay < 0 {
		return 0, false, fmt.Errorf("%q is neither immediate nor manual nor a duration, as in 30s", text)
	}
	return delay, false, nil
}

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
