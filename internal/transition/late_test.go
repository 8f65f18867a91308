package transition

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// notes returns the log lines among actions.
func notes(actions []Action) []string {
	var out []string
	for _, n := range those[Note](actions) {
		out = append(out, n.Text)
	}
	return out
}

// Events that come late, twice, or for something else change nothing.
func TestLateEventsChangeNothing(t *testing.T) {
	t.Run("the reply to another transaction", func(t *testing.T) {
		s := newScript(t)
		s.declare()
		s.on(done(TxRelease))
		s.on(refused(TxRelease, 1, cluster.ErrBadVersion))
		s.on(done(TxReady))
		if s.m.Phase() != Leading {
			t.Errorf("phase %s", s.m.Phase())
		}
	})
	t.Run("the end of a hook", func(t *testing.T) {
		s := newScript(t)
		s.lead()
		s.on(HookDone{})
		s.on(HookDone{Err: errors.New("late")})
	})
	t.Run("a failure of a child after the term", func(t *testing.T) {
		s := newScript(t)
		s.on(ChildFailed{Err: errors.New("late")})
		s.on(s.saw(), "ACQUIRE")
	})
	t.Run("a snapshot from before the RELEASE", func(t *testing.T) {
		s := newScript(t)
		s.lead()
		old := s.leading()
		s.after(time.Millisecond)
		s.on(s.leading(replacedBy("other", 8)), "StopTask")
		s.endWork()
		s.on(done(TxRelease), "Lease")
		s.on(old)
	})
	t.Run("a snapshot while ACQUIRE is in flight", func(t *testing.T) {
		s := newScript(t)
		s.on(s.saw(), "ACQUIRE")
		s.on(s.saw(fence("me", 7, cluster.FenceHeld), current("me", session)))
		s.on(done(TxAcquire), "Lease", "RunPreStart")
	})
	t.Run("a snapshot after the session", func(t *testing.T) {
		s := newScript(t)
		s.on(SessionEnded{Reason: "expired"})
		s.on(s.saw(fence("me", 7, cluster.FenceHeld), current("me", session)))
		s.on(s.saw())
	})
}

// The reply to READY may come after a snapshot that has ended the term: nothing of it reaches the next one.
func TestAReadyThatIsOverdueChangesNothing(t *testing.T) {
	for _, ev := range []TxDone{done(TxReady), refused(TxReady, 3, cluster.ErrNoNode), {Tx: TxReady, Err: cluster.ErrUnknown}} {
		s := newScript(t)
		s.declare()
		s.on(ChildDead{Status: "exited"}, "RunPostStop")
		s.on(HookDone{})
		s.after(1)
		s.on(s.saw(fence("me", 7, cluster.FenceReady)), "Lease") // current was deleted
		s.on(ev)
		s.after(s.b.Renew)
		s.on(s.saw(fence("me", 7, cluster.FenceReady)))
		if !reflect.DeepEqual(s.m.term, termState{}) || !s.m.Idle() || s.m.Phase() != Standby {
			t.Errorf("after %+v: phase %s, %+v", ev, s.m.Phase(), s.m.term)
		}
	}
}

