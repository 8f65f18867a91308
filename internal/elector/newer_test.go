package elector

import (
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// A record of a newer version is not damaged: nothing is written while it exists.
func TestARecordOfANewerVersionIsLeftAlone(t *testing.T) {
	newer := &cluster.NewerVersionError{Path: "/c/leader", Version: 2}
	for name, put := range map[string]func(s *cluster.Snapshot){
		"elected": func(s *cluster.Snapshot) { s.Elected = cluster.Stored[cluster.Elected]{Exists: true, Err: newer} },
		"fence":   func(s *cluster.Snapshot) { s.Fence = cluster.Stored[cluster.Fence]{Exists: true, Err: newer} },
		"current": func(s *cluster.Snapshot) { s.Current = cluster.Stored[cluster.Current]{Exists: true, Err: newer} },
		"fence, elected deleted": func(s *cluster.Snapshot) {
			s.Elected, s.Fence = cluster.Stored[cluster.Elected]{}, cluster.Stored[cluster.Fence]{Exists: true, Err: newer}
		},
	} {
		in := newGroup("b", "c").leads("a", 7).input(t) // a is gone
		in.Revoke, in.Overdue = "too slow", "too slow"
		put(&in.Snapshot)
		d := newElector().Decide(in)
		if d.Elect != nil || d.Revoke != nil || d.Fence != nil || !strings.Contains(d.Newer, "upgrade this host") {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

// Under an unreadable policy there are no preemptions, but a leader that is gone is replaced.
func TestADamagedPolicyDoesNotPreempt(t *testing.T) {
	g := newGroup("a", "b").leads("b", 7)
	g.Policy = cluster.ReadStored[cluster.Policy]("/c/policy", []byte("garbage"), cluster.Stat{}, true)
	if d := newElector().Decide(g.input(t)); d.Elect != nil || !strings.Contains(d.Blocked.Reason, "zkelectd repair policy") {
		t.Errorf("%+v", d)
	}
	g = newGroup("a", "c").leads("b", 7)
	g.Policy = cluster.Stored[cluster.Policy]{Exists: true, Err: &cluster.NewerVersionError{Path: "/c/policy", Version: 2}}
	if d := newElector().Decide(g.input(t)); d.Elect == nil || d.Elect.Node != "a" {
		t.Errorf("%+v", d)
	}
}

// A daemon remembers across its sessions what the records no longer hold.
func TestTheMemoryOutlivesTheElector(t *testing.T) {
	memory := new(cluster.LastKnown)
	first := New(Options{LastKnown: memory})
	g := newGroup("a", "b").leads("a", 70)
	g.Fence.Record.LeaseWait = cluster.Duration(9 * time.Second)
	first.Decide(g.input(t))
	second := New(Options{LastKnown: memory})
	d := second.Decide(newGroup("b").input(t)) // everything is deleted
	if d.Elect == nil || d.Elect.Term != wall.Unix()+71%64+64 || d.Elect.Cause != cluster.CauseRepair {
		t.Fatalf("%+v", d.Elect)
	}
	if f := d.Fence; f == nil || f.State != cluster.FenceRevoked || f.Term != wall.Unix()+70%64+64 || f.LeaseWait != cluster.Duration(9*time.Second) || f.Node != "a" {
		t.Errorf("%+v", f)
	}
}

// The members' session timeouts bound the leases that may still be running.
func TestANewFenceOwesTheLongestLeaseOfAnyMember(t *testing.T) {
	g := newGroup("a", "b")
	g.node("b").SessionTimeout = cluster.Duration(30 * time.Second)
	g.Fence = cluster.ReadFence("/c/leader", nil, cluster.Stat{}, true)
	d := newElector().Decide(g.input(t))
	if d.Elect == nil || d.Elect.Cause != cluster.CauseFirst || d.Fence == nil || d.Fence.State != cluster.FenceRevoked ||
		time.Duration(d.Fence.LeaseWait) != cluster.LeaseWait(30*time.Second) {
		t.Errorf("%+v over %+v", d.Elect, d.Fence)
	}
}

// No candidate acquires over an unreadable fence, so every election must rewrite it.
func TestAnUnreadableFenceIsRepaired(t *testing.T) {
	for name, fence := range map[string]cluster.Stored[cluster.Fence]{
		"deleted": {}, "never written": cluster.ReadFence("/c/leader", nil, cluster.Stat{}, true),
		"damaged": cluster.ReadFence("/c/leader", []byte("x"), cluster.Stat{Version: 3}, true),
	} {
		g := newGroup("a", "b").elected("a", 7)
		g.Fence = fence
		d := newElector().Decide(g.input(t))
		if d.Elect == nil || d.Elect.Cause != cluster.CauseRepair || d.Elect.Term != wall.Unix()+8 || d.Fence == nil || d.Fence.State != cluster.FenceRevoked || d.Fence.Term != wall.Unix()+7 {
			t.Errorf("%s: %+v over %+v", name, d.Elect, d.Fence)
		}
	}
}
