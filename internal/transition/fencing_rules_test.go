package transition

import (
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// waiting returns a member in the lease wait of term 7, for these holders.
func waiting(t *testing.T, f Fencing, nodes ...string) *script {
	t.Helper()
	s := newScript(t)
	s.on(s.saw(fence("old", 6, cluster.FenceRevoked)), "ACQUIRE")
	s.on(done(TxAcquire), "Lease")
	s.m.opt.Fencing = f
	s.m.term.fence.Earlier = nil
	for _, node := range nodes {
		s.m.term.fence.Earlier = append(s.m.term.fence.Earlier, cluster.EarlierHolder{Node: node, Wait: s.m.term.fence.Owed})
	}
	return s
}

// Whoever does not fence, or does not skip the wait, relies on no fencing of others.
func TestWhoReliesOnFencing(t *testing.T) {
	holders := []cluster.EarlierHolder{{Node: "old", Fenced: true}, {Node: "older"}}
	for _, c := range []struct {
		f           Fencing
		remain, max int
	}{
		{Fencing{Enabled: true, SkipWait: true, Required: true, Limit: 1}, 1, 1},
		{Fencing{Enabled: true, Required: true, Limit: 1}, 2, 1},
		{Fencing{Enabled: true, SkipWait: true, Limit: 1}, 1, 0},
		{Fencing{SkipWait: true, Required: true, Limit: 1}, 2, 0},
	} {
		s := newScript(t)
		s.m.opt.Fencing = c.f
		if got := len(s.m.remaining(holders)); got != c.remain {
			t.Errorf("%+v: waits for %d", c.f, got)
		}
		if got := s.m.fencingLimit(holders); int(got) != c.max {
			t.Errorf("%+v: limit %d", c.f, got)
		}
	}
	if len(holders) != 2 || holders[1].Node != "older" {
		t.Errorf("changed in place: %+v", holders)
	}
}

// Once the lease wait is over, only fencing that is required begins.
func TestFencingThatBeginsAfterTheWait(t *testing.T) {
	s := waiting(t, Fencing{Enabled: true}, "old")
	s.m.term.acquiredAt = s.now - time.Duration(s.m.term.fence.Owed)
	s.on(Tick{}, "RunPreStart")

	s = waiting(t, Fencing{Enabled: true, Required: true}, "old")
	s.m.term.acquiredAt = s.now - time.Duration(s.m.term.fence.Owed)
	s.on(Tick{}, "Fence")
}

// What was read is not changed, and the record stays one that can be read.
func TestTheOutcomeOfFencing(t *testing.T) {
	s := waiting(t, Fencing{Enabled: true}, "old", "older")
	s.on(Tick{}, "Fence")
	read, owed := s.m.term.fence.Earlier, s.m.term.fence.Owed
	s.m.term.fence.Fencing = make([]cluster.FencingResult, cluster.MaxEarlier)
	s.on(Fenced{Term: 7, Node: "old"}, "Fence")
	if got := s.m.term.fence; read[0].Fenced || !got.Earlier[0].Fenced || got.Owed != owed || len(got.Fencing) != cluster.MaxEarlier {
		t.Errorf("%+v", got)
	}
	s.m.term.fence.Earlier = nil
	s.on(Fenced{Term: 7, Node: "older"})

	s = waiting(t, Fencing{Enabled: true}, "old") // without skip_wait the wait is the longest known one
	s.on(Tick{}, "Fence")
	s.m.term.fence.Earlier[0].Wait = 1
	s.on(Fenced{Term: 7, Node: "old"})
	if s.m.Phase() != LeaseWait || s.m.term.fence.Owed != owed {
		t.Errorf("phase %s, waits for %s", s.m.Phase(), s.m.term.fence.Owed)
	}

	for wait, want := range map[cluster.Duration]string{owed: "W", owed + 1: "W", owed - 1: "W, until old was fenced"} {
		s = waiting(t, Fencing{Enabled: true, SkipWait: true}, "old", "older")
		s.on(Tick{}, "Fence")
		s.m.term.fence.Wait, s.m.term.fence.Earlier[1].Wait = "W", wait
		s.on(Fenced{Term: 7, Node: "old"}, "Fence")
		if got := s.m.term.fence; got.Wait != want || got.Owed != min(owed, wait) {
			t.Errorf("%s: waits for %s: %s", wait, got.Owed, got.Wait)
		}
	}
}
