package transition

import (
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// leave makes a leader quit that may wait for its successor.
func leave(t *testing.T) *script {
	t.Helper()
	s := newScript(t)
	s.b.Handover = 200 * time.Millisecond
	s.m.opt.Budget = s.b
	s.lead()
	s.on(Quit{Reason: "stop"}, "PublishLeaving")
	return s
}

// A leaver that is the elector itself knows that its successor is elected before it reads that.
func TestALeaverStopsWhenItHasElectedItsSuccessor(t *testing.T) {
	s := leave(t)
	s.on(LeavingPublished{})
	s.on(Replaced{Term: 7, Node: "me", Reason: "of an earlier election"})
	if s.m.term.replaced || !s.m.AwaitsSuccessor() {
		t.Error("the election of this term replaces its leader")
	}
	s.on(Replaced{Term: 8, Node: "other", Reason: "me leaves"}, "StopTask")
	s.on(s.saw(fence("me", 7, cluster.FenceReady), current("me", session), replacedBy("other", 8)))
	s.on(ChildDead{}, "RunPostStop")
	release := sent(t, s.on(HookDone{}, "RELEASE"))
	if f := released(t, release); f.Reason != "replaced by other in term 8: me leaves" || f.State != cluster.FenceReleased || !f.Requested {
		t.Errorf("released: %+v", f)
	}
	s.on(done(TxRelease), "Lease", "End")
	s.on(Replaced{Term: 9, Node: "other"})
}

func TestALeaverWaitsForAMomentOnly(t *testing.T) {
	s := leave(t)
	s.on(TxDone{}) // anything else does not end the wait
	s.after(s.b.Handover - time.Millisecond)
	s.on(LeavingPublished{Err: cluster.ErrUnknown}) // perhaps the elector has read it
	if wake := s.m.Wake(); wake != s.now+time.Millisecond {
		t.Errorf("wakes %s from now", wake-s.now)
	}
	s.after(time.Millisecond)
	if got, want := one[StopTask](t, s.on(Tick{}, "StopTask")).Grace, s.b.Stop-s.b.Handover; got != want {
		t.Errorf("grace %s, want %s", got, want)
	}
}

func TestALeaverDoesNotWaitInVain(t *testing.T) {
	for name, ev := range map[string]Event{
		"nobody is eligible":   NoSuccessor{},
		"not sent":             LeavingPublished{Err: cluster.ErrNotSent},
		"refused":              LeavingPublished{Err: errRefused},
		"the guard is lost":    Quit{Reason: "lost", Failed: true},
		"the session times it": LeaseCut{Deadline: 2 * time.Hour, Reason: "cut"},
	} {
		t.Run(name, func(t *testing.T) {
			if s := leave(t); name == "the guard is lost" {
				s.on(ev, "KillTask") // it is the second Quit
			} else {
				s.on(ev, "StopTask")
			}
		})
	}
	t.Run("in a hurry", func(t *testing.T) { leave(t).on(Quit{Reason: "stop"}, "KillTask") })
	t.Run("the session ends", func(t *testing.T) { leave(t).on(SessionEnded{Reason: "expired"}, "KillTask") })
	t.Run("the lease ends", func(t *testing.T) {
		s := leave(t)
		s.after(s.b.Lease - s.b.Grace)
		s.on(Tick{}, "StopTask")
		if !s.m.term.stop.Requested {
			t.Error("it counts as a failure")
		}
	})
}

func TestOnlyWorkThatIsReadyIsAnnounced(t *testing.T) {
	s := newScript(t)
	s.b.Handover = 200 * time.Millisecond
	s.m.opt.Budget = s.b
	s.declare()
	s.on(Quit{Reason: "stop"}, "StopTask")

	s = newScript(t)
	s.b.Handover = 200 * time.Millisecond
	s.m.opt.Budget = s.b
	s.lead()
	s.on(Quit{Reason: "lost", Failed: true}, "StopTask")
}

// The elector has published that nobody would be elected: there is nothing to wait for.
func TestALeaverWithoutAnHeirDoesNotWait(t *testing.T) {
	none := func(s *cluster.Snapshot) { s.Elected.Record.Heir = &cluster.Heir{} }
	for name, c := range map[string]struct {
		change func(s *cluster.Snapshot)
		waits  bool
	}{
		"none":                     {change: none},
		"unknown":                  {func(*cluster.Snapshot) {}, true},
		"another one since":        {func(s *cluster.Snapshot) { none(s); s.Heir = heir(7, "other") }, true},
		"another one, long ago":    {func(s *cluster.Snapshot) { none(s); s.Heir = heir(6, "other") }, false},
		"it is the elector itself": {func(s *cluster.Snapshot) { none(s); s.Elector = true }, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			s.b.Handover = 200 * time.Millisecond
			s.m.opt.Budget = s.b
			s.lead()
			saw := s.saw(fence("me", 7, cluster.FenceReady), current("me", session))
			c.change(&saw.Snapshot)
			s.on(saw)
			if c.waits {
				s.on(Quit{Reason: "stop"}, "PublishLeaving")
			} else {
				s.on(Quit{Reason: "stop"}, "StopTask")
			}
		})
	}
}

// heir is the record of an heir that was published after an election.
func heir(term int64, incarnation string) cluster.Stored[cluster.HeirRecord] {
	return cluster.Stored[cluster.HeirRecord]{Exists: true, Record: cluster.HeirRecord{Term: term, Heir: cluster.Heir{Incarnation: incarnation}}}
}