// The reply to a RENEW counts only for the term and the versions that it was posted for, and only while it is posted: another one
// may be the reply to what this member has changed itself since.
func TestAReplyToAnotherRenewChangesNothing(t *testing.T) {
	start := func(t *testing.T) (*script, Renew) {
		s := newScript(t)
		s.start()
		held := s.posted()
		s.after(s.b.Renew)
		s.on(ChildReady{}, "READY")
		return s, held
	}
	replies := func(p Renew, sent time.Duration) []RenewDone {
		return []RenewDone{
			{Term: p.Term, Held: p.Held, Sent: sent}, {Term: p.Term, Held: p.Held, Sent: sent, Err: errRefused},
			{Term: p.Term, Held: p.Held, Err: &cluster.TxError{Index: 0, Err: cluster.ErrNoNode}}, {Term: p.Term, Held: p.Held, Err: cluster.ErrUnknown},
		}
	}
	t.Run("withdrawn for READY", func(t *testing.T) {
		s, held := start(t)
		s.withdrawn()
		for _, ev := range replies(held, s.now) {
			s.on(ev)
		}
		s.on(done(TxReady))
		if p := s.posted(); len(p.Ops) != 4 || p.Held == held.Held || p.Due >= s.now+s.b.Renew {
			t.Errorf("posted: %+v", p)
		}
		for _, ev := range replies(held, s.now) { // the versions before READY
			s.on(ev)
		}
		if s.m.Phase() != Leading {
			t.Errorf("phase %s", s.m.Phase())
		}
	})
	t.Run("of an earlier term", func(t *testing.T) {
		s, _ := start(t)
		s.on(done(TxReady))
		old := s.posted()
		s.on(s.leading(replacedBy("other", 8)), "StopTask")
		s.endWork()
		s.withdrawn()
		s.on(done(TxRelease), "Lease")
		for _, ev := range replies(old, s.now) {
			s.on(ev)
		}
		s.after(s.b.Lease)
		s.on(s.saw(replacedBy("me", 9)), "ACQUIRE")
		s.on(done(TxAcquire), "Lease", "RunPreStart")
		other := s.posted()
		if other.Term != 9 {
			t.Fatalf("posted: %+v", other)
		}
		other.Term = 7 // the same versions, as after the znodes were deleted and created again
		s.after(time.Millisecond)
		for _, ev := range replies(other, s.now) {
			s.on(ev)
		}
		if s.m.Phase() != Preparing {
			t.Errorf("phase %s", s.m.Phase())
		}
	})
	t.Run("after the end", func(t *testing.T) {
		s, _ := start(t)
		s.on(done(TxReady))
		old := s.posted()
		s.on(SessionEnded{Reason: "expired"}, "KillTask")
		s.withdrawn()
		for _, ev := range replies(old, s.now) {
			s.on(ev)
		}
	})
}

// The child is not started after a successful pre_start once the work is to stop.
func TestNoStartAfterAStop(t *testing.T) {
	prepare := func(t *testing.T) *script {
		s := newScript(t)
		s.prepare()
		return s
	}
	s := prepare(t)
	s.on(s.saw(fence("me", 7, cluster.FenceHeld), current("me", session), replacedBy("other", 8)), "StopTask")
	if s.m.Phase() != Stopping || s.m.Idle() {
		t.Errorf("phase %s, idle: %v", s.m.Phase(), s.m.Idle())
	}
	s.on(HookDone{}, "RunPostStop")
	if s.m.Idle() {
		t.Error("idle while post_stop is running")
	}
	s.on(HookDone{}, "RELEASE")

	s = prepare(t)
	s.on(SessionEnded{Reason: "expired"}, "KillTask")
	s.on(HookDone{}, "RunPostStop")
	if s.m.Phase() == Ended {
		t.Error("ended while post_stop is running")
	}
	s.on(HookDone{}, "Lease")
}

// The work is killed once, whatever happens until it is dead, and the lease is not renewed any more.
func TestAKillIsNotRepeated(t *testing.T) {
	for name, kill := range map[string]func(*script){
		"the session ended": func(s *script) { s.on(SessionEnded{Reason: "expired"}, "KillTask") },
		"in a hurry": func(s *script) {
			s.on(Quit{Reason: "stop"}, "StopTask")
			s.on(Quit{Reason: "stop"}, "KillTask")
		},
		"the registration is gone": func(s *script) {
			s.on(s.leading(func(s *cluster.Snapshot) { s.SelfLost = true }), "End", "KillTask")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			s.lead()
			kill(s)
			s.on(Tick{})
			s.after(s.b.Renew)
			s.on(Tick{})
			actions := s.on(ChildDead{Status: "was killed"}, "RunPostStop")
			if n := notes(actions); len(n) > 0 {
				t.Errorf("%q", n)
			}
		})
	}
}

