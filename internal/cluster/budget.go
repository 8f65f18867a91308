package cluster

import (
	"fmt"
	"time"
)

// Drift is r: the bound on how much the clock rates of two hosts differ (docs/protocol.md, Clocks).
const Drift = 0.01

// Budget holds the figures that follow from a negotiated session timeout (docs/protocol.md, Leading and the lease).
type Budget struct {
	// Session is T, as negotiated.
	Session time.Duration
	// Lease is D: how long leadership lasts from when a successful ACQUIRE or RENEW was sent.
	Lease time.Duration
	// Kill is K: the time in which a kill is certain to be over.
	Kill time.Duration
	// WaitOut is W: by when every lease granted before is over, on any host's clock.
	WaitOut time.Duration
	// Renew is the time between two RENEW.
	Renew time.Duration
	// Grace is how long before the lease's end the child is asked to stop when it can't be renewed.
	Grace time.Duration
	// Stop is the child's stop timeout.
	Stop time.Duration
	// Failover is the worst case from the loss of the leader's host to the election of the next.
	Failover time.Duration
}

// Lease is D, as it follows from a session timeout.
func Lease(session time.Duration) time.Duration { return session * 45 / 100 }

// NewBudget computes the figures, or says in figures why they can't hold (S1): the child must be able to stop within
// the lease that is left when the decision to replace it arrives just before a renewal.
func NewBudget(session, stop time.Duration) (Budget, error) {
	tick := session / 2 // a client can't see the tick; the server clamps T to at least two
	b := Budget{
		Session: session,
		Lease:   Lease(session),
		Kill:    session * 15 / 100,
		Stop:    stop,
		// The server notices within a tick after T.
		Failover: session + tick,
	}
	b.Grace = min(stop, b.Lease/2)
	b.Renew = min(b.Lease/3, (b.Lease-b.Grace)/3)
	b.WaitOut = time.Duration(float64(b.Lease+b.Kill) * (1 + Drift) / (1 - Drift))
	expiry := session - tick*3/4 - time.Duration(float64(session)*Drift)
	if b.Lease+b.Kill > expiry {
		return Budget{}, fmt.Errorf("lease %s + kill %s exceed %s, the earliest at which the server may end a session of %s",
			b.Lease, b.Kill, expiry, session)
	}
	if stop > b.Lease-b.Renew {
		// For stop above D/2 the renewal comes every D/6, so 5/6 D must cover it.
		need := time.Duration(float64(stop) * 6 / 5 / 0.45).Round(100 * time.Millisecond)
		return Budget{}, fmt.Errorf("child.stop_timeout %s does not fit the lease of %s that a session timeout of %s allows: "+
			"shorten it to at most %s, or raise zookeeper.session_timeout (and the server's maxSessionTimeout) to %s",
			stop, b.Lease, session, (b.Lease - b.Lease/6).Truncate(10*time.Millisecond), need+100*time.Millisecond)
	}
	return b, nil
}

// Patience is how long an elector lets a replaced holder with this budget keep current (L2).
func (b Budget) Patience() time.Duration { return b.Stop + b.Lease + b.Kill }

func (b Budget) String() string {
	round := func(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }
	return fmt.Sprintf("session timeout %s (negotiated), lease %s renewed every %s, kill margin %s, "+
		"worst-case failover of a lost host %s plus the takeover", b.Session, round(b.Lease), round(b.Renew), round(b.Kill), round(b.Failover))
}

// Earlier is the earlier of two times at which to look again, 0 standing for never.
func Earlier(a, b time.Duration) time.Duration {
	if a == 0 || (b != 0 && b < a) {
		return b
	}
	return a
}
