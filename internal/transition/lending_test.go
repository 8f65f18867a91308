package transition

import (
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// lend takes the machine to READY and hands out an application lease. From then on its FINAL is UNCLEAN.
func lend(t *testing.T) *script {
	t.Helper()
	s := newScript(t)
	s.on(Lent{Term: 7})
	s.lead()
	s.on(Lent{Term: 6})
	if l := s.m.Lending(); !l.Open || l.Lent || l.Term != 7 {
		t.Fatalf("%+v", l)
	}
	s.final(s.on(Lent{Term: 7}), 11, 1, cluster.Fence{State: cluster.FenceUnclean, Owed: cluster.Duration(s.b.LeaseWait), Led: true})
	if _, n := entrusted(s.on(Lent{Term: 7})); n != 0 {
		t.Error("FINAL is entrusted again")
	}
	return s
}

// RELEASED is written only after the application leases are over, and so is post_stop run.
func TestReleaseWaitsForApplicationLeases(t *testing.T) {
	s := lend(t)
	s.on(ApplicationLeasesOver{Term: 7}) // not yet: others may be handed out
	if l := s.m.Lending(); !l.Lent || l.StopBy != 0 {
		t.Errorf("%+v", l)
	}
	s.on(Quit{Reason: "stop"}, "StopTask")
	if l := s.m.Lending(); l.Open || l.StopBy != s.now+s.b.Stop {
		t.Errorf("%+v", l)
	}
	s.on(Lent{Term: 7})
	s.on(ChildDead{})
	s.on(s.saw(s.mine()...))
	s.on(ApplicationLeasesOver{Term: 6})
	if s.m.Phase() != Stopping {
		t.Errorf("phase %s", s.m.Phase())
	}
	s.after(time.Second)
	s.on(ApplicationLeasesOver{Term: 7}, "RunPostStop")
	s.after(time.Second)
	f := released(t, sent(t, s.on(HookDone{}, "RELEASE")))
	if f.State != cluster.FenceReleased || f.Owed != 0 || f.Idle == nil || f.Idle.For != cluster.Duration(time.Second) {
		t.Errorf("released: %+v, %v", f, f.Idle)
	}
	s.on(done(TxRelease), "Lease", "End")
	if s.m.Owed() != 0 || s.m.Lending() != (Lending{}) {
		t.Errorf("a successor waits %s", s.m.Owed())
	}
}

// With no time to wait for them, the successor waits.
func TestAReleaseInAHurryLeavesApplicationLeases(t *testing.T) {
	s := lend(t)
	s.on(Quit{Reason: "stop"}, "StopTask")
	s.on(Quit{Reason: "stop"}, "KillTask")
	s.on(ChildDead{}, "RunPostStop")
	f := released(t, sent(t, s.on(HookDone{}, "RELEASE")))
	if f.State != cluster.FenceUnclean || f.Owed != cluster.Duration(s.b.LeaseWait) {
		t.Errorf("released: %+v", f)
	}
	s.on(done(TxRelease), "Lease", "End")
	if s.m.Owed() != s.b.LeaseWait {
		t.Errorf("a successor waits %s", s.m.Owed())
	}
}

// A membership that is over waits for them, too: the next one may acquire.
func TestTheEndWaitsForApplicationLeases(t *testing.T) {
	for name, end := range map[string]func(*script){
		"the session ends": func(s *script) { s.on(SessionEnded{Reason: "lost"}, "KillTask") },
		"the lease ends": func(s *script) {
			s.after(s.b.Lease)
			s.on(Tick{}, "KillTask")
			s.on(SessionEnded{Reason: "lost"})
		},
		"current is deleted": func(s *script) { s.on(s.saw(fence("me", 7, cluster.FenceReady)), "StopTask") },
	} {
		t.Run(name, func(t *testing.T) {
			s := lend(t)
			end(s)
			s.on(ChildDead{})
			s.on(s.saw(fence("me", 7, cluster.FenceReady)))
			if s.m.Idle() || s.m.Term() != 7 {
				t.Errorf("phase %s, term %d", s.m.Phase(), s.m.Term())
			}
			s.on(ApplicationLeasesOver{Term: 7}, "RunPostStop")
			s.on(HookDone{}, "Lease")
			if s.m.Owed() != 0 || !s.m.Idle() {
				t.Errorf("phase %s, a successor waits %s", s.m.Phase(), s.m.Owed())
			}
		})
	}
}

// Without a child, applications have what is left of the lease to stop.
func TestApplicationsAloneHaveTheLeaseToStop(t *testing.T) {
	s := newScript(t)
	s.b.Stop, s.b.Grace = 0, 0
	s.m.opt.Budget = s.b
	s.prepare()
	s.on(HookDone{}, "StartChild")
	s.on(ChildReady{Value: "v"}, "READY")
	s.on(done(TxReady))
	s.on(Lent{Term: 7})
	s.after(time.Second)
	if got, want := one[StopTask](t, s.on(Quit{Reason: "stop"}, "StopTask")).Grace, s.b.Lease-time.Second; got != want || s.m.Lending().StopBy != s.m.Deadline() || s.m.Lending().Value != "v" {
		t.Errorf("grace %s, want %s; %+v", got, want, s.m.Lending())
	}
	s.after(time.Second)
	s.on(ApplicationLeasesOver{Term: 7}, "RunPostStop")
}
