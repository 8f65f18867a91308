package transition

import (
	"errors"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// windDown runs a stopping machine to its RELEASE and returns the fence that it leaves behind.
func (s *script) windDown() cluster.Fence {
	s.t.Helper()
	var actions []Action
	if s.m.Running() {
		actions = s.m.Step(s.now, ChildDead{Status: "ended"})
	}
	tx := sent(s.t, append(actions, s.m.Step(s.now, HookDone{})...))
	if tx.Tx != TxRelease {
		s.t.Fatalf("%s in phase %s", tx.Tx, s.m.Phase())
	}
	return released(s.t, tx)
}

// leading returns what a leader reads, with changes.
func (s *script) leading(change ...func(*cluster.Snapshot)) Saw {
	return s.saw(append(s.mine(), change...)...)
}

// A leader stops for each of these reasons, writes it into the fence, and does not renew while it stops.
func TestALeaderThatIsReplacedStopsAndDoesNotRenew(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*cluster.Snapshot)
		reason string
		asked  bool
	}{
		{"another incarnation", func(s *cluster.Snapshot) { s.Elected.Record.Node, s.Elected.Record.Incarnation = "x", "x" }, "replaced by x in term 7: because", true},
		{"another term", func(s *cluster.Snapshot) { s.Elected.Record.Term = 8 }, "replaced by me in term 8: because", true},
		{"another version", func(s *cluster.Snapshot) { s.Elected.Stat.Version++ }, "replaced by me in term 7: because", true},
		{"no decision", func(s *cluster.Snapshot) { s.Elected = cluster.Stored[cluster.Elected]{} }, "the decision was deleted or damaged", false},
		{"a damaged decision", func(s *cluster.Snapshot) {
			s.Elected.Record, s.Elected.Err = cluster.Elected{}, errors.New("damaged")
		}, "the decision was deleted or damaged", false},
		{"no current", func(s *cluster.Snapshot) { s.Current = cluster.Stored[cluster.Current]{} }, "leader/current was deleted", false},
		{"current of another session", func(s *cluster.Snapshot) { s.Current.Stat.Owner++ }, "leader/current was deleted", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t)
			s.lead()
			s.on(s.leading(func(s *cluster.Snapshot) { s.Elected.Record.Reason = "because" }, c.change), "StopTask")
			s.after(s.b.Renew)
			s.on(Tick{})
			s.withdrawn()
			reason := s.m.term.stop.Reason
			if !s.m.term.replaced || reason != c.reason || s.m.term.stop.Requested != c.asked {
				t.Errorf("it stops because %q (requested: %v), want %q (%v)", reason, s.m.term.stop.Requested, c.reason, c.asked)
			}
			if strings.Contains(c.name, "current") {
				return // there is nothing to release
			}
			if f := s.windDown(); f.Reason != c.reason || f.Requested != c.asked || !f.Led {
				t.Errorf("left behind: %+v", f)
			}
		})
	}
}

// A READY of unknown outcome is read back: if it was not applied, it is sent again, with the versions that were read.
func TestReadyOfUnknownOutcome(t *testing.T) {
	held := func(s *cluster.Snapshot) {
		fence("me", 7, cluster.FenceHeld)(s)
		current("me", session)(s)
		s.Fence.Stat.Version, s.Current.Stat.Version = 21, 3
	}
	ready := func(s *cluster.Snapshot) {
		held(s)
		s.Fence.Record.State = cluster.FenceReady
	}
	start := func(t *testing.T) *script {
		s := newScript(t)
		s.declare()
		s.on(TxDone{Tx: TxReady, Err: cluster.ErrUnknown})
		s.on(Tick{}) // nothing is sent before it is read back
		s.after(s.b.Renew)
		s.on(Tick{})
		return s
	}
	t.Run("applied", func(t *testing.T) {
		s := start(t)
		s.withdrawn()
		s.on(s.saw(ready))
		if h := s.posted().Held; s.m.Phase() != Leading || h.Fence != 21 || h.Current != 3 {
			t.Errorf("phase %s, %+v", s.m.Phase(), h)
		}
	})
	t.Run("not applied", func(t *testing.T) {
		s := start(t)
		s.on(s.saw(held), "READY")
		if h := s.m.term.holding; s.m.Phase() != Declaring || h.Fence != 21 || h.Current != 3 {
			t.Errorf("phase %s, %+v", s.m.Phase(), h)
		}
	})
	t.Run("applied for a child that has died since", func(t *testing.T) {
		s := start(t)
		s.on(ChildDead{Status: "exited"}, "RunPostStop")
		if a := s.on(s.saw(ready)); len(those[Announce](a)) != 0 || s.m.Phase() != Releasing || s.m.Lending().Open {
			t.Errorf("phase %s, %+v, %v", s.m.Phase(), s.m.Lending(), a)
		}
	})
}

