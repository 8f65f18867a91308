package elector

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

// ballot is what one ranking is made from.
type ballot struct {
	in            Input
	over          bool // the elected attempt is over
	stopping      map[string]bool
	circumstances cluster.Circumstances
	exclusions    []cluster.Exclusion
	ages          []time.Duration // of those exclusions that were known before
	cordons       []cluster.Cordon
	move          *cluster.Move
}

// ranked is a ranking, with the exclusions that the next decision must record, and when it may change by itself.
type ranked struct {
	policy.Ranking
	exclusions []cluster.Exclusion
	wake       time.Duration
}

// input returns the ballot as the policy takes it.
func (b ballot) input() policy.Input {
	s := &b.in.Snapshot
	p := policy.Input{
		Members: s.Members, Circumstances: b.circumstances, Barred: map[string]string{}, Excluded: excluded(b.exclusions),
		Cordons: b.cordons, Move: b.move, Answer: b.in.Answer,
	}
	for incarnation := range b.stopping {
		p.Barred[incarnation] = "it is stopping, as requested"
	}
	if !b.over {
		p.Incumbent = s.Elected.Record.Incarnation
	}
	return p
}

// ballot returns the ballot under the requests in force, with the strike for the end of the attempt, if it earned one.
func (e *Elector) ballot(in Input, g grounds, active *activeRequests) ballot {
	s := &in.Snapshot
	e.trackStopping(s)
	b := ballot{in: in, over: g.over, stopping: e.stopping, circumstances: circumstances(s, g), cordons: active.Cordons, move: active.Move}
	b.exclusions, b.ages = active.clearStrikes(in.Exclusions, in.Age)
	if g.strike {
		rec := s.Elected.Record
		b.exclusions = cluster.Strike(b.exclusions, rec.Node, g.reason, rec.Term, e.opt.Exclusion, e.opt.ExclusionMax, in.Wall)
	}
	return b
}

// trackStopping remembers the incarnations that have released on request: their sessions are about to end, and until then
// they must not be elected again.
func (e *Elector) trackStopping(s *cluster.Snapshot) {
	// One that was replaced also releases on request, but a term that is not the elected one.
	if f := s.Fence.Record; s.Acquired() && f.Requested && (f.State == cluster.FenceReleased || f.State == cluster.FenceUnclean) {
		e.stopping[f.Incarnation] = true
	}
	maps.DeleteFunc(e.stopping, func(incarnation string, _ bool) bool {
		_, exists := s.Member(incarnation)
		return !exists
	})
}

// Question returns the input for the ranking program for the next decision, and whether the program is needed.
func (e *Elector) Question(in Input) (policy.Input, bool) {
	s := &in.Snapshot
	g := judgeAttempt(in, e.lastKnown.Term)
	copied := requests{seen: maps.Clone(e.requests.seen)} // a copy: asking must not start timers
	active := copied.active(s, in.Now, in.Wall)
	q := e.ballot(in, g, &active).input()
	return q, in.Policy.WantsAnswer(q)
}

// strict ranks the members without lifting any exclusion.
func (b ballot) strict() ranked {
	return ranked{Ranking: b.in.Policy.Rank(b.input()), exclusions: b.exclusions}
}

// rank ranks the members. If the exclusions leave no eligible member, they are lifted (L3; docs/protocol.md, The watchdog):
// all but that of the last failure, then all.
func (e *Elector) rank(b ballot) ranked {
	pin, strict := b.input(), b.strict()
	if _, ok := strict.Best(); ok || len(pin.Excluded) == 0 {
		return strict
	}
	last := latest(b.exclusions)
	for _, spared := range []string{last, ""} {
		lifted := cluster.MarkExpired(b.exclusions, func(x cluster.Exclusion) bool { return x.Node != spared })
		pin.Excluded = excluded(lifted)
		wait := e.retries(b, lifted, pin.Excluded)
		strict.wake = cluster.Earliest(strict.wake, wait)
		r := ranked{Ranking: b.in.Policy.Rank(pin), wake: strict.wake}
		if _, ok := r.Best(); ok {
			// A node that must wait stays excluded: otherwise it would preempt the one that is elected now.
			r.exclusions = cluster.MarkExpired(b.exclusions, func(x cluster.Exclusion) bool { return pin.Excluded[x.Node] == "" })
			return r
		}
	}
	return strict
}

// excluded maps the excluded nodes to the reasons.
func excluded(list []cluster.Exclusion) map[string]string {
	m := make(map[string]string)
	for _, x := range list {
		if !x.Expired {
			m[x.Node] = x.Describe()
		}
	}
	return m
}

// latest returns the node with the latest strike.
func latest(list []cluster.Exclusion) string {
	if len(list) == 0 {
		return ""
	}
	return slices.MaxFunc(list, func(a, b cluster.Exclusion) int { return int(a.Term - b.Term) }).Node
}

// retries keeps nodes with several strikes out for a moment although the amnesty has lifted their exclusions: work that
// cannot start anywhere must not use up terms. It returns when the first of them may try again.
func (e *Elector) retries(b ballot, list []cluster.Exclusion, excluded map[string]string) time.Duration {
	var wake time.Duration
	for i, x := range list {
		if _, already := excluded[x.Node]; already {
			continue
		}
		age := b.in.Now - e.overSince // for a strike that is not in the record yet
		if i < len(b.ages) && x.Term != b.in.Snapshot.Elected.Record.Term {
			age = b.ages[i]
		}
		if wait := retryDelay(x.Strikes) - age; wait > 0 {
			excluded[x.Node] = fmt.Sprintf("it may try again %s after its last strike: %s", retryDelay(x.Strikes), x.Reason)
			wake = cluster.Earliest(wake, b.in.Now+wait)
		}
	}
	return wake
}

// retryDelay returns 0 for a first strike, then half a second, doubling up to half a minute.
func retryDelay(strikes int) time.Duration {
	if strikes <= 1 {
		return 0
	}
	return min(500*time.Millisecond<<min(strikes-2, 10), 30*time.Second)
}

// Refusals describes why no member is eligible.
func Refusals(r policy.Ranking) string {
	if len(r.Entries) == 0 {
		return "no member is registered"
	}
	var all []string
	for _, entry := range r.Entries[:min(len(r.Entries), 5)] {
		all = append(all, entry.Member.ID+": "+entry.RefusalReason())
	}
	if more := len(r.Entries) - len(all); more > 0 {
		all = append(all, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, "; ")
}
