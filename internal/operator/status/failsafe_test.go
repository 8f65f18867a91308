package status

import (
	"slices"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
)

// failsafeGroup returns a group whose leader n1 works on without ZooKeeper if n2 promises.
func failsafeGroup() cluster.Snapshot {
	member := func(id string) cluster.Member {
		return cluster.Member{
			Incarnation: cluster.Incarnation{Name: id + "-1", ID: id},
			Node:        cluster.Stored[cluster.Node]{Exists: true, Record: cluster.Node{ID: id, Failsafe: &cluster.FailsafeNode{Key: "k" + id, Address: id + ":7"}}},
		}
	}
	s := cluster.Snapshot{HolderRead: true, Members: []cluster.Member{member("n1"), member("n2")}}
	s.Elected = cluster.Stored[cluster.Elected]{Exists: true, Record: cluster.Elected{Term: 7, Node: "n1", Incarnation: "n1-1"}}
	s.Current = cluster.Stored[cluster.Current]{Exists: true, Record: cluster.Current{Term: 7, Node: "n1", Incarnation: "n1-1", State: cluster.CurrentReady}}
	s.Fence = cluster.Stored[cluster.Fence]{Exists: true, Record: cluster.Fence{
		Term: 7, Node: "n1", Incarnation: "n1-1", State: cluster.FenceReady,
		Failsafe: &cluster.Failsafe{Key: "kn1", Members: []cluster.FailsafeMember{{ID: "n2", Incarnation: "n2-1", Key: "kn2"}}},
	}}
	s.Policy = cluster.Stored[cluster.Policy]{Exists: true, Record: cluster.Policy{Rules: cluster.Rules{Type: "priority", Failsafe: cluster.FailsafeRules{Enabled: true}}}}
	return s
}

func TestFailsafeModeIsShown(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*cluster.Snapshot)
		line    string // empty for none
		problem string
	}{
		"in order":     {func(*cluster.Snapshot) {}, "promise to let nobody take over: n2", ""},
		"not enabled":  {func(s *cluster.Snapshot) { s.Fence.Record.Failsafe, s.Policy.Record.Failsafe.Enabled = nil, false }, "", ""},
		"nobody asked": {func(s *cluster.Snapshot) { s.Fence.Record.Failsafe = nil }, "without ZooKeeper the leader would stop: nobody could promise", ""},
		"an outsider": {func(s *cluster.Snapshot) { s.Members[1].Node.Record.Failsafe = nil },
			"promise to let nobody take over: n2", "failsafe mode is enabled, but n2 takes no part"},
		"one that has turned it off": {func(s *cluster.Snapshot) { s.Members[1].Node.Record.Failsafe.Address = "" },
			"promise to let nobody take over: n2", "failsafe mode is enabled, but n2 takes no part"},
		"the leader is gone, and the other one has turned it off": {func(s *cluster.Snapshot) {
			s.Current.Exists, s.Members = false, s.Members[1:]
			s.Members[0].Node.Record.Failsafe.Address = ""
			s.Policy.Record.Failsafe.Enabled = false
		}, "the last leader may still work, until n1 or n2 says otherwise", ""},
		"the leader is gone": {func(s *cluster.Snapshot) { s.Current.Exists, s.Members = false, s.Members[1:] },
			"the last leader may still work, until n1 or n2 says otherwise", ""},
		"vetoed": {func(s *cluster.Snapshot) { s.Current.Exists, s.Fence.Record.Failsafe.Veto = false, "n2" },
			"promise to let nobody take over: n2", ""},
		"stuck": {func(s *cluster.Snapshot) { s.Current.Exists, s.Members = false, nil },
			"stuck: waits for n1 or n2", "'zkelectd force --dry-run -g c'"},
		"another state directory": {func(s *cluster.Snapshot) {
			s.Current.Exists, s.Members = false, s.Members[1:]
			s.Members[0].Node.Record.Failsafe.Key = "new"
		}, "stuck: waits for n1 or n2", "none of the nodes that can say otherwise is registered (n1, n2): start one of them with the state directory that it had (n2 is registered, but without"},
	} {
		s := failsafeGroup()
		c.change(&s)
		g := Of("c", "/own/x", s)
		table := g.Table()
		if c.line == "" && strings.Contains(table, "Failsafe") || !strings.Contains(table, c.line) {
			t.Errorf("%s: no %q in\n%s", name, c.line, table)
		}
		failsafe := slices.DeleteFunc(slices.Clone(g.Problems), func(p string) bool { return !strings.Contains(p, "failsafe") })
		if all := strings.Join(failsafe, "\n"); c.problem == "" && all != "" || !strings.Contains(all, c.problem) {
			t.Errorf("%s: problems %q, want %q", name, all, c.problem)
		}
	}
}

// What the leader's daemon answers completes the view, which others may share.
func TestTheLeaderSaysWhetherFailsafeModeWouldWork(t *testing.T) {
	shared := Of("c", "/own/x", failsafeGroup())
	for answer, want := range map[string]string{
		`{"enabled":true,"active":false,"ready":true}`:                               "ready: would work on without ZooKeeper, by promises of n2",
		`{"enabled":true,"active":false,"ready":false,"unready":{"n2":"no answer"}}`: "Problem  failsafe mode would not work: n2 would not promise: no answer",
		`{"enabled":true,"active":false,"ready":false,"problem":"the tree is open"}`: "Problem  failsafe mode would not work: the tree is open",
		`{"enabled":true,"active":true,"ready":true,"unready":null,"new":1}`:         "ACTIVE: ZooKeeper does not answer the leader",
	} {
		g := shared.WithLeaderView(strings.NewReader(`{"node":"n1","term":7,"root":"/own/x","lease_remaining":"1s","failsafe":` + answer + `}`))
		if table := g.Table(); !strings.Contains(table, want) {
			t.Errorf("%s: no %q in\n%s", answer, want, table)
		}
	}
	if shared.Failsafe.Leader != nil || len(shared.Problems) != 0 {
		t.Errorf("the shared view was changed: %+v, %q", shared.Failsafe, shared.Problems)
	}
}
