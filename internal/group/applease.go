package group

import (
	"context"
	"errors"

	"zkelectd/internal/transition"
	"zkelectd/internal/work/applease"
)

// errNoLending is the error of a request for an application lease that came while leadership was ending.
var errNoLending = errors.New("this daemon is about to give up leadership")

// offerLeases lets application leases be handed out while the machine permits it.
func (m *Member) offerLeases() {
	l := m.machine.Lending()
	if l.Open {
		m.group.leases.Open(applease.Offer{
			Term: l.Term, Value: l.Value, End: m.limit.end,
			Announce: func(ctx context.Context) error { return m.announceLeases(ctx, l.Term) },
		})
	}
}

// recallLeases stops that as soon as it does not, tells those who have a lease, and waits until none is out.
func (m *Member) recallLeases() {
	l := m.machine.Lending()
	m.lent.Store(l.Lent)
	if l.Open {
		return
	}
	m.group.leases.Close(l.StopBy)
	if !l.Lent || m.recalled == l.Term {
		return
	}
	m.recalled = l.Term
	if n := m.group.leases.Out(); n > 0 {
		m.group.log.Info("waiting until applications stop or their leases end", "term", l.Term, "leases", n)
	}
	m.background.spawn(func() {
		if m.group.leases.AwaitOver(m.background.ctx) == nil {
			m.report(transition.LeasesOver{Term: l.Term})
		}
	})
}

// announceLeases makes everything that may release the term know that application leases are out: this loop, what it
// has entrusted to the guard and to the session, and LEAVE. It is called in the goroutine of a request.
func (m *Member) announceLeases(ctx context.Context, term int64) error {
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
