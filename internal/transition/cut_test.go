package transition

import (
	"testing"
	"time"
)

const shrunk = "a server grants less"

// If a server grants a shorter timeout than the lease is based on, leadership and session end in order, within the new
// lease.
func TestLeaseCutEndsTheSessionInOrder(t *testing.T) {
	s := newScript(t)
	s.lead()
	cut := s.now + 500*time.Millisecond
	actions := s.on(LeaseCut{Deadline: cut, Reason: shrunk}, "Lease", "StopTask")
	if at := one[Lease](t, actions).Deadline; at != cut || s.m.Deadline() != cut {
		t.Errorf("the lease ends at %s and %s, not at %s", at, s.m.Deadline(), cut)
	}
	if stop := actions[1].(StopTask); stop.Grace != 500*time.Millisecond {
		t.Errorf("%s is left to stop", stop.Grace)
	}
	s.after(400 * time.Millisecond)
	s.on(ChildDead{Status: "exited with status 0"}, "RunPostStop")
	release := s.on(HookDone{}, "RELEASE")
	if f := released(t, sent(t, release)); f.Reason != shrunk || !f.Requested {
		t.Errorf("released with %+v", f)
	}
	s.on(done(TxRelease), "Lease", "End")
	if s.m.Phase() != Ended {
		t.Errorf("phase %s", s.m.Phase())
	}
}

// A RENEW in flight when the lease is cut does not extend it again, and no other one is sent.
func TestLateReplyDoesNotReviveACutLease(t *testing.T) {
	s := newScript(t)
	s.lead()
	s.after(s.b.Renew)
	flying := s.posted()
	cut := s.now + 300*time.Millisecond
	s.on(LeaseCut{Deadline: cut, Reason: shrunk}, "Lease", "StopTask")
	s.withdrawn()
	s.on(RenewDone{Term: flying.Term, Held: flying.Held, Sent: s.now})
	if s.m.Deadline() != cut {
		t.Errorf("the reply moved the end of the lease from %s to %s", cut, s.m.Deadline())
	}
	s.after(200 * time.Millisecond)
	s.on(Tick{})
	s.withdrawn()
}
