package transition

import (
	"testing"
)

// queued returns a script whose member has acquired term 7, and waits to be admitted.
func queued(t *testing.T) *script {
	t.Helper()
	s := newScript(t)
	opt := s.m.opt
	opt.Admission = true
	s.m = New(opt)
	s.on(s.saw(), "ACQUIRE")
	asked := s.on(done(TxAcquire), "Lease", "AskToStart")
	if ask := one[AskToStart](t, asked); ask.Term != 7 {
		t.Errorf("asks for term %d", ask.Term)
	}
	if s.m.Phase() != Queued || s.m.Running() {
		t.Fatalf("phase %s", s.m.Phase())
	}
	return s
}

func TestTheWorkStartsOnceItIsAdmitted(t *testing.T) {
	s := queued(t)
	if wake := s.m.Wake(); wake != 0 && wake <= s.now {
		t.Errorf("wakes at %s, which is past at %s", wake, s.now)
	}
	s.on(Tick{})
	s.on(Admitted{Term: 6}) // of an earlier term
	s.on(Admitted{Term: 7}, "RunPreStart")
	s.on(Admitted{Term: 7})
	s.on(HookDone{}, "StartChild")
}

// Work does not begin when the lease is over, however late it is admitted (S1).
func TestAdmittedAtTheEndOfTheLease(t *testing.T) {
	s := queued(t)
	s.now = s.m.Deadline()
	s.on(Admitted{Term: 7}, "RELEASE")
}
