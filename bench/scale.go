package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"zkelectd/internal/guard"
)

// scaleTimeout is a compromise: there are few pings and renewals, and the pauses before a reconnect, up to a twentieth,
// are short.
const scaleTimeout = time.Minute

// scaled are the figures of a group of one size.
type scaled struct {
	size           int
	leader, both   failovers
	decision, busy time.Duration // of the decision alone, and beside the sessions of all members
}

// failovers are the medians of the times after the end of a leader's session.
type failovers struct{ elected, acquired time.Duration }

// scale measures groups of several sizes, with all members in this process, and compares each with the first size.
func scale(ctx context.Context, t *table, guardClient *guard.Client, o options, rounds int) error {
	var first scaled
	for field := range strings.SplitSeq(o.sizes, ",") {
		size, err := strconv.Atoi(field)
		if err != nil || size < 4 {
			return fmt.Errorf("-sizes: %q is not a number of at least 4", field)
		}
		s, err := scaleAt(ctx, guardClient, size, rounds)
		if err != nil {
			return fmt.Errorf("%d members: %w", size, err)
		}
		if first.size == 0 {
			first = s
		}
		scaleReport{t, s, first}.times()
	}
	return nil
}

// scaleReport adds the figures of a size, compared with those of the first one.
type scaleReport struct {
	*table
	scaled
	first scaled
}

func (r scaleReport) row(what, figure string, value, base float64, goal string, met bool) {
	r.add(fmt.Sprintf("%d members: %s", r.size, what), figure, fmt.Sprintf("%.2f times that at %d", value/base,
		r.first.size), goal, met)
}

func (r scaleReport) times() {
	s, first := r.scaled, r.first
	duration := func(what string, d, base time.Duration, goal string, met bool) {
		r.row(what, ms(d), float64(d), float64(base), goal, met)
	}
	duration("leader's session ended to the next ACQUIRE, p50", s.leader.acquired, first.leader.acquired, "<= 2 times",
		s.leader.acquired <= 2*first.leader.acquired)
	duration("of that until elected was written, p50", s.leader.elected, first.leader.elected, "", true)
	duration("the same, of the elector as well, p50", s.both.acquired, first.both.acquired, "<= 2 times",
		s.both.acquired <= 2*first.both.acquired)
	duration("of that until elected was written, p50", s.both.elected, first.both.elected, "", true)
	duration("a decision alone, and its encoding, p50", s.decision, first.decision, "<= 5 ms",
		s.decision <= 5*time.Millisecond)
	duration("the same beside all members on this machine", s.busy, first.busy, "", true)
}
