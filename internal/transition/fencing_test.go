package transition

import (
	"errors"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// lost returns a script in which me has acquired term 7 over a leader that was lost in term 6, and fences it.
func lost(t *testing.T, f Fencing, change ...func(*cluster.Snapshot)) (*script, FenceNode) {
	t.Helper()
	s := newScript(t)
	f.Enabled = true
	s.m.opt.Fencing = f
	s.on(s.saw(append([]func(*cluster.Snapshot){fence("old", 6, cluster.FenceReady)}, change...)...), "ACQUIRE")
	return s, one[FenceNode](t, s.on(done(TxAcquire), "Lease", "FenceNode"))
}

// keep renews until a time has passed.
func (s *script) keep(d time.Duration, want ...string) {
	s.t.Helper()
	for end := s.now + d; s.now < end; {
		s.after(min(500*time.Millisecond, end-s.now))
		s.renewed(s.now, nil, append([]string{"Lease"}, want...)...)
	}
}

var errFence = errors.New("the device does not answer")

func TestFencingRunsWhileTheLeaseIsWaitedFor(t *testing.T) {
	s, f := lost(t, Fencing{})
	if _, since := s.m.Fencing(); since != s.now {
		t.Errorf("fences since %s, now is %s", since, s.now)
	}
	if f.Term != 7 || f.Holder.Node != "old" || f.Holder.Term != 6 || s.m.Phase() != LeaseWait || fencedNow(s.m) != "old" {
		t.Errorf("%+v in phase %s", f, s.m.Phase())
	}
	s.after(time.Second)
	s.on(NodeFenced{Term: 7, Node: "old"}) // without skip_wait it makes sure, and the wait goes on
	s.on(s.saw(fence("me", 7, cluster.FenceHeld), current("me", session)))
	s.keep(2 * time.Second)
	if s.m.Phase() != LeaseWait {
		t.Errorf("phase %s", s.m.Phase())
	}
	s.now = s.m.waitOver()
	s.on(Tick{}, "RunPreStart")
}

// Only fencing that has succeeded ends the lease wait.
func TestFailedFencingEndsNoWait(t *testing.T) {
	s, _ := lost(t, Fencing{SkipWait: true})
	over := s.m.waitOver()
	s.after(time.Second)
	s.on(NodeFenced{Term: 7, Node: "old", Err: errFence})
	if s.m.Phase() != LeaseWait || s.m.waitOver() != over {
		t.Errorf("phase %s, the wait is over after %s instead of %s", s.m.Phase(), s.m.waitOver(), over)
	}
}

// What is not over when the lease wait is ends, and the work does not start beside it.
func TestFencingEndsWithTheWait(t *testing.T) {
	s, _ := lost(t, Fencing{SkipWait: true})
	s.keep(s.m.waitOver() - s.now - time.Millisecond)
	s.after(time.Millisecond)
	s.on(Tick{}, "KillTask")
	s.on(Tick{})
	s.on(NodeFenced{Term: 7, Node: "old", Err: errors.New("killed")}, "RunPreStart")
}

func TestRequiredFencing(t *testing.T) {
	s, f := lost(t, Fencing{Required: true, Limit: time.Minute})
	if limit := s.m.term.fence.FencingLimit; limit != cluster.Duration(time.Minute) {
		t.Errorf("the watchdog allows %s", limit)
	}
	s.keep(time.Minute) // far longer than the lease wait
	if s.m.Phase() != LeaseWait {
		t.Errorf("phase %s", s.m.Phase())
	}
	failed := s.on(NodeFenced{Term: 7, Node: f.Holder.Node, Err: errFence}, "RELEASE")
	left := released(t, sent(t, failed))
	if left.State != cluster.FenceUnclean || left.Owed == 0 || left.Requested || len(left.Earlier) != 1 || left.Earlier[0].Node != "old" || left.Earlier[0].Fenced ||
		!strings.Contains(left.Reason, "old could not be fenced, and fencing.required permits no takeover without that: the device") {
		t.Errorf("left behind: %+v", left)
	}
	if len(left.Fencing) != 1 || left.Fencing[0].Error != errFence.Error() {
		t.Errorf("attempts: %+v", left.Fencing)
	}

	s, _ = lost(t, Fencing{Required: true})
	s.keep(10 * time.Second)
	s.on(NodeFenced{Term: 7, Node: "old"}, "RunPreStart")
}

// A silent holder leaves nothing to wait for, but it must be fenced all the same, if not by this candidate then by the next one.
func TestASilentHolderThatWasNotFencedIsLeftToTheNext(t *testing.T) {
	s, f := lost(t, Fencing{Required: true}, fence("old", 6, cluster.FenceSilent))
	if f.Holder.Node != "old" || s.m.term.fence.Owed != 0 {
		t.Errorf("fences %+v, waits %s", f.Holder, s.m.term.fence.Owed)
	}
	s.on(Quit{Reason: "test"}, "StopTask")
	left := released(t, sent(t, s.on(NodeFenced{Term: 7, Node: "old", Err: errFence}, "RELEASE")))
	if left.State != cluster.FenceUnclean || left.Owed != 0 || len(left.Earlier) != 1 || left.Earlier[0].Node != "old" || left.Earlier[0].Fenced {
		t.Errorf("left behind: %+v", left)
	}
}

// A node id that was used on two hosts is two holders: fencing one of them does not end the wait for the other (S1).
func TestAnIDOnTwoHostsIsFencedTwice(t *testing.T) {
	wait := cluster.Duration(4 * time.Second)
	s, f := lost(t, Fencing{SkipWait: true}, fence("old", 6, cluster.FenceReady), func(s *cluster.Snapshot) {
		s.Fence.Record.Host = "new host"
		s.Fence.Record.Owed, s.Fence.Record.Earlier = wait, []cluster.EarlierHolder{{Node: "old", Host: "old host", Term: 5, Wait: wait}}
	})
	if f.Holder.Host != "old host" {
		t.Errorf("fences %+v", f.Holder)
	}
	s.on(NodeFenced{Term: 7, Node: "old", Host: "new host"}) // nobody is fencing that one
	s.on(NodeFenced{Term: 7, Node: "old", Host: "old host"}, "FenceNode")
	if s.m.Phase() != LeaseWait || s.m.term.fence.Owed == 0 {
		t.Errorf("phase %s, waits for %+v", s.m.Phase(), s.m.term.fence.Earlier)
	}
	s.on(NodeFenced{Term: 7, Node: "old", Host: "new host"}, "RunPreStart")
}

// A wait that is owed for somebody else is not cut short.
func TestFencingEndsTheWaitForOneHolderOnly(t *testing.T) {
	wait := cluster.Duration(4 * time.Second)
	for name, c := range map[string]struct {
		earlier []cluster.EarlierHolder
		next    []string // what follows a success
	}{
		"unknown":           {nil, nil},
		"unknown by name":   {[]cluster.EarlierHolder{{Wait: wait}}, nil},
		"its own node":      {[]cluster.EarlierHolder{{Node: "me", Term: 5, Wait: wait}}, nil},
		"fenced before":     {[]cluster.EarlierHolder{{Node: "first", Term: 5, Wait: wait, Fenced: true}}, []string{"RunPreStart"}},
		"another to fence":  {[]cluster.EarlierHolder{{Node: "zeroth", Term: 5, Wait: wait}}, []string{"FenceNode"}},
		"nothing else owed": {[]cluster.EarlierHolder{{Node: "old", Term: 5, Wait: wait}}, []string{"RunPreStart"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, f := lost(t, Fencing{SkipWait: true}, fence("old", 6, cluster.FenceHeld), func(s *cluster.Snapshot) {
				s.Fence.Record.Owed, s.Fence.Record.Earlier = wait, c.earlier
			})
			s.on(NodeFenced{Term: 7, Node: f.Holder.Node}, c.next...)
		})
	}
}

// Only a holder with a lease fences: everything that ends the term ends the fencing first, and only then is leadership released.
func TestTheEndOfTheTermEndsFencing(t *testing.T) {
	for name, end := range map[string]func(*script){
		"replaced": func(s *script) {
			s.on(s.saw(fence("me", 7, cluster.FenceHeld), current("me", session), replacedBy("other", 8)), "StopTask")
		},
		"stopped":         func(s *script) { s.on(Quit{Reason: "stop"}, "StopTask") },
		"current deleted": func(s *script) { s.on(s.saw(fence("me", 7, cluster.FenceHeld)), "StopTask") },
		"renewal refused": func(s *script) { s.renewed(s.now, errRefused, "StopTask") },
		"lease over":      func(s *script) { s.after(s.b.Lease); s.on(Tick{}, "KillTask") },
		"session over":    func(s *script) { s.on(SessionEnded{Reason: "expired"}, "KillTask") },
	} {
		t.Run(name, func(t *testing.T) {
			s, f := lost(t, Fencing{SkipWait: true})
			end(s)
			if s.m.Idle() || s.m.Phase() == Ended {
				t.Errorf("phase %s while a node is being fenced", s.m.Phase())
			}
			before := s.m.term.held
			actions := s.m.Step(s.now, NodeFenced{Term: 7, Node: f.Holder.Node})
			if len(those[RunPreStart](actions)) != 0 || len(those[StartChild](actions)) != 0 {
				t.Errorf("starts work: %+v", actions)
			}
			if before && fencedNow(s.m) != "" {
				t.Error("goes on")
			}
		})
	}
}

func TestReportsOfOtherFencingAreIgnored(t *testing.T) {
	s, _ := lost(t, Fencing{SkipWait: true})
	s.on(NodeFenced{Term: 6, Node: "old"})
	s.on(NodeFenced{Term: 7, Node: "other"})
	if fencedNow(s.m) != "old" || s.m.Phase() != LeaseWait {
		t.Errorf("fences %q in phase %s", fencedNow(s.m), s.m.Phase())
	}
}

// fencedNow returns the node that a machine is fencing.
func fencedNow(m *Machine) string {
	node, _ := m.Fencing()
	return node
}

// The hooks learn what was fenced, and how that ended: with READY, and when fencing that has failed ends the takeover.
func TestFencingIsAnnounced(t *testing.T) {
	s, _ := lost(t, Fencing{SkipWait: true})
	s.on(NodeFenced{Term: 7, Node: "old", By: "an agent"}, "RunPreStart")
	s.startChild()
	s.on(ChildReady{}, "READY")
	if a := one[Announce](t, s.on(done(TxReady))); a.Phase != Leading || len(a.Fencing) != 1 || a.Fencing[0] != (cluster.FencingResult{Node: "old", Term: 6, By: "an agent"}) {
		t.Errorf("%+v", a)
	}
	s, _ = lost(t, Fencing{Required: true})
	s.on(NodeFenced{Term: 7, Node: "old", Err: errFence}, "RELEASE")
	if a := one[Announce](t, s.on(done(TxRelease), "Lease")); a.Phase != Standby || len(a.Fencing) != 1 || a.Fencing[0].Error != errFence.Error() {
		t.Errorf("%+v", a)
	}
}

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

// A host that does not fence, or does not skip the wait, relies on no fencing of others.
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
	s.on(Tick{}, "FenceNode")
}