// TestReasonsOfFailure tests what ends a takeover or leadership, and the reason in the fence.
func TestReasonsOfFailure(t *testing.T) {
	for _, c := range []struct {
		name   string
		fail   func(*script)
		reason string
	}{
		{"pre_start", func(s *script) {
			s.prepare()
			s.on(HookDone{Err: errors.New("no disk")}, "RunPostStop")
		}, "no disk"},
		{"the child", func(s *script) {
			s.declare()
			s.on(ChildFailed{Err: errors.New("no port")}, "StopTask")
			s.on(done(TxReady))
		}, "no port"},
		{"the child does not start", func(s *script) {
			s.prepare()
			s.on(HookDone{}, "StartChild")
			s.on(ChildFailed{Err: errors.New("no such file")}, "RunPostStop")
		}, "no such file"},
		{"the child exits early", func(s *script) {
			s.start()
			s.on(ChildDead{Status: "exited with status 3"}, "RunPostStop")
		}, "the child exited with status 3 before it was ready"},
		{"READY is refused", func(s *script) {
			s.declare()
			s.on(refused(TxReady, 1, cluster.ErrBadVersion), "StopTask")
			s.on(s.saw(fence("me", 7, cluster.FenceHeld), current("me", session)))
		}, "READY was refused: check : " + cluster.ErrBadVersion.Error()},
		{"ZooKeeper does not answer", func(s *script) {
			s.lead()
			s.now = s.m.Deadline() - s.b.Grace
			s.on(Tick{}, "StopTask")
			s.renewed(s.now, cluster.ErrNotSent)
			s.after(s.b.Renew)
		}, "the lease could not be renewed: no answer from ZooKeeper"},
		{"the lease is over", func(s *script) {
			s.lead()
			s.now = s.m.Deadline()
			s.on(Tick{}, "KillTask")
		}, "the lease ended: ZooKeeper did not renew it in time"},
		{"a request", func(s *script) { s.lead(); s.on(Quit{Reason: "asked to"}, "StopTask") }, "asked to"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t)
			c.fail(s)
			if f := s.windDown(); f.Reason != c.reason || f.Requested != (c.name == "a request") {
				t.Errorf("left behind: %+v, want %q", f, c.reason)
			} else if lapsed := c.name == "ZooKeeper does not answer" || c.name == "the lease is over"; f.Lapsed != lapsed {
				t.Errorf("ZooKeeper is to blame: %t, want %t", f.Lapsed, lapsed)
			}
		})
	}
}

// Only the loss of the own incarnation ends the membership: no other missing znode does, and no other error.
func TestRefusalsThatDoNotEndTheMembership(t *testing.T) {
	for _, err := range []error{
		&cluster.TxError{Index: 1, Err: cluster.ErrNoNode}, &cluster.TxError{Index: 0, Err: cluster.ErrNoAuth}, cluster.ErrNoNode,
	} {
		s := newScript(t)
		s.lead()
		s.renewed(s.now, err, "StopTask")
		if why := s.m.term.stop.Reason; why != "RENEW was refused: "+err.Error() {
			t.Errorf("stops because %q", why)
		}
	}
	s := newScript(t)
	s.on(s.saw(), "ACQUIRE")
	s.on(refused(TxAcquire, 0, cluster.ErrNoNode), "End")
	if s.m.ended != "its own incarnation is gone" {
		t.Errorf("%q", s.m.ended)
	}
}

