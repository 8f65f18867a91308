package transition

import (
	"testing"

	"zkelectd/internal/cluster"
)

// ready is a leader of term 6, with the fence in a version.
func ready(id string, version int32) func(*cluster.Snapshot) {
	return func(s *cluster.Snapshot) {
		fence(id, 6, cluster.FenceReady)(s)
		s.Fence.Stat.Version = version
		current(id, 1)(s)
		s.Current.Record.State = cluster.CurrentReady
	}
}

// over returns the version of the fence that an ACQUIRE replaces, and the fence that it writes.
func over(t *testing.T, actions []Action) (int32, cluster.Fence) {
	t.Helper()
	tx := sent(t, actions)
	return tx.Ops[cluster.ResultFence].Version, lastFence(t, cluster.Paths{Root: "/c"}, tx.Ops).Record
}

// The hint is enough to acquire over a leader that was READY, if it has released clean: nothing is read before that.
func TestAHintIsEnoughToAcquire(t *testing.T) {
	for read, want := range map[int32]int32{10: 16, 12: 16, 13: 24} {
		s := newScript(t)
		s.on(s.saw(ready("old", read)))
		version, f := over(t, s.on(ReleaseHint{}, "ACQUIRE"))
		if version != want || f.Term != 7 || f.Incarnation != "me" || f.State != cluster.FenceHeld || f.Owed != 0 || f.Earlier != nil || f.Wait != "" {
			t.Errorf("over version %d: %+v", version, f)
		}
		if o := s.m.Origin(); o.Node != "old" || !o.Clean {
			t.Errorf("%+v", o)
		}
		if s.m.Phase() != Acquiring {
			t.Errorf("phase %s", s.m.Phase())
		}
		s.on(ReleaseHint{}) // only one at a time
		s.on(done(TxAcquire), "Lease", "RunPreStart")
		if s.m.Term() != 7 || s.m.term.holding.Fence != 11 {
			t.Errorf("term %d, versions %+v", s.m.Term(), s.m.term.holding)
		}
	}
}

// Without a READY leader that is read, or without being elected, the hint changes nothing: the next read decides.
func TestWhenAHintIsNotEnough(t *testing.T) {
	state := func(state cluster.FenceState) func(*cluster.Snapshot) {
		return func(s *cluster.Snapshot) { s.Fence.Record.State = state }
	}
	for name, change := range map[string]func(*cluster.Snapshot){
		"another is elected": replacedBy("other", 7),
		"an older election":  replacedBy("me", 6),
		"it is HELD":         state(cluster.FenceHeld),
		"it is REVOKED":      state(cluster.FenceRevoked),
		"it is UNCLEAN":      state(cluster.FenceUnclean),
		"it is RELEASED":     state(cluster.FenceReleased),
		"it is damaged":      func(s *cluster.Snapshot) { s.Fence.Err = cluster.ErrInvalid },
		"the fence is not read": func(s *cluster.Snapshot) {
			s.Leadership = false
		},
		"current is PROGRESS":            func(s *cluster.Snapshot) { s.Current.Record.State = cluster.CurrentProgress },
		"current is another incarnation": func(s *cluster.Snapshot) { s.Current.Record.Incarnation = "old-n_2" },
		"current is damaged":             func(s *cluster.Snapshot) { s.Current.Err = cluster.ErrInvalid },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			s.on(s.saw(ready("old", 10), change))
			s.on(ReleaseHint{})
		})
	}
	t.Run("nothing is read", func(t *testing.T) { newScript(t).on(ReleaseHint{}) })
	t.Run("no hint", func(t *testing.T) {
		s := newScript(t)
		s.on(s.saw(ready("old", 10)))
		s.on(Tick{})
	})
	t.Run("it ends", func(t *testing.T) {
		s := newScript(t)
		s.on(s.saw(ready("old", 10)))
		s.on(Quit{Reason: "stop"}, "End")
		s.on(ReleaseHint{})
	})
	t.Run("an earlier hint", func(t *testing.T) { // it was about what was read then
		s := newScript(t)
		s.on(s.saw(ready("old", 10), replacedBy("other", 7)))
		s.on(ReleaseHint{})
		s.on(s.saw(ready("old", 10)))
		s.on(Tick{})
	})
}

