package transition

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// entrusted returns the last FINAL among actions, and how many there are.
func entrusted(actions []Action) (last []cluster.Op, n int) {
	finals := those[Entrust](actions)
	if n = len(finals); n > 0 {
		last = finals[n-1].Ops
	}
	return last, n
}

// final checks that actions entrust one FINAL with these versions and this fence.
func (s *script) final(actions []Action, fence, current int32, want cluster.Fence) {
	s.t.Helper()
	ops, n := entrusted(actions)
	if n != 1 || len(ops) < 3 {
		s.t.Fatalf("%d of %d operations", n, len(ops))
	}
	p, last := s.m.opt.Paths, ops[len(ops)-1]
	got := fmt.Sprintf("%s %s, %s %s@%d, %s %s@%d", ops[0].Kind, ops[0].Path, ops[1].Kind, ops[1].Path, ops[1].Version, last.Kind, last.Path, last.Version)
	if expect := fmt.Sprintf("delete %s, set %s@%d, delete %s@%d", p.Incarnation("me"), p.Leader(), fence, p.Current(), current); got != expect {
		s.t.Errorf("%s, want %s", got, expect)
	}
	f := lastFence(s.t, p, ops)
	if r := f.Record; f.Err != nil || r.State != want.State || r.Owed != want.Owed || r.Led != want.Led || !r.Lost || r.Requested || r.Term != 7 || r.Incarnation != "me" {
		s.t.Errorf("%+v, %v, want %+v", r, f.Err, want)
	}
}

// The entrusted FINAL has the versions of the last transaction that took effect, and is withdrawn with the release.
func TestFinalIsEntrustedWhileATermIsHeld(t *testing.T) {
	s := newScript(t)
	if _, n := entrusted(s.on(s.saw(), "ACQUIRE")); n != 0 {
		t.Error("before a term is held")
	}
	acquired := done(TxAcquire)
	acquired.Results[cluster.ResultCurrent].Version = 0
	s.final(s.on(acquired, "Lease", "RunPreStart"), 11, 0, cluster.Fence{State: cluster.FenceReleased})
	s.startChild()
	s.on(ChildReady{}, "READY")
	ready := done(TxReady)
	ready.Results[cluster.ResultFence].Version = 12
	s.final(s.on(ready), 12, 1, cluster.Fence{State: cluster.FenceReleased, Led: true})
	s.after(s.b.Renew)
	if _, n := entrusted(s.renewed(s.now, nil, "Lease")); n != 0 {
		t.Error("again at a renewal, which changes no version")
	}
	s.on(Quit{Reason: "test"}, "StopTask")
	s.endWork()
	if ops, n := entrusted(s.on(done(TxRelease), "Lease", "End")); n != 1 || len(ops) != 0 {
		t.Errorf("it is not withdrawn: %d, %v", n, ops)
	}
}

// An incomplete lease wait remains in the fence.
func TestFinalIsUncleanDuringTheLeaseWait(t *testing.T) {
	s := newScript(t)
	wait := max(4*time.Second, s.b.LeaseWait)
	s.on(s.saw(fence("other", 6, cluster.FenceRevoked)), "ACQUIRE")
	s.final(s.on(done(TxAcquire), "Lease"), 11, 0, cluster.Fence{State: cluster.FenceUnclean, Owed: cluster.Duration(wait)})
	for over := s.now + wait; s.now+s.b.Renew < over; {
		s.after(s.b.Renew)
		s.renewed(s.now, nil, "Lease")
	}
	s.now = s.m.Wake()
	s.final(s.on(Tick{}, "RunPreStart"), 11, 0, cluster.Fence{State: cluster.FenceReleased})
}

// After the end of the session nothing else can release. A failed post_stop is recorded then, too.
func TestFinalOutlivesTheSession(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want cluster.FenceState
	}{"undone": {nil, cluster.FenceReleased}, "not undone": {errors.New("post_stop"), cluster.FenceUnclean}} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			s.lead()
			last, _ := entrusted(s.on(SessionEnded{Reason: "lost"}, "KillTask"))
			after := append(s.on(ChildDead{}, "RunPostStop"), s.on(HookDone{Err: c.err}, "Lease")...)
			if ops, n := entrusted(after); n > 0 {
				last = ops
			} else if c.err != nil {
				t.Fatal("nothing new is entrusted")
			}
			if s.m.Phase() != Ended {
				t.Fatalf("phase %s", s.m.Phase())
			}
			if c.err != nil && lastFence(t, s.m.opt.Paths, last).Record.State != c.want {
				t.Errorf("%+v, want %s", last, c.want)
			}
		})
	}
}
