package cluster

import (
	"errors"
	"path"
	"slices"
)

// Load is the record of .load/<id>: what a host with many groups publishes once for all of them, as it changes often.
// Each host reads it for all of its groups. Without it, nothing of this is known of a host.
type Load struct {
	Header
	// Latency and Score are as in [Node].
	Latency *float64 `json:"latency_ms,omitempty"`
	Score   *float64 `json:"score,omitempty"`
	// Leaders is the number of groups that the node is elected in or still leads. Each slot counts as one.
	Leaders int `json:"leaders"`
}

func (l *Load) validate(Stat) error {
	if l.Leaders < 0 {
		return errors.New("leaders is negative")
	}
	return nil
}

// Loads returns the parent of the ephemerals with the loads of hosts, below base, the zookeeper.root of hosts with many
// groups.
func Loads(base string) string { return path.Join(base, ".load") }

// Loads returns [Loads] for the hosts that have the group as one of many.
func (p Paths) Loads() string { return Loads(path.Dir(p.Root)) }

// WithLoads returns the members with the latencies and scores of their hosts' loads, by the ids of the nodes. Those of
// a member that publishes them in its own record stay.
func WithLoads(members []Member, loads map[string]Load) []Member {
	if len(loads) == 0 {
		return members
	}
	members = slices.Clone(members)
	for i := range members {
		n := &members[i].Node
		if l, ok := loads[members[i].ID]; ok && n.Readable() && n.Record.Latency == nil && n.Record.Score == nil {
			n.Record.Latency, n.Record.Score = l.Latency, l.Score
		}
	}
	return members
}
