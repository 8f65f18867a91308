package cluster

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// A term is the fencing token of the work, so resources outside the group remember it. A forged term that is far too high
// must therefore neither be handed to a child nor become the base of the next term: everything after it would have to be
// higher still, and the first term after a wipe would be refused for ever.
//
// What is too high follows from [Stat.Time] alone, which all daemons read alike with the record. No daemon's own clock takes
// part, so all daemons agree on whether a record is believed. Two things make that safe (S1 does not depend on it: a record
// that is refused counts as damaged, and then the next leader waits for every lease that may run):
//
//   - A group's own terms are never refused. The first one is at most [MaxClock], whatever the clock shows that it was taken
//     from, and each further one adds 1. TermHeadroom leaves room for more than 7,900,000,000 elections on top, even if the
//     servers' clock stands at 0: one a second for 250 years.
//   - A term that was handed out is believed by all later electors. It was read in elected, written at t, so it is at most
//     MaxTerm(t). ACQUIRE has put it into the fence since, at t or later. Servers whose clocks differ, or are set back,
//     could make that earlier by up to TermSlack, which is why the fence and current are believed for so much more.
//
// So that there is always a next term, the limit rises with time: a term at the very limit has a successor one second later,
// and one in the slack above it once TermSlack is over. A limit that were relative to the last known term instead
// could be raised without end by many small steps, and would differ between daemons.
const (
	// MaxClock is the last time, in Unix seconds, that a clock can show: Linux counts nanoseconds in 63 bits (the year 2262).
	MaxClock = math.MaxInt64 / int64(time.Second)
	// TermHeadroom is how far above the servers' time, in Unix seconds, a term may be.
	TermHeadroom = 1 << 34
	// TermSlack is how much more a term may be in a record that only says what was handed out.
	TermSlack = 60
)

// clock returns a time in Unix seconds, within what a clock can show.
func clock(t time.Time) int64 { return min(max(0, t.Unix()), MaxClock) }

// MaxTerm returns the highest term that is believed of a decision that was written at a time of the servers' clock.
func MaxTerm(written time.Time) int64 { return clock(written) + TermHeadroom }

// FirstTerm returns the term of a group of which none is known: Unix seconds, so that fencing tokens keep growing even after
// an ensemble has been wiped. 1 is the term of nobody.
func FirstTerm(wall time.Time) int64 { return max(2, clock(wall)) }

// believeTerm checks a term against the time at which the record was written, with slack beyond it.
func believeTerm(t int64, stat Stat, slack int64) error {
	if limit := MaxTerm(stat.Time) + slack; t < 0 || t > limit {
		return fmt.Errorf("term %d, which no group gets to: terms begin at Unix seconds and grow by one, so they stay below %d here", t, limit+1)
	}
	return nil
}

// maxStrikes bounds an exclusion, so that doubling it can't overflow.
const maxStrikes = 1 << 30

func (e *Elected) plausible(stat Stat) error {
	errs := []error{believeTerm(e.Term, stat, 0), plausibleOrder(e.Order, 0)}
	for _, x := range e.Exclusions {
		if x.Strikes < 0 || x.Strikes > maxStrikes || time.Duration(x.For) > MaxOrderTime {
			errs = append(errs, fmt.Errorf("%d strikes against %q that exclude it for %s, which no elector writes", x.Strikes, x.Node, x.For))
			break
		}
	}
	return errors.Join(errs...)
}

func (c *Current) plausible(stat Stat) error { return believeTerm(c.Term, stat, TermSlack) }

func (f *Fence) plausible(stat Stat) error {
	return errors.Join(believeTerm(f.Term, stat, TermSlack), plausibleWait("owed", f.Owed), plausibleWait("lease_wait", f.LeaseWait),
		plausibleWait("kill", f.Kill), plausibleWait("revoke_timeout", f.RevokeTimeout))
}
