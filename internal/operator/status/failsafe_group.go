package status

import (
	"fmt"
	"slices"
	"strings"

	"zkelectd/internal/cluster"
)

// GroupFailsafe is the failsafe mode of a group as its records, and its leader, describe it.
type GroupFailsafe struct {
	// Members are the nodes that must promise before the leader works on without ZooKeeper. If there are none, it never does.
	Members []string `json:"members"`
	// Outside are the members that take no part.
	Outside []string `json:"outside,omitempty"`
	// WaitsFor are the nodes of which one must agree before there is another leader; none if that is not needed. Stuck is set if none of
	// them is registered with the state directory that it had.
	WaitsFor []string `json:"waits_for,omitempty"`
	Stuck    bool     `json:"stuck,omitempty"`
	// Leader is what the leader's daemon has answered; nil if it was not asked, or has not answered.
	Leader *Failsafe `json:"leader,omitempty"`
}

// describeFailsafe describes failsafe mode, if the policy enables it or the last leader may be in it.
func (g *Group) describeFailsafe(s cluster.Snapshot) {
	f := &s.Fence.Record
	asked := s.Fence.Readable() && f.Failsafe != nil && len(f.Failsafe.Members) > 0
	enabled := s.Policy.Readable() && s.Policy.Record.Failsafe.Enabled
	if !asked && !enabled {
		return
	}
	view := &GroupFailsafe{Members: []string{}}
	g.Failsafe = view
	if asked {
		for _, m := range f.Failsafe.Members {
			view.Members = append(view.Members, m.ID)
		}
	}
	for _, m := range s.Members {
		if enabled && m.Node.Readable() && !m.Superseded && !m.Node.Record.Failsafe.CanPromise() {
			view.Outside = append(view.Outside, m.ID)
		}
	}
	if len(view.Outside) > 0 {
		g.Problems = append(g.Problems, fmt.Sprintf("failsafe mode is enabled, but %s takes no part in it ('zkelectd doctor' on that host says why)", strings.Join(view.Outside, ", ")))
	}
	if s.Current.Exists || f.CheckSuccession() == nil || !asked {
		return
	}
	view.WaitsFor = append([]string{f.Node}, view.Members...)
	if view.Stuck = s.CheckStuck() == nil; view.Stuck {
		g.Problems = append(g.Problems, fmt.Sprintf("%s may still work in failsafe mode (term %d), and none of the nodes that can say otherwise is registered (%s): start one of them%s; "+
			"if all are lost for good, see %s", f.Node, f.Term, strings.Join(view.WaitsFor, ", "), stateless(s, view.WaitsFor), cluster.InGroup("'zkelectd force --dry-run'", g.Name)))
	}
}

// stateless says which of the nodes are registered, but cannot agree to a successor.
func stateless(s cluster.Snapshot, nodes []string) string {
	var found []string
	for _, m := range s.Members {
		if slices.Contains(nodes, m.ID) {
			found = append(found, m.ID)
		}
	}
	switch len(found) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf(" with the state directory that it had (%s is registered, but without the state directory that it had: see node.state_dir)", found[0])
	}
	return fmt.Sprintf(" with the state directory that it had (%s are registered, but without the state directories that they had: see node.state_dir)", strings.Join(found, ", "))
}

// text returns the line about failsafe mode.
func (f *GroupFailsafe) text() string {
	if f == nil {
		return ""
	}
	list := strings.Join(f.Members, ", ")
	switch {
	case f.Stuck:
		return "stuck: waits for " + strings.Join(f.WaitsFor, " or ")
	case len(f.WaitsFor) > 0:
		return "the last leader may still work, until " + strings.Join(f.WaitsFor, " or ") + " says otherwise"
	case len(f.Members) == 0:
		return "enabled, but without ZooKeeper the leader would stop: nobody could promise to let nobody else take over"
	case f.Leader == nil:
		return "works on without ZooKeeper if all of these promise to let nobody take over: " + list
	case f.Leader.Active:
		return "ACTIVE: ZooKeeper does not answer the leader, which works on because all of these promise to let nobody take over: " + list
	case f.Leader.Ready:
		return "ready: would work on without ZooKeeper, by promises of " + list
	}
	return "not ready: without ZooKeeper the leader would stop"
}
