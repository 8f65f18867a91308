package cluster

import (
	"fmt"
	"time"
)

// Drift is r, the bound on how much the clock rates of two hosts differ (docs/protocol.md, Clocks).
const Drift = 0.01

// MinKill is the minimum of K. A kill takes time however short the session timeout is: on two cores at load 8 the last
// process died up to 193 ms after the end of the lease.
const MinKill = 300 * time.Millisecond

// Budget holds the durations that follow from a session timeout (docs/protocol.md, Leading, and the lease).
type Budget struct {
	// Session is T, as negotiated.
	Session time.Duration
	// Lease is D: how long the lease lasts from when a successful ACQUIRE or RENEW was sent.
	Lease time.Duration
	// Kill is K: the longest time that a kill may take.
	Kill time.Duration
	// LeaseWait is W: by when every lease granted before is over, on any host's clock.
	LeaseWait time.Duration
	// Renew is the interval at which RENEW is sent.
	Renew time.Duration
	// Grace is how long before the end of a lease that cannot be renewed the child is asked to stop.
	Grace time.Duration
	// Stop is the child's stop timeout.
	Stop time.Duration
	// Handover is how long a leader that is about to leave lets its work go on until its successor is elected. It is part of Stop, so
	// leaving takes no longer than without it. A leader without work has no Stop; it waits for nothing else.
	Handover time.Duration
	// Failover is the worst case from the loss of the leader's host to the election of the next, which may have to wait for
	// LeaseWait.
	Failover time.Duration
}

// Lease returns D for a session timeout.
func Lease(session time.Duration) time.Duration { return session * 45 / 100 }

// KillMargin returns K for a session timeout.
func KillMargin(session time.Duration) time.Duration { return max(session*15/100, MinKill) }

// tick returns the longest tick that a server granting this session timeout can have: it grants at least two ticks, and
// clients cannot see the tick.
func tick(session time.Duration) time.Duration { return session / 2 }

// expiry returns the earliest moment at which a server may end a session, counted from when a request that it has processed
// was sent.
func expiry(session time.Duration) time.Duration {
	return session - tick(session)*3/4 - time.Duration(float64(session)*Drift)
}

// SafeLease returns how long work may go on after the sending of a request that made the server apply this session timeout:
// D, or less if D and K do not fit, down to 0 (docs/protocol.md, The timeout can change).
func SafeLease(session time.Duration) time.Duration {
	return max(0, min(Lease(session), expiry(session)-KillMargin(session)))
}

// longestStop returns the longest stop timeout that the lease of a session timeout allows: with it, a RENEW is sent every D/6,
// and what is left of the lease when a decision to replace the leader arrives just before a renewal is 5/6 D.
func longestStop(session time.Duration) time.Duration {
	lease := Lease(session)
	return lease - lease/6
}

// maxDefaultStop bounds [DefaultStop].
const maxDefaultStop = 10 * time.Second

// DefaultStop returns the stop timeout to use for a session timeout if none is configured: as long as the lease allows, but
// at most 10 s.
func DefaultStop(session time.Duration) time.Duration {
	return min(longestStop(session).Truncate(10*time.Millisecond), maxDefaultStop)
}

// maxHandover bounds [Budget.Handover].
const maxHandover = 300 * time.Millisecond

// handover returns [Budget.Handover] for a stop timeout, which is 0 if there is no work.
func handover(stop time.Duration) time.Duration {
	if stop == 0 {
		return maxHandover
	}
	return min(maxHandover, stop/4)
}

// NewBudget computes the budget. It returns an error with the figures if they would not be safe (S1): among other things the
// child must be able to stop in what is left of the lease when a decision to replace it arrives just before a renewal.
func NewBudget(session, stop time.Duration) (Budget, error) {
	b := Budget{Lease: Lease(session), Kill: KillMargin(session), Stop: stop, Handover: handover(stop)}.Granted(session)
	b.Grace = min(stop, b.Lease/2)
	b.Renew = min(b.Lease/3, (b.Lease-b.Grace)/3)
	b.LeaseWait = time.Duration(float64(b.Lease+b.Kill) * (1 + Drift) / (1 - Drift))
	if limit := expiry(session); b.Lease+b.Kill > limit {
		return Budget{}, fmt.Errorf("a session timeout of %s is too short: the lease of %s and the %s that a kill may take exceed %s, "+
			"the earliest at which the server may end such a session; raise zookeeper.session_timeout (and the server's maxSessionTimeout) to %s",
			session, b.Lease, b.Kill, limit, minSession)
	}
	if stop > b.Lease-b.Renew {
		// The session timeout for which longestStop returns stop.
		need := time.Duration(float64(stop) * 6 / 5 / 0.45).Round(100 * time.Millisecond)
		return Budget{}, fmt.Errorf("child.stop_timeout %s does not fit the lease of %s that a session timeout of %s allows: "+
			"shorten it to at most %s, or raise zookeeper.session_timeout (and the server's maxSessionTimeout) to %s",
			stop, b.Lease, session, longestStop(session).Truncate(10*time.Millisecond), need+100*time.Millisecond)
	}
	return b, nil
}

// minSession is what the error advises if the session timeout is too short: from there on K is 15% of it.
const minSession = MinKill * 100 / 15

// Granted returns the budget for a session whose granted timeout is longer than the one that the budget is based on.
func (b Budget) Granted(session time.Duration) Budget {
	b.Session = session
	// The server notices the expiry within a tick after T.
	b.Failover = session + tick(session)
	return b
}

// RevokeTimeout is how long an elector lets a replaced holder with this budget keep current (L2).
func (b Budget) RevokeTimeout() time.Duration { return b.Stop + b.Lease + b.Kill }

// Text describes the budget for people.
func (b Budget) Text() string {
	round := func(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }
	stop := ""
	if b.Stop > 0 {
		stop = fmt.Sprintf("stop timeout %s, ", b.Stop)
	}
	return fmt.Sprintf("session timeout %s (negotiated), lease %s renewed every %s, %skill margin %s, lease wait %s",
		b.Session, round(b.Lease), round(b.Renew), stop, round(b.Kill), round(b.LeaseWait))
}

// Earliest returns the first of some times at which to act, where 0 means never.
func Earliest(times ...time.Duration) time.Duration {
	var first time.Duration
	for _, at := range times {
		if at != 0 && (first == 0 || at < first) {
			first = at
		}
	}
	return first
}
