package transition

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// Only a member without any work acquires (S1).
func TestWhoMayAcquire(t *testing.T) {
	elected := func() *script {
		s := newScript(t)
		s.m.snap, s.m.fresh, s.m.now = s.saw(current("old", 4)).Snapshot, true, s.now
		return s
	}
	if s := elected(); !s.m.mayAcquire() {
		t.Fatal("an elected member may not acquire")
	}
	for name, change := range map[string]func(*Machine){
		"it holds a term":            func(m *Machine) { m.term.held = true },
		"it gives a term up":         func(m *Machine) { m.term.stop = &Stop{} },
		"its membership is over":     func(m *Machine) { m.ended = "expired" },
		"it is about to end":         func(m *Machine) { m.quit = &Stop{} },
		"a transaction is under way": func(m *Machine) { m.tx.pending = TxVeto },
		"it undoes its work":         func(m *Machine) { m.term.task = taskClean },
		"its snapshot is old":        func(m *Machine) { m.fresh = false },
	} {
		s := elected()
		change(s.m)
		if s.m.vacant() || s.m.mayAcquire() {
			t.Errorf("%s: may acquire", name)
		}
		s.m.snap.Current.Exists = false
		if s.m.acquire(); len(s.m.out) != 0 {
			t.Errorf("%s: %+v", name, s.m.out)
		}
	}
}

// A restored elected has terms that the daemon knows already. It acquires none of them, and registers anew, to say what it knows.
func TestATermKnownBeforeIsRefused(t *testing.T) {
	for last, want := range map[int64]string{6: "ACQUIRE", 7: "End", 8: "End"} {
		s := newScript(t)
		opt := s.m.opt
		opt.LastTerm = last
		s.m = New(opt)
		s.on(s.saw(), want)
		if ended := s.m.ended != ""; ended != (want == "End") || strings.Contains(s.m.ended, "term 7, but this daemon knows term") != ended {
			t.Errorf("elected in term 7 after %d: %q", last, s.m.ended)
		}
	}
}

// Another epoch that is seen before the reply to ACQUIRE does not make the machine forget what it has sent.
func TestAnotherEpochWhileACQUIREIsUnderWay(t *testing.T) {
	s := newScript(t)
	s.on(s.saw(), "ACQUIRE")
	s.on(s.saw(func(snap *cluster.Snapshot) {
		snap.Slot, snap.Slots.Exists, snap.Slots.Record.Epoch = "0", true, 9
	}))
	s.on(done(TxAcquire), "Lease", "RunPreStart")
	if s.m.Term() != 7 {
		t.Errorf("holds term %d", s.m.Term())
	}
}

// A leader announces its end only while its work goes on.
func TestWhoAnnouncesItsEnd(t *testing.T) {
	begin := func() *script {
		s := newScript(t)
		s.m.opt.Budget.Handover = 200 * time.Millisecond
		s.lead()
		return s
	}
	s := begin()
	s.on(ChildFailed{Err: fmt.Errorf("failed")}, "StopTask")
	s.on(Quit{Reason: "stop"})

	s = begin()
	s.on(SessionEnded{Reason: "expired"}, "KillTask")
	s.on(Quit{Reason: "stop"})

	s = begin()
	s.on(ChildDead{Status: "exited"}) // it will be started again
	s.on(Quit{Reason: "stop"}, "RunPostStop")

	s = begin()
	if got := s.on(Quit{Reason: "a reason"}, "PublishLeaving")[0]; got != (PublishLeaving{Reason: "a reason"}) {
		t.Errorf("%+v", got)
	}
}

// A leader that has elected another one itself posts no RENEW while its work stops.
func TestNoRENEWAfterTheOwnElectionOfAnother(t *testing.T) {
	s := newScript(t)
	s.lead()
	s.on(Replaced{Term: 8, Node: "other", Reason: "moved"}, "StopTask")
	s.withdrawn()
	if stop := s.m.term.stop; !s.m.term.replaced || !stop.Requested || stop.Reason != "replaced by other in term 8: moved" {
		t.Errorf("%+v", stop)
	}
}
