package cluster

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// The bounds of a term (docs/protocol.md, Terms).
//
// A term is the fencing token of the work, so resources outside the group remember it. A forged term that is far too
// high must neither be given to a child nor become the base of the next term: every later term would have to be higher
// still, and the first term after a wipe would be refused permanently.
//
// The limit follows from [Stat.Time] alone, which every daemon reads together with the record. No daemon's own clock is
// involved, so all daemons agree on which records to accept. Two properties make that safe. (S1 does not depend on
// them: a rejected record counts as damaged, and then the next leader waits for every lease that may be running.)
//
//   - A group's own terms are never rejected. One that was taken from a clock is at most 128 above [MaxClock], whatever
//     that clock shows, and every other one adds 1 to an earlier one, or 65 where the records were lost. TermHeadroom
//     leaves room for more than 7,900,000,000 elections, even if the servers' clock shows 0: one per second for 250
//     years.
//   - Every later elector accepts a term that was given to a child. It was read from elected, written at t, so it is at
//     most MaxTerm(t). ACQUIRE then wrote it into the fence, at t or later. If servers' clocks differ or are set back,
//     that time could be earlier, by at most TermSlack, so the limit for the fence and current is higher by that much.
//
// There is always a next term, because the limit rises with time: a term at the limit has a successor one second later,
// and one in the slack above it after TermSlack. A limit relative to the last known term could be raised without end in
// many small steps, and would differ between daemons.
const (
	// MaxClock is the last time, in Unix seconds, that a clock can show: Linux counts nanoseconds in 63 bits, until the
	// year 2262.
	MaxClock = math.MaxInt64 / int64(time.Second)
	// TermHeadroom is how far above the servers' time, in Unix seconds, a term may be.
	TermHeadroom = 1 << 34
	// TermSlack is how much higher a term may be in a record that only repeats what elected has said.
	TermSlack = 60
)

// clock returns a time in Unix seconds, limited to what a clock can show.
func clock(t time.Time) int64 { return min(max(0, t.Unix()), MaxClock) }

// MaxTerm returns the highest term that is accepted in a decision written at that time by the servers' clock.
func MaxTerm(written time.Time) int64 { return clock(written) + TermHeadroom }

// FirstTerm returns the first term of a group without a known one: Unix seconds, so that fencing tokens keep growing
// even after an ensemble was wiped. It is at least 2, because the fence before it may have the term 1, of no leader. No
// later term is lower either: terms that were lost, as by restoring a backup, are hardly ever ahead of the clock.
func FirstTerm(wall time.Time) int64 { return max(2, clock(wall)) }

// LastTerm returns the last term that a member knew when it registered. One above the limit for the time of the record
// is an error: no group reaches it.
func LastTerm(node Stored[Node]) (int64, error) {
	t := node.Record.LastTerm
	if err := checkTerm(t, node.Stat, 0); err != nil {
		return 0, fmt.Errorf("last_term: %w", err)
	}
	return t, nil
}

// checkTerm returns an error if a term is above the limit for the time at which its record was written, plus slack.
func checkTerm(t int64, stat Stat, slack int64) error {
	if limit := MaxTerm(stat.Time) + slack; t < 0 || t > limit {
		return fmt.Errorf("term %d is not between 0 and %d, the limit for the time of the record", t, limit)
	}
	return nil
}

// maxStrikes bounds the strikes of an exclusion, so that doubling its duration cannot overflow.
const maxStrikes = 1 << 30

func (e *Elected) validate(stat Stat) error {
	errs := []error{checkTerm(e.Term, stat, 0), checkRequest(e.Request, 0), e.Leaderless.validate("leaderless")}
	for _, x := range e.Exclusions {
		if x.Strikes < 0 || x.Strikes > maxStrikes || time.Duration(x.For) > MaxRequestTime {
			errs = append(errs, fmt.Errorf("invalid exclusion of %q: %d strikes, %s", x.Node, x.Strikes, x.For))
			break
		}
	}
	return errors.Join(errs...)
}

func (c *Current) validate(stat Stat) error { return checkTerm(c.Term, stat, TermSlack) }

func (f *Fence) validate(stat Stat) error {
	return errors.Join(checkTerm(f.Term, stat, TermSlack), checkWait("owed", f.Owed), checkWait("lease_wait", f.LeaseWait),
		checkWait("kill", f.Kill), checkWait("revoke_timeout", f.RevokeTimeout), checkWait("takeover", f.Takeover),
		f.Failsafe.validate(), f.validateFencing(), f.Idle.validate("idle"))
}