// After each failure the next attempt waits, and the machine wakes for it.
func TestPausesBetweenAttempts(t *testing.T) {
	release := func(s *script) {
		s.lead()
		s.on(s.leading(replacedBy("other", 8)), "StopTask")
		s.endWork()
	}
	for _, c := range []struct {
		name  string
		until func(*script)
		ev    TxDone
		pause func(cluster.Budget) time.Duration
		then  string
	}{
		{"RELEASE not sent", release, TxDone{Tx: TxRelease, Err: cluster.ErrNotSent}, func(b cluster.Budget) time.Duration { return b.Renew / 4 }, "RELEASE"},
		{"RELEASE refused", release, refused(TxRelease, 1, cluster.ErrBadVersion), func(b cluster.Budget) time.Duration { return b.Renew / 4 }, "RELEASE"},
		{"READY not sent", (*script).declare, TxDone{Tx: TxReady, Err: cluster.ErrNotSent}, func(b cluster.Budget) time.Duration { return b.Renew / 4 }, "READY"},
		{"ACQUIRE refused", func(s *script) { s.on(s.saw(), "ACQUIRE") }, refused(TxAcquire, 1, cluster.ErrBadVersion), func(b cluster.Budget) time.Duration { return b.Renew }, "ACQUIRE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t)
			c.until(s)
			s.on(c.ev)
			read := func(s *script) Saw {
				switch {
				case c.then == "ACQUIRE":
					return s.saw()
				case c.then == "READY":
					return s.saw(fence("me", 7, cluster.FenceHeld), current("me", session))
				}
				return s.leading(replacedBy("other", 8))
			}
			s.on(read(s))
			due := s.now + c.pause(s.b)
			if wake := s.m.Wake(); wake != due {
				t.Errorf("wakes after %s, want %s", wake-s.now, due-s.now)
			}
			s.now = due - 1
			s.on(read(s))
			s.now = due
			s.on(read(s), c.then)
		})
	}
}

// The machine wakes for each of its deadlines.
func TestWakesForEachDeadline(t *testing.T) {
	s := newScript(t)
	s.lead()
	wants := func(what string, at time.Duration) {
		t.Helper()
		if got := s.m.Wake(); got != at {
			t.Errorf("%s: wakes in %s, want %s", what, got-s.now, at-s.now)
		}
	}
	wants("the graceful stop", s.m.Deadline()-s.b.Grace)
	s.now = s.m.Deadline() - s.b.Grace
	s.on(Tick{}, "StopTask")
	wants("the kill", s.m.Deadline())
	s.now = s.m.Deadline()
	s.on(Tick{}, "KillTask")
	wants("the end of a membership whose work cannot be killed", s.m.Deadline()+s.b.Session)
	s.on(Quit{Reason: "stop"})
	wants("the end without ZooKeeper", s.m.Deadline()+s.b.Session)

	for _, quits := range []bool{true, false} {
		s = newScript(t)
		s.lead()
		s.now = s.m.Deadline() - s.b.Grace
		s.on(Tick{}, "StopTask")
		s.endWork()
		s.on(TxDone{Tx: TxRelease, Err: cluster.ErrUnknown})
		if s.now = s.m.Deadline(); quits {
			s.on(Quit{Reason: "stop"})
			wants("the end of a membership that cannot release", s.m.releaseTimeout())
		} else {
			s.on(Tick{})
			wants("the end of a session that does not answer RELEASE", s.m.sickAt())
		}
	}

	s = newScript(t)
	s.lead()
	s.on(ChildDead{Status: "exited"})
	s.m.term.restartAt = s.now + time.Millisecond
	s.on(Tick{})
	wants("the restart", s.now+time.Millisecond)

	s = newScript(t)
	s.on(s.saw(fence("old", 6, cluster.FenceRevoked)), "ACQUIRE")
	s.on(done(TxAcquire), "Lease")
	s.m.term.acquiredAt = s.now + time.Millisecond - time.Duration(s.m.term.fence.Owed)
	s.on(Tick{})
	wants("the end of the lease wait", s.now+time.Millisecond)
}

// A member that was asked to stop, and then fails, says in its fence that it stops: it is not elected again.
func TestAMemberThatFailsWhileItStopsIsNotElectedAgain(t *testing.T) {
	failed := Quit{Reason: "the guard is lost", Failed: true}
	s := newScript(t)
	s.lead()
	s.on(Quit{Reason: "stopped"}, "StopTask")
	s.on(failed, "KillTask")
	if f := s.windDown(); f.Stopping != f.Incarnation {
		t.Errorf("stopped: %+v", f)
	}
	s = newScript(t)
	s.lead()
	s.on(LeaseCut{Deadline: s.now + s.b.Lease, Reason: "cut"}, "StopTask")
	s.on(failed)
	if f := s.windDown(); f.Stopping != f.Incarnation {
		t.Errorf("a shorter lease: %+v", f)
	}
	s = newScript(t)
	s.lead()
	s.on(failed, "StopTask")
	if f := s.windDown(); f.Stopping != "" {
		t.Errorf("it has only failed, which is a strike: %+v", f)
	}
}
