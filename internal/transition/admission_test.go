package transition

import (
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
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
	for _, a := range asked {
		if ask, is := a.(AskToStart); is && ask.Term != 7 {
			t.Errorf("asks for term %d", ask.Term)
		}
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

// The lease goes on in the queue, for as long as it takes.
func TestTheLeaseIsRenewedInTheQueue(t *testing.T) {
	s := queued(t)
	for range 10 {
		s.after(s.b.Renew)
		s.renewed(s.now, nil, "Lease")
	}
	s.on(Admitted{Term: 7}, "RunPreStart")
}

// One that gives leadership up in the queue releases at once: nothing of its work has begun, so there is nothing to undo (A5).
func TestLeavingTheQueueReleases(t *testing.T) {
	for what, end := range map[string]func(s *script) Event{
		"stopped": func(*script) Event { return Quit{Reason: "asked to stop"} },
		"replaced": func(s *script) Event {
			return s.saw(fence("me", 7, cluster.FenceHeld), current("me", session), replacedBy("b", 8))
		},
	} {
		t.Run(what, func(t *testing.T) {
			s := queued(t)
			var f cluster.Fence
			for _, op := range sent(t, s.on(end(s), "RELEASE")).Ops {
				if strings.HasSuffix(op.Path, "/leader") && len(op.Data) > 0 {
					f = cluster.ReadStored[cluster.Fence](op.Path, op.Data, cluster.Stat{}, true).Record
				}
			}
			if f.State != cluster.FenceReleased || !f.Requested {
				t.Errorf("%+v", f)
			}
			s.on(Admitted{Term: 7})
		})
	}
}

func TestAnEndedLeaseIsNotAdmitted(t *testing.T) {
	s := queued(t)
	s.after(time.Minute)
	s.on(Admitted{Term: 7}, "RELEASE")
}
