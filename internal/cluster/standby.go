package cluster

import "time"

// Standby says whether the promotable work of a node is ready to be promoted: one of the states below, since when, and
// why not.
type Standby struct {
	State  string    `json:"state"`
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since"`
}

// The states of a [Standby].
const (
	StandbyWarm    = "warm"
	StandbyWarming = "warming" // it runs
	StandbyCold    = "cold"    // it does not run
)

// IsWarm reports whether the node's work can be promoted at once. Work that is not promotable counts as warm.
func (n *Node) IsWarm() bool { return n.Standby == nil || n.Standby.State == StandbyWarm }

// String describes the state, for people.
func (s Standby) String() string {
	if s.Reason == "" {
		return s.State
	}
	return s.State + ": " + s.Reason
}