// Only its own promise keeps a member of failsafe mode from acquiring: a clean release ends what was promised.
func TestAHintInFailsafeMode(t *testing.T) {
	bound := func(s *cluster.Snapshot) {
		s.Fence.Record.Failsafe = &cluster.Failsafe{Key: "k", Members: []cluster.FailsafeMember{{ID: "a", Incarnation: "a", Key: "key of a"}}}
	}
	s := newScript(t)
	s.on(s.saw(ready("old", 10), bound))
	if _, f := over(t, s.on(ReleaseHint{}, "ACQUIRE")); f.Failsafe != nil {
		t.Errorf("%+v", f)
	}
}

// The leader has not released clean. What is read next decides, without a pause.
func TestARefusedACQUIREOnAHintDelaysNothing(t *testing.T) {
	for name, next := range map[string]struct {
		read    func(*cluster.Snapshot)
		version int32
	}{
		"it has released late":      {fence("old", 6, cluster.FenceReleased), 10},
		"it was revoked":            {fence("old", 6, cluster.FenceRevoked), 10},
		"it has released elsewhere": {func(s *cluster.Snapshot) { fence("old", 6, cluster.FenceReleased)(s); s.Fence.Stat.Version = 16 }, 16},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			s.on(s.saw(ready("old", 10)))
			s.on(ReleaseHint{}, "ACQUIRE")
			s.on(refused(TxAcquire, 2, cluster.ErrBadVersion))
			if s.m.Phase() == Acquiring || s.m.Wake() != 0 {
				t.Errorf("phase %s, wakes after %s", s.m.Phase(), s.m.Wake()-s.now)
			}
			if version, f := over(t, s.on(s.saw(next.read), "ACQUIRE")); version != next.version || (f.Owed > 0) != (name == "it was revoked") {
				t.Errorf("over version %d: %+v", version, f)
			}
		})
	}
	t.Run("it leads on", func(t *testing.T) { // and releases later
		s := newScript(t)
		s.on(s.saw(ready("old", 10)))
		s.on(ReleaseHint{}, "ACQUIRE")
		s.on(refused(TxAcquire, 3, cluster.ErrNodeExists))
		s.on(s.saw(ready("old", 10)))
		s.on(Tick{})
		s.on(ReleaseHint{}, "ACQUIRE")
	})
	t.Run("a refused one from what was read", func(t *testing.T) {
		s := newScript(t)
		s.on(s.saw(fence("old", 6, cluster.FenceReleased)), "ACQUIRE")
		s.on(refused(TxAcquire, 2, cluster.ErrBadVersion))
		s.on(s.saw(fence("old", 6, cluster.FenceReleased))) // it would be refused again
		s.on(s.saw(ready("old", 10)))
		s.on(ReleaseHint{}, "ACQUIRE") // it replaces another version
	})
}