// The end of the session has its own reason, and ends what was in flight.
func TestTheEndOfTheSession(t *testing.T) {
	s := newScript(t)
	s.lead()
	s.renewed(s.now, cluster.ErrSessionEnded)
	if s.m.term.stop != nil {
		t.Errorf("stops: %q", s.m.term.stop.Reason)
	}
	s = newScript(t)
	s.lead()
	s.renewed(s.now, &cluster.TxError{Index: 0, Err: cluster.ErrNoNode}, "End", "KillTask")
	if s.m.term.stop != nil {
		t.Errorf("its incarnation is gone, but it stops: %q", s.m.term.stop.Reason)
	}
	for _, c := range []struct {
		ev   TxDone
		want []string
	}{{TxDone{Tx: TxReady, Err: cluster.ErrSessionEnded}, nil}, {refused(TxReady, 0, cluster.ErrNoNode), []string{"End", "KillTask"}}} {
		s = newScript(t)
		s.declare()
		s.on(c.ev, c.want...)
		if s.m.term.stop != nil {
			t.Errorf("after %v it stops: %q", c.ev.Err, s.m.term.stop.Reason)
		}
	}
	s = newScript(t)
	s.on(s.saw(), "ACQUIRE")
	if s.m.Idle() {
		t.Error("idle while ACQUIRE is in flight")
	}
	s.on(SessionEnded{Reason: "expired"})
	if s.m.Phase() != Ended || !s.m.Idle() {
		t.Errorf("phase %s", s.m.Phase())
	}
}

// After an ACQUIRE of unknown outcome only exactly what it would have written is adopted; anything else is released.
func TestOnlyItsOwnAcquireIsAdopted(t *testing.T) {
	for name, change := range map[string]func(*cluster.Snapshot){
		"a later term": func(s *cluster.Snapshot) { s.Elected.Record.Term, s.Fence.Record.Term = 8, 8 },
		"another's": func(s *cluster.Snapshot) {
			s.Elected.Record.Incarnation, s.Fence.Record.Incarnation = "other", "other"
		},
		"a fence of another term": func(s *cluster.Snapshot) { s.Fence.Record.Term = 6 },
		"a later decision":        replacedBy("other", 8),
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			s.on(s.saw(), "ACQUIRE")
			s.on(TxDone{Tx: TxAcquire, Err: cluster.ErrUnknown})
			s.after(s.b.Renew)
			s.on(s.saw(fence("me", 7, cluster.FenceHeld), current("me", session), change), "RELEASE")
		})
	}
}

