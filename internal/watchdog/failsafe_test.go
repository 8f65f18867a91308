package watchdog

import (
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// A candidate is not blamed for the time until its own promise has lapsed, nor while it has to wait for a veto.
func TestACandidateIsNotBlamedForPromises(t *testing.T) {
	const takeover, wait = 5 * time.Second, 4 * time.Second
	for name, c := range map[string]struct {
		change func(*cluster.Snapshot)
		limit  time.Duration // 0: never
	}{
		"no promises": {func(s *cluster.Snapshot) { s.Fence.Record.Failsafe, s.Members[0].Node.Record.Failsafe = nil, nil }, takeover + wait},
		"a member":    {nil, takeover + 2*wait},
		"another key": {func(s *cluster.Snapshot) { s.Members[0].Node.Record.Failsafe.Key = "x" }, 0},
		"no key":      {func(s *cluster.Snapshot) { s.Members[0].Node.Record.Failsafe = nil }, 0},
		"an outsider": {func(s *cluster.Snapshot) { s.Fence.Record.Failsafe.Members[0].ID = "n9" }, 0},
		"until the limit": {func(s *cluster.Snapshot) {
			s.Fence.Record.Failsafe.Members[0].ID, s.Fence.Record.Failsafe.Max = "n9", cluster.Duration(time.Minute)
		}, takeover + 2*wait + cluster.OnAnyClock(time.Minute)},
		"vetoed": {func(s *cluster.Snapshot) {
			s.Fence.Record.Failsafe.Members[0].ID, s.Fence.Record.Failsafe.Veto = "n9", "n9"
		}, takeover + 2*wait},
		"released in order": {func(s *cluster.Snapshot) { s.Fence.Record.State = cluster.FenceReleased }, takeover},
	} {
		s := cluster.Snapshot{
			Elected: cluster.Stored[cluster.Elected]{Exists: true, Record: cluster.Elected{Term: 8, Node: "n1", Incarnation: "n1-n_1"}},
			Fence: cluster.Stored[cluster.Fence]{Exists: true, Record: cluster.Fence{
				Term: 7, Node: "n0", State: cluster.FenceRevoked, LeaseWait: cluster.Duration(wait),
				Failsafe: &cluster.Failsafe{Key: "k0", Members: []cluster.FailsafeMember{{ID: "n1", Incarnation: "n1-n_1", Key: "k1"}}},
			}},
			Members: []cluster.Member{{
				Incarnation: cluster.Incarnation{Name: "n1-n_1", ID: "n1"},
				Node:        cluster.Stored[cluster.Node]{Exists: true, Record: cluster.Node{Failsafe: &cluster.FailsafeNode{Key: "k1"}}},
			}},
		}
		if c.change != nil {
			c.change(&s)
		}
		w := New(Options{Takeover: takeover, LeaseWait: wait})
		w.Observe(s, time.Second)
		if c.limit == 0 {
			if f := w.Observe(s, time.Hour); f.Overdue != "" {
				t.Errorf("%s: %s", name, f.Overdue)
			}
			continue
		}
		if f := w.Observe(s, time.Second+c.limit-1); f.Overdue != "" || f.Wake != time.Second+c.limit {
			t.Errorf("%s: %q, wake at %s", name, f.Overdue, f.Wake)
		}
		if f := w.Observe(s, time.Second+c.limit); f.Overdue == "" {
			t.Errorf("%s: not overdue after %s", name, c.limit)
		}
	}
}
