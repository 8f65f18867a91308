package group

import (
	"context"
	"errors"
	"sync"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/transition"
	"zkelectd/internal/work/applease"
)

// leaseLimit sends all lease deadlines of a session to the guard. Once a lease has been cut, no later deadline extends
// it, because that deadline was computed from the longer session timeout.
type leaseLimit struct {
	send func(deadline time.Duration)

	mu   sync.Mutex
	last time.Duration // the last deadline that was sent
	cut  time.Duration // 0 for no bound
}

// set sends a deadline; 0 once all work is dead.
func (l *leaseLimit) set(deadline time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if deadline != 0 {
		deadline = cluster.Earliest(deadline, l.cut)
	}
	l.last = deadline
	l.send(deadline)
}

// end returns the last deadline that was sent.
func (l *leaseLimit) end() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// shorten resends the current lease with the earlier deadline if it ends later, and limits all later leases.
func (l *leaseLimit) shorten(deadline time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cluster.Earliest(l.cut, deadline)
	if l.last > l.cut {
		l.last = l.cut
		l.send(l.cut)
	}
}

// CutLease shortens the lease to deadline at once, without waiting for the loop, then ends leadership and membership in
// order. It is called if a server has granted a shorter session timeout than the one that the lease is based on. It is
// safe for concurrent use, and never blocks for long.
func (m *Member) CutLease(deadline time.Duration, reason string) {
	m.limit.shorten(deadline)
	m.inbox.post(func() { m.step(transition.LeaseCut{Deadline: deadline, Reason: reason}) })
}

// renew posts a RENEW to the session, which merges it with those of other groups, or withdraws it.
func (m *Member) renew(a transition.Renew) {
	if len(a.Ops) == 0 {
		m.session.WithdrawRenewal()
		return
	}
	m.session.Renew(a, func(done transition.RenewDone) {
		took := boottime.Now() - done.Sent
		m.inbox.post(func() { m.renewed(done, took) })
	})
}

// renewed handles the result of a RENEW. The machine ignores that of an earlier request.
func (m *Member) renewed(done transition.RenewDone, took time.Duration) {
	m.observeWrite(took, done.Err)
	if cluster.IsRefusal(done.Err) && !m.refused {
		m.refused = true
		m.group.log.Error("ZooKeeper refuses to renew the leases of this host: the work ends with its lease", "err", done.Err,
			"advice", "check the ACL and the quota of the znode that the error names")
	}
	if done.Err != nil && m.opt.Failsafe != nil {
		m.opt.Failsafe.Agent.Suspect()
	}
	m.step(done)
}

// errNoLending is the error of a request for an application lease that came while leadership was ending.
var errNoLending = errors.New("this daemon is about to give up leadership")

// offerApplicationLeases lets application leases be handed out while the machine permits it.
func (m *Member) offerApplicationLeases() {
	l := m.machine.Lending()
	if l.Open {
		m.group.applicationLeases.Open(applease.Offer{
			Term: l.Term, Value: l.Value, End: m.limit.end,
			Announce: func(ctx context.Context) error { return m.announceApplicationLeases(ctx, l.Term) },
		})
	}
}

// recallApplicationLeases stops that as soon as it does not, tells those who have a lease, and waits until none is out.
func (m *Member) recallApplicationLeases() {
	l := m.machine.Lending()
	m.lent.Store(l.Lent)
	if l.Open {
		return
	}
	m.group.applicationLeases.Close(l.StopBy)
	if !l.Lent || m.recalled == l.Term {
		return
	}
	m.recalled = l.Term
	if n := m.group.applicationLeases.Out(); n > 0 {
		m.group.log.Info("waiting until applications stop or their leases end", "term", l.Term, "leases", n)
	}
	m.background.spawn(func() {
		if m.group.applicationLeases.AwaitOver(m.background.ctx) == nil {
			m.report(transition.ApplicationLeasesOver{Term: l.Term})
		}
	})
}

// announceApplicationLeases makes everything that may release the term know that application leases are out: this loop,
// what it has entrusted to the guard and to the session, and LEAVE. It is called in the goroutine of a request.
func (m *Member) announceApplicationLeases(ctx context.Context, term int64) error {
	lent := make(chan bool, 1)
	m.background.runInLoop(func() {
		m.step(transition.Lent{Term: term})
		l := m.machine.Lending()
		lent <- l.Term == term && l.Lent && l.Open
	})
	select {
	case ok := <-lent:
		if !ok {
			return errNoLending
		}
		return m.guard.Confirm(ctx)
	case <-m.background.ctx.Done():
		return errNoLending
	case <-ctx.Done():
		return ctx.Err()
	}
}
