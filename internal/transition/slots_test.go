package transition

import (
	"testing"

	"zkelectd/internal/cluster"
)

// inSlot makes the script that of slot 1 of 2, for epoch 5.
func inSlot(t *testing.T) *script {
	s := newScript(t)
	s.m.opt.Paths, s.m.opt.Epoch = s.m.opt.Paths.OfSlot(1), 5
	return s
}

// slots sets the record of slots.
func slots(epoch int64, change func(*cluster.Stored[cluster.Slots])) func(*cluster.Snapshot) {
	return func(s *cluster.Snapshot) {
		s.Slot = "1"
		s.Slots = cluster.Stored[cluster.Slots]{Exists: true, Stat: cluster.Stat{Version: 6}, Record: cluster.Slots{SlotSize: cluster.SlotSize{Count: 2, PerNode: 2}, Epoch: epoch, By: "ann"}}
		if change != nil {
			change(&s.Slots)
		}
	}
}

// A leader stops when its epoch has ended, and its release is no strike. The membership goes on until the shell ends it.
func TestALeaderStopsInAnotherEpoch(t *testing.T) {
	for name, change := range map[string]func(*cluster.Snapshot){"the next epoch": slots(6, nil), "fewer slots": slots(5, func(s *cluster.Stored[cluster.Slots]) { s.Record.Count = 1 })} {
		s := inSlot(t)
		s.on(s.saw(slots(5, nil)), "ACQUIRE")
		s.on(done(TxAcquire), "Lease", "RunPreStart")
		s.startChild()
		s.on(ChildReady{}, "READY")
		s.on(done(TxReady))
		s.on(s.saw(append(s.mine(), slots(5, nil))...))
		s.on(s.saw(append(s.mine(), change)...), "StopTask")
		s.on(ChildDead{Status: "exited"}, "RunPostStop")
		release := sent(t, s.on(HookDone{}, "RELEASE"))
		f := lastFence(t, s.m.opt.Paths, release.Ops).Record
		if f.State != cluster.FenceReleased || !f.Requested {
			t.Errorf("%s: left behind: %+v", name, f)
		}
		s.on(done(TxRelease), "Lease")
		s.on(s.saw(fence("me", 7, cluster.FenceReleased), change))
		if s.m.Phase() != Standby {
			t.Errorf("%s: phase %s", name, s.m.Phase())
		}
	}
}

// A record that cannot be read stops no work.
func TestALeaderWorksOnWithoutTheRecordOfSlots(t *testing.T) {
	s := inSlot(t)
	s.on(s.saw(slots(5, nil)), "ACQUIRE")
	s.on(done(TxAcquire), "Lease", "RunPreStart")
	s.on(s.saw(append(s.mine(), slots(5, func(s *cluster.Stored[cluster.Slots]) { s.Err, s.Record = cluster.ErrNoSlots, cluster.Slots{} }))...))
	s.on(HookDone{}, "StartChild")
}
