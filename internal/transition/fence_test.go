package transition

import (
	"testing"

	"zkelectd/internal/cluster"
)

// A holder that finds a fence of a newer version stops its work, and ends its session instead of overwriting it.
func TestReleaseDoesNotOverwriteAFenceOfANewerVersion(t *testing.T) {
	newer := func(s *cluster.Snapshot) {
		s.Fence = cluster.ReadFence("/c/leader", []byte(`{"v":3}`), cluster.Stat{Version: 12}, true)
	}
	s := newScript(t)
	s.lead()
	s.on(s.saw(newer, current("me", session), replacedBy("other", 8)), "StopTask")
	s.on(ChildDead{}, "RunPostStop")
	s.on(HookDone{}, "End", "Lease")
	if s.m.Phase() != Ended {
		t.Errorf("phase %s", s.m.Phase())
	}
	// Not while a transaction is in flight.
	s = newScript(t)
	s.lead()
	s.on(s.leading(replacedBy("other", 8)), "StopTask")
	s.endWork()
	s.after(1)
	s.on(s.saw(newer, current("me", session), replacedBy("other", 8)))
	s.on(TxDone{Tx: TxRelease, Err: cluster.ErrNotSent})
	s.after(1)
	s.on(s.saw(newer, current("me", session), replacedBy("other", 8)), "End", "Lease")

	s = newScript(t)
	s.on(s.saw(newer)) // elected, but does not acquire
	if s.m.Phase() != Waiting {
		t.Errorf("phase %s", s.m.Phase())
	}
}

// A candidate that is elected before the fence is rewritten does not know how long to wait.
func TestNoAcquireOverAnUnreadableFence(t *testing.T) {
	for name, slot := range map[string]cluster.Stored[cluster.Fence]{
		"deleted": {}, "never written": cluster.ReadFence("/c/leader", nil, cluster.Stat{}, true),
		"emptied": cluster.ReadFence("/c/leader", nil, cluster.Stat{Version: 3}, true),
		"damaged": cluster.ReadFence("/c/leader", []byte("x"), cluster.Stat{Version: 3}, true),
		"absurd":  cluster.ReadFence("/c/leader", []byte(`{"v":1,"lease_wait":"2562047h"}`), cluster.Stat{Version: 3}, true),
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			s.on(s.saw(func(snap *cluster.Snapshot) { snap.Fence = slot }))
		})
	}
}
