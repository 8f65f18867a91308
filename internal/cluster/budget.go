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

// MinLease is the minimum of a lease that is configured: K is a third of a lease, and not less than MinKill.
const MinLease = 3 * MinKill

// Budget holds the durations that follow from a session timeout and a lease (docs/protocol.md, Leading, and the lease).
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
	// Handover is how long a leader that is about to leave lets its work go on until its successor is elected. It is
	// part of Stop, so leaving takes no longer than without it. A leader without work has no Stop; it waits for nothing
	// else.
	Handover time.Duration
}

// Lease returns the longest D for a session timeout, which is the default.
func Lease(session time.Duration) time.Duration { return session * 45 / 100 }

// leaseOf returns D for a session timeout and a configured lease, 0 for the longest.
func leaseOf(session, lease time.Duration) time.Duration { return Earliest(Lease(session), lease) }

// killMargin returns K for D.
func killMargin(lease time.Duration) time.Duration { return max(lease/3, MinKill) }

// KillMargin returns the longest K of all leases for a session timeout.
func KillMargin(session time.Duration) time.Duration { return killMargin(Lease(session)) }

// tick returns the longest tick that a server granting this session timeout can have: it grants at least two ticks, and
// clients cannot see the tick.
func tick(session time.Duration) time.Duration { return session / 2 }

// expiry returns the earliest moment at which a server may end a session, counted from when a request that it has
// processed was sent.
func expiry(session time.Duration) time.Duration {
	return session - tick(session)*3/4 - time.Duration(float64(session)*Drift)
}

// SafeLease returns how long work may go on after the sending of a request that made the server apply this session
// timeout: D, or less if D and K do not fit, down to 0 (docs/protocol.md, The timeout can change). lease is as in
// [NewBudget].
func SafeLease(session, lease time.Duration) time.Duration {
	d := leaseOf(session, lease)
	return max(0, min(d, expiry(session)-killMargin(d)))
}

// longestStop returns the longest stop timeout that a lease allows: with it, a RENEW is sent every D/6, and what is
// left of the lease when a decision to replace the leader arrives just before a renewal is 5/6 D.
func longestStop(lease time.Duration) time.Duration { return lease - lease/6 }

// maxDefaultStop bounds [DefaultStop].
const maxDefaultStop = 10 * time.Second

// DefaultStop returns the stop timeout to use if none is configured: as long as the lease allows, but at most 10 s.
// lease is as in [NewBudget].
func DefaultStop(session, lease time.Duration) time.Duration {
	return min(longestStop(leaseOf(session, lease)).Truncate(10*time.Millisecond), maxDefaultStop)
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

// NewBudget computes the budget for a session timeout, a configured lease, 0 for the longest, and a stop timeout. It
// returns an error with the figures if they would not be safe (S1): among other things the child must be able to stop
// in what is left of the lease when a decision to replace it arrives just before a renewal.
func NewBudget(session, lease, stop time.Duration) (Budget, error) {
	if err := CheckLease(session, lease); err != nil {
		return Budget{}, fmt.Errorf("election.lease: %w", err)
	}
	b := Budget{Session: session, Lease: leaseOf(session, lease), Stop: stop, Handover: handover(stop)}
	b.Kill = killMargin(b.Lease)
	b.Grace = min(stop, b.Lease/2)
	b.Renew = min(b.Lease/3, (b.Lease-b.Grace)/3)
	b.LeaseWait = OnAnyClock(b.Lease + b.Kill)
	if limit := expiry(session); b.Lease+b.Kill > limit {
		return Budget{}, fmt.Errorf("a session timeout of %s is too short: the lease of %s and the %s that a kill "+
			"may take exceed %s, "+
			"the earliest at which the server may end such a session; raise zookeeper.session_timeout (and the "+
			"server's maxSessionTimeout) to %s",
			session, b.Lease, b.Kill, limit, minSession)
	}
	if stop > b.Lease-b.Renew {
		return Budget{}, b.stopError(lease != 0)
	}
	return b, nil
}

// CheckLease returns an error unless a session timeout allows a configured lease: D and K together must not exceed 60%
// of it. 0 is the longest that it allows.
func CheckLease(session, lease time.Duration) error {
	switch {
	case lease == 0:
		return nil
	case lease < MinLease:
		return fmt.Errorf("%s is too short: it must be 0s or %s and more, since a kill may take %s", lease, MinLease, MinKill)
	case lease > Lease(session):
		return fmt.Errorf("%s is too long for a session timeout of %s, which allows %s: shorten it, or raise "+
			"zookeeper.session_timeout "+
			"(and the server's maxSessionTimeout) to %s", lease, session, Lease(session), sessionFor(lease))
	}
	return nil
}

// sessionFor returns a session timeout that allows a lease.
func sessionFor(lease time.Duration) time.Duration { return roundUp(lease * 20 / 9) }

// stopError says that the lease does not allow the stop timeout, and what to do. configured is set unless the lease is
// the longest that the session timeout allows.
func (b Budget) stopError(configured bool) error {
	need := roundUp(b.Stop * 6 / 5) // longestStop returns Stop for that
	longest := longestStop(b.Lease).Truncate(10 * time.Millisecond)
	if configured {
		also := ""
		if need > Lease(b.Session) {
			also = fmt.Sprintf(" and zookeeper.session_timeout (and the server's maxSessionTimeout) to %s", sessionFor(need))
		}
		return fmt.Errorf("child.stop_timeout %s does not fit the lease of %s: shorten it to at most %s, or raise "+
			"election.lease to %s%s",
			b.Stop, b.Lease, longest, need, also)
	}
	return fmt.Errorf("child.stop_timeout %s does not fit the lease of %s that a session timeout of %s allows: "+
		"shorten it to at most %s, or raise zookeeper.session_timeout (and the server's maxSessionTimeout) to %s",
		b.Stop, b.Lease, b.Session, longest, sessionFor(need))
}

// minSession is what the error advises if the session timeout is too short: from there on K is 15% of it.
const minSession = MinKill * 100 / 15

// Granted returns the budget for a session whose granted timeout is longer than the one that the budget is based on.
func (b Budget) Granted(session time.Duration) Budget {
	b.Session = session
	return b
}

// SessionEnd is how long after the loss of a host its session has ended at the latest: a server notices that within a
// tick after T.
func (b Budget) SessionEnd() time.Duration { return b.Session + tick(b.Session) }

// RevokeTimeout is how long an elector lets a replaced holder with this budget keep current (L2).
func (b Budget) RevokeTimeout() time.Duration { return b.Stop + b.Lease + b.Kill }

// Patience returns how long a candidate has until it acquires, if nothing stands in its way (docs/protocol.md, The
// watchdog).
func (b Budget) Patience() time.Duration { return max(b.Lease/3, MinKill) }

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
