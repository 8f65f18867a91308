package cluster

import (
	"fmt"
	"time"
)

// Reset is how a watchdog device, which resets the host unless it is petted in time, fits a budget. The host is reset
// within K of the end of a lease, as if the reset were a kill: what successors wait for stays the same.
type Reset struct {
	// Timeout is the device's timeout.
	Timeout time.Duration
	// Within is how long after the end of the lease the host is reset at the latest.
	Within time.Duration
	// Interval is the time between two pets.
	Interval time.Duration
}

// ResetMargin is how much later than after its timeout a device may have reset the host: for timers that count
// coarsely, and for the reset itself.
const ResetMargin = 500 * time.Millisecond

// NewReset computes how a device fits, with a timeout of 0 for the longest in whole seconds. The error has the figures.
func (b Budget) NewReset(timeout time.Duration) (Reset, error) {
	within := b.Kill - ResetMargin
	if within < MinKill {
		return Reset{}, fmt.Errorf("the kill margin of %s after the lease of %s is too short for a watchdog device: "+
			"without the %s that a reset may be late, "+
			"%s are left for a kill, which may take %s; %s",
			b.Kill.Round(time.Millisecond), b.Lease, ResetMargin, max(0, within).Round(time.Millisecond), MinKill,
			raiseLease((MinKill+ResetMargin)*3))
	}
	// The last pet must be possible so long before the end of a lease that a lease that is being renewed is always longer.
	longest := b.Lease*2/3 + within
	if timeout == 0 {
		if timeout = longest.Truncate(time.Second); timeout == 0 {
			timeout = time.Second
		}
	}
	if timeout > longest {
		// longest is 2/3 D + 1/3 D - ResetMargin.
		return Reset{}, fmt.Errorf("a watchdog device with a timeout of %s does not fit the lease of %s: the host "+
			"must be reset %s after its end (kill margin %s less %s that a reset may be late), "+
			"and two thirds of a lease plus that are %s; use another device, or %s",
			timeout, b.Lease, within, b.Kill, ResetMargin, longest, raiseLease(timeout+ResetMargin))
	}
	return Reset{Timeout: timeout, Within: within, Interval: min(timeout/3, within/2)}, nil
}

// raiseLease says how to get a lease that is long enough.
func raiseLease(lease time.Duration) string {
	return fmt.Sprintf("raise zookeeper.session_timeout to %s on all hosts, and election.lease, if it is set, to %s",
		sessionFor(lease), roundUp(lease))
}

// roundUp returns d with at most one digit after the seconds, not less than d.
func roundUp(d time.Duration) time.Duration {
	return (d + 100*time.Millisecond - 1).Truncate(100 * time.Millisecond)
}
