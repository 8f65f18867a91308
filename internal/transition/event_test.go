package transition

import (
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// Only a SETM that was certainly not sent can be forgotten (S1).
func TestWhichSetMembersIsForgotten(t *testing.T) {
	for _, c := range []struct {
		err     error
		forgets bool
	}{{cluster.ErrNotSent, true}, {cluster.ErrUnknown, false}, {cluster.ErrSessionEnded, false}} {
		s := leadingFailsafe(t)
		s.on(s.joined(), "SETM")
		s.m.Step(s.now, TxDone{Tx: TxSetMembers, Err: c.err})
		if got := s.m.term.failsafe.rounds.Settled(); got != c.forgets {
			t.Errorf("%v: forgotten: %t", c.err, got)
		}
	}
	s := newFailsafe(t) // the term may have ended meanwhile
	s.leadWith("a")
	s.after(s.b.Renew)
	s.on(s.joined(), "SETM")
	s.on(ChildFailed{Err: errFence}, "StopTask")
	s.on(ChildDead{}, "RunPostStop")
	s.on(HookDone{})
	s.on(s.saw(fence("me", 7, cluster.FenceRevoked)), "Lease")
	s.on(TxDone{Tx: TxSetMembers, Err: cluster.ErrNotSent})
}

func TestARefusedSetMembers(t *testing.T) {
	s := leadingFailsafe(t)
	s.on(s.joined(), "SETM")
	s.on(refused(TxSetMembers, 1, cluster.ErrBadVersion))
	unchanged := func(snap *cluster.Snapshot) { snap.Fence.Stat.Version = 11 }
	s.on(s.saw(append(s.mine(), unchanged)...), "StopTask")
	if got := s.m.term.stop.Reason; !strings.Contains(got, "refused") {
		t.Error(got)
	}
}

func TestARefusedVetoIsNotRepeatedAtOnce(t *testing.T) {
	s := newFailsafe(t)
	s.on(s.saw(left("me"), replacedBy("x", 7)), "CurrentGone", "Remember")
	s.on(Remembered{Term: 6}, "VETO")
	s.on(refused(TxVeto, 1, cluster.ErrBadVersion))
	s.on(s.saw(left("me"), replacedBy("x", 7)))
	s.after(s.b.Renew / 4)
	if got := s.m.Wake(); got != s.now {
		t.Errorf("wakes after %s", got-s.now)
	}
	s.on(Tick{}, "VETO")
}

// A SETM that is acknowledged after the session's limit was cut extends nothing (S1).
func TestACutLeaseStaysCut(t *testing.T) {
	s := leadingFailsafe(t)
	s.on(s.joined(), "SETM")
	s.after(s.b.Renew)
	s.m.term.failsafe.extended, s.m.term.lease.deadline = s.now+s.b.Lease, s.now+s.b.Lease // by a round
	limit := s.now + time.Second
	s.on(LeaseCut{Deadline: limit, Reason: "shorter"}, "Lease", "StopTask")
	s.on(done(TxSetMembers), "Lease")
	if got := s.m.Deadline(); got > limit || s.m.Extended() {
		t.Errorf("lasts %s longer", got-limit)
	}
}

// A decision that this member makes while its own ACQUIRE is under way is about a term that it may be about to hold.
func TestAnElectionWhileACQUIREIsUnderWay(t *testing.T) {
	s := newScript(t)
	s.on(s.saw(), "ACQUIRE")
	s.on(Replaced{Term: 8, Node: "other", Reason: "moved"})
	s.on(done(TxAcquire), "Lease", "RunPreStart")
	if s.m.Term() != 7 {
		t.Errorf("holds term %d", s.m.Term())
	}
}