// An event of an earlier term may come late, while ACQUIRE is in flight: it must not reset what the machine knows.
func TestALateFailureResetsNothing(t *testing.T) {
	late := ChildFailed{Err: errors.New("late")}
	t.Run("when ACQUIRE was sent", func(t *testing.T) {
		s := newScript(t)
		s.on(s.saw(), "ACQUIRE")
		want := s.now + s.b.Lease
		s.after(s.b.Renew / 2)
		s.on(late)
		if at := one[Lease](t, s.on(done(TxAcquire), "Lease", "RunPreStart")).Deadline; at != want {
			t.Errorf("the lease ends at %s, want %s", at, want)
		}
	})
	for name, late := range map[string]Event{"failure": late, "death": ChildDead{Status: "late"}} {
		t.Run("what ACQUIRE is for: "+name, func(t *testing.T) {
			s := newScript(t)
			s.on(s.saw(fence("old", 6, cluster.FenceRevoked)), "ACQUIRE")
			s.on(late)
			s.on(done(TxAcquire), "Lease") // the lease of the holder before may still be running
			if s.m.Phase() != LeaseWait || s.m.Term() != 7 {
				t.Errorf("phase %s, term %d", s.m.Phase(), s.m.Term())
			}
		})
	}
	t.Run("that ACQUIRE was refused", func(t *testing.T) {
		s := newScript(t)
		s.on(s.saw(), "ACQUIRE")
		s.on(refused(TxAcquire, 1, cluster.ErrBadVersion))
		s.on(late)
		s.on(s.saw())
	})
	t.Run("that ACQUIRE may have been applied", func(t *testing.T) {
		s := newScript(t)
		s.on(s.saw(fence("old", 6, cluster.FenceReleased)), "ACQUIRE")
		s.on(TxDone{Tx: TxAcquire, Err: cluster.ErrUnknown})
		s.on(late)
		s.after(s.b.Renew)
		s.on(s.saw(fence("old", 6, cluster.FenceRevoked), func(s *cluster.Snapshot) { s.Fence.Stat.Version = 12 }))
	})
	t.Run("that the lease was cut", func(t *testing.T) {
		s := newScript(t)
		s.on(s.saw(), "ACQUIRE")
		cut := s.now + 300*time.Millisecond
		s.on(LeaseCut{Deadline: cut, Reason: shrunk})
		s.on(late)
		if at := one[Lease](t, s.on(done(TxAcquire), "Lease", "RELEASE")).Deadline; at != cut {
			t.Errorf("the lease ends at %s, it was cut to %s", at, cut)
		}
	})
}

// Nothing is acquired from an incomplete snapshot, or for another incarnation.
func TestNothingIsAcquiredWithoutReadingTheFence(t *testing.T) {
	s := newScript(t)
	half := func(s *cluster.Snapshot) { s.HolderRead, s.Fence = false, cluster.Stored[cluster.Fence]{} }
	s.on(s.saw(func(s *cluster.Snapshot) { s.HolderRead = false }))
	s.on(s.saw(half))
	if s.m.Phase() != Waiting {
		t.Errorf("phase %s", s.m.Phase())
	}
	// It does not show either that an ACQUIRE of unknown outcome was applied.
	s.on(s.saw(fence("old", 6, cluster.FenceReleased)), "ACQUIRE")
	s.on(TxDone{Tx: TxAcquire, Err: cluster.ErrUnknown})
	if s.m.Phase() != Standby {
		t.Errorf("phase %s, from an old snapshot", s.m.Phase())
	}
	s.after(s.b.Renew)
	s.on(s.saw(half))
	if s.m.Phase() != Waiting {
		t.Errorf("phase %s after an ACQUIRE of unknown outcome", s.m.Phase())
	}
	s = newScript(t)
	s.lead()
	s.on(s.leading(replacedBy("other", 8)), "StopTask")
	s.endWork()
	s.on(done(TxRelease), "Lease")
	s.on(s.saw(replacedBy("other", 3))) // another member's lower term does not concern this one
	if s.m.Phase() != Standby {
		t.Errorf("phase %s", s.m.Phase())
	}
}

// Only exits within the window count, and the last one is not logged as a restart.
func TestExitsOutsideTheWindowDoNotCount(t *testing.T) {
	s := newScript(t)
	s.lead()
	s.neverLapses()
	first := s.now
	exit := func(at time.Duration, started bool) {
		t.Helper()
		s.now = at
		actions := s.m.Step(s.now, ChildDead{Status: "exited"})
		if n := notes(actions); (len(n) == 1) != started || (s.m.term.stop == nil) != started {
			t.Fatalf("after %s: %q, %+v", at-first, n, s.m.term.stop)
		}
		if started {
			s.now += time.Second
			s.m.Step(s.now, Tick{})
			s.m.Step(s.now, ChildStarted{})
			s.m.Step(s.now, ChildReady{})
		}
	}
	exit(first, true)
	exit(first+10*time.Second, true)
	exit(first+time.Minute, true) // the first exit was a minute ago, and no longer counts
	exit(first+time.Minute+9*time.Second, false)
}

