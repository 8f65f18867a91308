package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"zkelectd/internal/guard"
)

// scaleTimeout is a compromise: there are few pings and renewals, and the pauses before a reconnect, up to a twentieth, are short.
const scaleTimeout = time.Minute

// scaled are the figures of a group of one size.
type scaled struct {
	size            int
	leader, both    failovers
	decision, busy  time.Duration // of the decision alone, and beside the sessions of all members
	event, election traffic       // of an unrelated member that comes and leaves, and of a failover
	restart         restart
}

// failovers are the medians of the times after the end of a leader's session.
type failovers struct{ elected, acquired time.Duration }

// restart is what a restart of the server costs.
type restart struct {
	down, back   time.Duration // until the server serves again, and from then until all sessions are back
	requests     float64       // of all members, beyond those of calm
	electorReads float64       // of the requests, those of the elector
	packets      float64       // of each member
	sameTerm     bool          // there was no election
}

// traffic is what all members and the server exchange.
type traffic struct{ packets, bytes float64 }

// scale measures groups of several sizes, with all members in this process, and compares each with the first size.
func scale(ctx context.Context, t *table, guardClient *guard.Client, o options, rounds int) error {
	var first scaled
	for field := range strings.SplitSeq(o.sizes, ",") {
		size, err := strconv.Atoi(field)
		if err != nil || size < 4 {
			return fmt.Errorf("-sizes: %q is not a number of at least 4", field)
		}
		s, err := scaleAt(ctx, guardClient, size, rounds, o.quick)
		if err != nil {
			return fmt.Errorf("%d members: %w", size, err)
		}
		if first.size == 0 {
			first = s
		}
		r := scaleReport{t, s, first}
		r.times()
		if !o.quick {
			r.traffic()
		}
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
	r.add(fmt.Sprintf("%d members: %s", r.size, what), figure, fmt.Sprintf("%.2f times that at %d", value/base, r.first.size), goal, met)
}

func (r scaleReport) times() {
	s, first := r.scaled, r.first
	duration := func(what string, d, base time.Duration, goal string, met bool) {
		r.row(what, ms(d), float64(d), float64(base), goal, met)
	}
	duration("leader's session ended to the next ACQUIRE, p50", s.leader.acquired, first.leader.acquired, "<= 2 times", s.leader.acquired <= 2*first.leader.acquired)
	duration("of that until elected was written, p50", s.leader.elected, first.leader.elected, "", true)
	duration("the same, of the elector as well, p50", s.both.acquired, first.both.acquired, "<= 2 times", s.both.acquired <= 2*first.both.acquired)
	duration("of that until elected was written, p50", s.both.elected, first.both.elected, "", true)
	duration("a decision alone, and its encoding, p50", s.decision, first.decision, "<= 5 ms", s.decision <= 5*time.Millisecond)
	duration("the same beside all members on this machine", s.busy, first.busy, "", true)
}

func (r scaleReport) traffic() {
	s, first := r.scaled, r.first
	each := func(value float64, of scaled) float64 { return value / float64(of.size) }
	packets, met := s.event.packets, s.event.packets <= first.event.packets+10
	r.row("packets for a member coming and leaving", fmt.Sprintf("%.0f", packets), packets, first.event.packets, "<= 10 more", met)
	r.row("bytes of that", kilobytes(s.event.bytes), s.event.bytes, first.event.bytes, "", true)
	packets = each(s.election.packets, s)
	r.row("packets of a failover, each member", fmt.Sprintf("%.1f", packets), packets, each(first.election.packets, first), "", true)
	r.row("bytes of a failover", kilobytes(s.election.bytes), s.election.bytes, first.election.bytes, "", true)
	bytes := each(s.election.bytes, s)
	r.row("bytes of a failover, each member", kilobytes(bytes), bytes, each(first.election.bytes, first), "", true)
	r.restart()
}

func (r scaleReport) restart() {
	s, first := r.scaled.restart, r.first.restart
	duration := func(what string, d, base time.Duration) { r.row(what, ms(d), float64(d), float64(base), "", true) }
	duration("server killed, until it serves again", s.down, first.down)
	duration("from then until all sessions are back", s.back, first.back)
	r.add(fmt.Sprintf("%d members: the leader has stayed", r.size), fmt.Sprint(s.sameTerm), "", "true", s.sameTerm)
	r.row("requests of that", fmt.Sprintf("%.0f", s.requests), s.requests, first.requests, "", true)
	others, base := (s.requests-s.electorReads)/float64(r.size-1), (first.requests-first.electorReads)/float64(r.first.size-1)
	r.row("requests of that, each member but the elector", fmt.Sprintf("%.1f", others), others, base, "<= 1.2 times", others <= 1.2*base)
	r.row("packets of that, each member", fmt.Sprintf("%.1f", s.packets), s.packets, first.packets, "", true)
	if r.size > r.first.size {
		reads := (s.electorReads - first.electorReads) / float64(r.size-r.first.size)
		what := fmt.Sprintf("%d members: requests of the elector for each member, then", r.size)
		r.add(what, fmt.Sprintf("%.2f", reads), "", "<= 1.1", reads <= 1.1)
	}
}

func kilobytes(n float64) string { return fmt.Sprintf("%.1f kB", n/1000) }