// What was read is not changed, and the record stays one that can be read.
func TestTheOutcomeOfFencing(t *testing.T) {
	s := waiting(t, Fencing{Enabled: true}, "old", "older")
	s.on(Tick{}, "FenceNode")
	read, owed := s.m.term.fence.Earlier, s.m.term.fence.Owed
	s.m.term.fence.Fencing = make([]cluster.FencingResult, cluster.MaxEarlier)
	s.on(NodeFenced{Term: 7, Node: "old"}, "FenceNode")
	if got := s.m.term.fence; read[0].Fenced || !got.Earlier[0].Fenced || got.Owed != owed || len(got.Fencing) != cluster.MaxEarlier {
		t.Errorf("%+v", got)
	}
	s.m.term.fence.Earlier = nil
	s.on(NodeFenced{Term: 7, Node: "older"})

	s = waiting(t, Fencing{Enabled: true}, "old") // without skip_wait the wait is the longest known one
	s.on(Tick{}, "FenceNode")
	s.m.term.fence.Earlier[0].Wait = 1
	s.on(NodeFenced{Term: 7, Node: "old"})
	if s.m.Phase() != LeaseWait || s.m.term.fence.Owed != owed {
		t.Errorf("phase %s, waits for %s", s.m.Phase(), s.m.term.fence.Owed)
	}

	for wait, want := range map[cluster.Duration]string{owed: "W", owed + 1: "W", owed - 1: "W, until old was fenced"} {
		s = waiting(t, Fencing{Enabled: true, SkipWait: true}, "old", "older")
		s.on(Tick{}, "FenceNode")
		s.m.term.fence.Wait, s.m.term.fence.Earlier[1].Wait = "W", wait
		s.on(NodeFenced{Term: 7, Node: "old"}, "FenceNode")
		if got := s.m.term.fence; got.Wait != want || got.Owed != min(owed, wait) {
			t.Errorf("%s: waits for %s: %s", wait, got.Owed, got.Wait)
		}
	}
}