// An ACQUIRE of unknown outcome is read back.
func TestAnACQUIREOfUnknownOutcome(t *testing.T) {
	at := func(version int32, changes ...func(*cluster.Snapshot)) func(*cluster.Snapshot) {
		return func(s *cluster.Snapshot) {
			for _, change := range changes {
				change(s)
			}
			s.Fence.Stat.Version = version
		}
	}
	released := at(10, fence("old", 6, cluster.FenceReleased))
	start := func(t *testing.T) *script {
		s := newScript(t)
		s.on(s.saw(released), "ACQUIRE")
		s.on(TxDone{Tx: TxAcquire, Err: cluster.ErrUnknown})
		s.after(s.b.Renew)
		return s
	}
	t.Run("it did not", func(t *testing.T) {
		s := start(t)
		s.on(s.saw(released), "ACQUIRE")
	})
	// It may have taken effect, and the fence was written by somebody else since: the term is not acquired twice.
	for name, version := range map[string]int32{"after it": 12, "right after it": 11, "leader was deleted": 9} {
		t.Run("the fence was lost: "+name, func(t *testing.T) {
			s := start(t)
			s.on(s.saw(at(version, fence("old", 6, cluster.FenceRevoked))))
			s.on(s.saw(at(version, fence("old", 6, cluster.FenceRevoked)), replacedBy("me", 8)), "ACQUIRE")
		})
	}
}

// A reply with too few results proves that the transaction took effect, but not in which version: that is read.
func TestAReplyWithTooFewResults(t *testing.T) {
	short := func(tx Tx) TxDone { return TxDone{Tx: tx, Results: []cluster.Result{{}, {}}} }
	s := newScript(t)
	s.on(s.saw(fence("old", 6, cluster.FenceReleased)), "ACQUIRE")
	s.on(short(TxAcquire))
	s.after(s.b.Renew)
	s.on(s.saw(fence("me", 7, cluster.FenceHeld), current("me", session)), "Lease", "RunPreStart")
	s.startChild()
	s.on(ChildReady{}, "READY")
	s.on(short(TxReady))
	s.after(s.b.Renew)
	s.on(s.saw(s.mine()...))
	if s.m.Phase() != Leading {
		t.Errorf("phase %s", s.m.Phase())
	}
	s.on(Quit{Reason: "stop"}, "StopTask")
	s.endWork()
	s.on(TxDone{Tx: TxRelease}, "Lease", "End") // nothing of it is needed
}

// The lease of a leader that gives up may be renewed further, by which nobody else would know that its work hangs.
func TestWorkThatCannotBeKilledEndsTheMembershipWhoseLeaseIsRenewed(t *testing.T) {
	s := newScript(t)
	s.lead()
	s.on(s.leading())
	s.now = s.m.Deadline() - s.m.grace()
	by := s.now + s.b.Lease + s.b.Session
	s.on(Tick{}, "StopTask")
	for s.now+s.b.Renew < by {
		s.now += s.b.Renew
		s.renewed(s.now, nil, "Lease")
	}
	s.now = by
	s.on(Tick{}, "End")
}

// After a READY of unknown outcome the versions are read. Those of a successor are not this member's: nothing of it may be released (S1).
func TestAReadyOfUnknownOutcomeTakesNothingFromASuccessor(t *testing.T) {
	s := newScript(t)
	s.declare()
	s.m.Step(s.now, TxDone{Tx: TxReady, Err: cluster.ErrUnknown})
	held := s.m.term.holding
	s.after(1)
	later := func(snap *cluster.Snapshot) { snap.Fence.Stat.Version = held.Fence + 2 }
	s.m.Step(s.now, s.saw(replacedBy("other", 8), fence("other", 8, cluster.FenceHeld), current("other", session+1), later))
	if !s.m.term.replaced || s.m.term.holding != held {
		t.Errorf("replaced %t, it holds %+v, want %+v", s.m.term.replaced, s.m.term.holding, held)
	}
}
