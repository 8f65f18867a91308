package group

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store/storetest"
	"zkelectd/internal/transition"
	"zkelectd/internal/work/applease"
)

func (m *member) lease(t *testing.T, r applease.Request) applease.Answer {
	t.Helper()
	a, err := m.group.ApplicationLease(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A leader hands out leases that end with its own, tells their holders when it must stop, and releases when none is
// out. Before the first one, the guard knows that it may not write RELEASED.
func TestALeaderAwaitsItsApplications(t *testing.T) {
	server := storetest.NewServer()
	a := joinWithStop(t, server, "a", 500*time.Millisecond)
	a.until(t, "a leads", status.Daemon.Leads)
	lease := a.lease(t, applease.Request{})
	if v := a.group.View(); lease.Term != v.Term || lease.End > a.guard.last() || lease.End == 0 {
		t.Errorf("%+v, but the view is %+v", lease, v)
	}
	a.guard.mu.Lock()
	ops, err := cluster.DecodeTx(a.guard.confirmed)
	if !slices.ContainsFunc(ops, func(op cluster.Op) bool { return strings.Contains(string(op.Data), string(cluster.FenceUnclean)) }) {
		t.Errorf("if the daemon dies, the guard writes %+v, %v", ops, err)
	}
	a.guard.mu.Unlock()
	if longer := a.lease(t, applease.Request{ID: lease.ID, Wait: time.Minute}); longer.ID != lease.ID || longer.End <= lease.End || longer.End > a.guard.last() {
		t.Errorf("extended to %+v, the guard's ends at %s", longer, a.guard.last())
	}
	told := make(chan applease.Answer, 1)
	go func() { told <- a.untilStop(t, lease.ID) }()
	a.Stop("maintenance")
	if s := <-told; !s.Stop || s.End >= a.guard.last() {
		t.Errorf("told %+v, the lease ends at %s", s, a.guard.last())
	}
	a.until(t, "it waits", func(v status.Daemon) bool { return v.Phase == string(transition.Stopping) })
	if s := fence(t, server).State; s != cluster.FenceReady {
		t.Errorf("the fence is %s", s)
	}
	if !a.group.ReturnApplicationLease(lease.ID, applease.Process{}) {
		t.Error("the lease is not known")
	}
	a.reason(t)
	if s := fence(t, server).State; s != cluster.FenceReleased {
		t.Errorf("the fence is %s", s)
	}
	if a.Owed() != 0 {
		t.Errorf("a successor waits %s", a.Owed())
	}
}

// untilStop extends a lease until its holder must stop.
func (m *member) untilStop(t *testing.T, id string) applease.Answer {
	for {
		a, err := m.group.ApplicationLease(t.Context(), applease.Request{ID: id, Wait: time.Minute})
		if err != nil || a.Stop || a.ID == "" {
			return a
		}
	}
}

// A second Stop does not wait: then the fence says for how long a successor must.
func TestAHurryLeavesApplicationsToTheSuccessor(t *testing.T) {
	server := storetest.NewServer()
	a := join(t, server, "a")
	a.until(t, "a leads", status.Daemon.Leads)
	a.lease(t, applease.Request{})
	a.Stop("maintenance")
	a.Stop("maintenance")
	a.reason(t)
	if s := fence(t, server).State; s != cluster.FenceUnclean || a.Owed() != a.budget.LeaseWait {
		t.Errorf("the fence is %s, a successor waits %s", s, a.Owed())
	}
}

// The host may end an instance more than once. Neither that nor the first Stop after it is an order to hurry.
func TestTheHostsOwnEndIsNoHurry(t *testing.T) {
	server := storetest.NewServer()
	a := join(t, server, "a")
	a.until(t, "a leads", status.Daemon.Leads)
	l := a.lease(t, applease.Request{})
	a.instance.End("the session ends")
	a.instance.End("the session ends")
	a.Stop("maintenance")
	if got := a.untilStop(t, l.ID); !got.Stop {
		t.Errorf("%+v", got)
	}
	a.reason(t)
	if s := fence(t, server).State; s != cluster.FenceReleased {
		t.Errorf("the fence is %s", s)
	}
}

// A guard that does not listen any more would write RELEASED.
func TestWithoutTheGuardNothingIsHandedOut(t *testing.T) {
	server := storetest.NewServer()
	a := join(t, server, "a")
	a.guard.mu.Lock()
	a.guard.gone = errors.New("gone")
	a.guard.mu.Unlock()
	a.until(t, "a leads", status.Daemon.Leads)
	if got, err := a.group.ApplicationLease(t.Context(), applease.Request{}); err == nil {
		t.Errorf("%+v", got)
	}
	if a.Owed() != a.budget.LeaseWait {
		t.Error("if this loop is abandoned, a successor does not wait")
	}
	a.Stop("maintenance")
	a.reason(t)
	if s := fence(t, server).State; s != cluster.FenceReleased {
		t.Errorf("the fence is %s", s)
	}
	if _, err := a.group.ApplicationLease(t.Context(), applease.Request{}); err != nil {
		t.Errorf("a standby answers %v", err)
	}
	if err := a.announceApplicationLeases(context.Background(), 7); !errors.Is(err, errNoLending) {
		t.Errorf("a loop that has ended: %v", err)
	}
}