// An ACQUIRE of unknown outcome is read back, whatever it was made from.
func TestAnACQUIREOnAHintOfUnknownOutcome(t *testing.T) {
	at := func(version int32, changes ...func(*cluster.Snapshot)) func(*cluster.Snapshot) {
		return func(s *cluster.Snapshot) {
			for _, change := range changes {
				change(s)
			}
			s.Fence.Stat.Version = version
		}
	}
	start := func(t *testing.T) *script {
		s := newScript(t)
		s.on(s.saw(ready("old", 10)))
		s.on(ReleaseHint{}, "ACQUIRE")
		s.on(TxDone{Tx: TxAcquire, Err: cluster.ErrUnknown})
		s.after(s.b.Renew)
		return s
	}
	t.Run("it took effect", func(t *testing.T) {
		s := start(t)
		s.on(s.saw(at(17, fence("me", 7, cluster.FenceHeld), current("me", session))), "Lease", "RunPreStart")
		if s.m.term.holding.Fence != 17 {
			t.Errorf("%+v", s.m.term.holding)
		}
	})
	for version, state := range map[int32]cluster.FenceState{16: cluster.FenceReleased, 11: cluster.FenceUnclean, 12: cluster.FenceRevoked} {
		t.Run("it did not: "+string(state), func(t *testing.T) {
			s := start(t)
			s.on(s.saw(at(version, fence("old", 6, state))), "ACQUIRE")
		})
	}
	t.Run("it did not, and the old one leads on", func(t *testing.T) {
		s := start(t)
		s.on(s.saw(ready("old", 10)))
		s.on(ReleaseHint{}, "ACQUIRE")
	})
	// It may have taken effect, and the fence was written by somebody else since: the term is not acquired twice.
	for name, version := range map[string]int32{"after it": 18, "right after it": 17, "leader was deleted": 9} {
		t.Run("the fence was lost: "+name, func(t *testing.T) {
			s := start(t)
			s.on(s.saw(at(version, fence("old", 6, cluster.FenceRevoked))))
			s.on(s.saw(at(version, fence("old", 6, cluster.FenceRevoked)), replacedBy("me", 8)), "ACQUIRE")
		})
	}
}

// The version of the last write counts: the fence is written twice where its version would be that of a clean release.
func TestTheVersionOfTheLastWriteCounts(t *testing.T) {
	s := newScript(t)
	released := fence("old", 6, cluster.FenceReleased)
	tx := sent(t, s.on(s.saw(released, func(s *cluster.Snapshot) { s.Fence.Stat.Version = 7 }), "ACQUIRE"))
	if n := len(tx.Ops); n != 5 || tx.Ops[4].Version != 8 {
		t.Fatalf("%+v", tx.Ops)
	}
	reply := done(TxAcquire)
	reply.Results[cluster.ResultFence].Version = 8
	reply.Results = append(reply.Results, cluster.Result{Version: 9})
	s.on(reply, "Lease", "RunPreStart")
	if got := s.posted().Held.Fence; got != 9 {
		t.Errorf("RENEW checks version %d", got)
	}
	s.on(HookDone{}, "StartChild")
	s.on(ChildStarted{})
	s.m.term.holding.Fence = 15
	if tx := sent(t, s.on(ChildReady{}, "READY")); len(tx.Ops) != 5 {
		t.Fatalf("%+v", tx.Ops)
	}
	reply = done(TxReady)
	reply.Results = append(reply.Results, cluster.Result{Version: 17})
	s.on(reply)
	if h := s.posted().Held; h.Fence != 17 || h.Current != 1 {
		t.Errorf("RENEW checks %+v", h)
	}
}

// A reply without the result of the last write proves that it took effect, but not in which version: that is read.
func TestAReplyWithTooFewResults(t *testing.T) {
	short := func(tx Tx) TxDone { return TxDone{Tx: tx, Results: []cluster.Result{{}, {}}} }
	s := newScript(t)
	s.on(s.saw(fence("old", 6, cluster.FenceReleased)), "ACQUIRE")
	s.on(short(TxAcquire))
	s.after(s.b.Renew)
	s.on(s.saw(fence("me", 7, cluster.FenceHeld), current("me", session)), "Lease", "RunPreStart")
	s.on(HookDone{}, "StartChild")
	s.on(ChildStarted{})
	s.on(ChildReady{}, "READY")
	s.on(short(TxReady))
	s.after(s.b.Renew)
	s.on(s.saw(s.mine()...))
	if s.m.Phase() != Leading {
		t.Errorf("phase %s", s.m.Phase())
	}
	s.on(Quit{Reason: "stop"}, "StopTask")
	s.on(ChildDead{}, "RunPostStop")
	s.on(HookDone{}, "RELEASE")
	s.on(TxDone{Tx: TxRelease}, "Lease", "End") // nothing of it is needed
}
