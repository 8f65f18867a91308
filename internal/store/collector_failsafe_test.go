package store

import (
	"log/slog"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// A member ends, and another host with its id registers, between the reads of the list and of the record. An incarnation with the key of
// another daemon must not get into a fence: the one could promise, and the other one veto (S1).
func TestAMemberHasTheKeyOfItsOwnDaemon(t *testing.T) {
	for _, elector := range []bool{false, true} {
		s := newRaceSource(t)
		register := func(key string) (end func()) {
			host := s.server.Connect()
			if _, err := Register(t.Context(), host, s.p, cluster.Node{ID: "b", Instance: cluster.NewInstance(1), Failsafe: &cluster.FailsafeNode{Key: key, Address: "b:7"}}); err != nil {
				t.Fatal(err)
			}
			return func() { s.server.Expire(host.SessionID()) }
		}
		if elector {
			s.server.Expire(s.admin.SessionID())
			s.admin = s.server.Connect()
		}
		end := register("old")
		s.do(s.elect(cluster.OpCreate, 5, s.self.Name), s.fence(cluster.FenceReady, s.self.Name))
		if _, err := s.Do(t.Context(), cluster.Op{Kind: cluster.OpCreate, Path: s.p.Current(), Data: []byte("{}"), Ephemeral: true}); err != nil {
			t.Fatal(err)
		}
		s.before[s.p.Node("b")] = func() {
			end()
			register("new")
		}
		c := NewCollector(CollectorOptions{
			Source: s, Paths: s.p, Self: s.self, Session: s.SessionID(), Failsafe: true, Clock: func() time.Duration { return 1 }, Log: slog.New(slog.DiscardHandler),
		})
		snap, complete := c.Collect(t.Context())
		if !complete || !snap.MembersRead || snap.Elector != elector || len(s.before) != 0 {
			t.Fatalf("%t %+v", complete, snap)
		}
		list, _, err := s.Children(t.Context(), s.p.Election(), false)
		if err != nil {
			t.Fatal(err)
		}
		names, _ := cluster.ParseIncarnations(list)
		newest := names[len(names)-1]
		if m := snap.Members[len(snap.Members)-1]; m.Name != newest.Name || m.Node.Record.Failsafe.Key != "new" {
			t.Errorf("elector %t: incarnation %s (registered: %s) with the key %q", elector, m.Name, newest.Name, m.Node.Record.Failsafe.Key)
		}
	}
}
