package elector

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

// rankingInput is what one ranking is made from.
type rankingInput struct {
	in            Input
	group         string
	ended         bool // the elected attempt has ended
	stopping      map[string]string
	circumstances cluster.Circumstances
	exclusions    []cluster.Exclusion
	ages          []time.Duration // of those exclusions that were known before
	cordons       []cluster.Cordon
	move          *cluster.Move
	reelect       bool
}

// rankedMembers is a ranking, with the exclusions that the next decision must record, and when it may change by itself.
type rankedMembers struct {
	policy.Ranking
	exclusions []cluster.Exclusion
	wake       time.Duration
}

// input returns it as the policy takes it.
func (b rankingInput) input() policy.Input {
	s := &b.in.Snapshot
	p := policy.Input{
		Members: s.Members, Circumstances: b.circumstances, Barred: map[string]string{}, Excluded: excluded(b.exclusions),
		Cordons: b.cordons, Move: b.move, Answer: b.in.Answer,
		Group: b.group, Reelect: b.reelect, Load: b.in.Placement.Load, Peers: b.in.Placement.Peers, Relations: b.in.Placement.Relations,
	}
	maps.Copy(p.Barred, b.stopping)
	if s.Slot != "" {
		p.Held, p.PerNode = held(b.in), s.Slots.Record.PerNode
	}
	if !b.ended {
		p.Incumbent = s.Elected.Record.Incarnation
	}
	return p
}

// rankingInput returns the input under the requests in force, with the strike for the end of the attempt, if it earned one.
func (e *Elector) rankingInput(in Input, g attemptEnd, active *activeRequests) rankingInput {
	s := &in.Snapshot
	e.trackStopping(in)
	b := rankingInput{in: in, group: e.opt.Group, ended: g.ended, stopping: e.stopping, circumstances: circumstances(s, g), cordons: active.Cordons, move: active.Move}
	b.exclusions, b.ages = active.clearStrikes(in.Exclusions, in.Age)
	if g.strike {
		rec := s.Elected.Record
		b.exclusions = cluster.Strike(b.exclusions, rec.Node, g.reason, rec.Term, e.opt.Exclusion, e.opt.ExclusionMax, in.Wall)
	}
	return b
}

// asRequested is the reason why an incarnation that has released on request is not elected.
const asRequested = "it is stopping, as requested"

// trackStopping remembers the incarnations that have released on request: their sessions are about to end, and until then
// they must not be elected again. That goes for all slots, and in a slot also for one whose leadership was released by FINAL: its
// incarnation ends with the session.
func (e *Elector) trackStopping(in Input) {
	s := &in.Snapshot
	for _, slot := range append([]cluster.SlotState{s.SlotState()}, in.Others...) {
		f := slot.Fence.Record
		// One that was replaced also releases on request, but a term that is not the elected one.
		if !slot.Acquired() || (f.State != cluster.FenceReleased && f.State != cluster.FenceUnclean) {
			continue
		}
		switch {
		case f.Requested:
			e.stopping[f.Incarnation] = asRequested
		case f.Lost && s.Slot != "":
			e.stopping[f.Incarnation] = "it is gone: " + f.Reason
		}
	}
	maps.DeleteFunc(e.stopping, func(incarnation, _ string) bool {
		_, exists := s.Member(incarnation)
		return !exists
	})
}

// Question returns the input for the ranking program for the next decision, and whether the program is needed.
func (e *Elector) Question(in Input) (policy.Input, bool) {
	s := &in.Snapshot
	g := checkAttempt(in, e.lastKnown.Term)
	copied := requests{seen: maps.Clone(e.requests.seen)} // a copy: asking must not start timers
	active := copied.active(s, in.Now, in.Wall)
	q := e.rankingInput(in, g, &active).input()
	return q, in.Policy.WantsAnswer(q)
}

// rankWithoutAmnesty ranks the members without suspending any exclusion.
func (b rankingInput) rankWithoutAmnesty() rankedMembers {
	return rankedMembers{Ranking: b.in.Policy.Rank(b.input()), exclusions: b.exclusions}
}

// rank ranks the members. If the exclusions leave no eligible member, they are suspended (L3; docs/protocol.md, The watchdog):
// all but that of the last failure, then all.
func (e *Elector) rank(b rankingInput) rankedMembers {
	pin, unchanged := b.input(), b.rankWithoutAmnesty()
	if _, ok := unchanged.Best(); ok || len(pin.Excluded) == 0 {
		return unchanged
	}
	last := latest(b.exclusions)
	for _, spared := range []string{last, ""} {
		suspended := cluster.MarkExpired(b.exclusions, func(x cluster.Exclusion) bool { return x.Node != spared })
		pin.Excluded = excluded(suspended)
		wait := e.retries(b, suspended, pin.Excluded)
		unchanged.wake = cluster.Earliest(unchanged.wake, wait)
		r := rankedMembers{Ranking: b.in.Policy.Rank(pin), wake: unchanged.wake}
		if _, ok := r.Best(); ok {
			// A node that must wait stays excluded: otherwise it would preempt the one that is elected now.
			r.exclusions = cluster.MarkExpired(b.exclusions, func(x cluster.Exclusion) bool { return pin.Excluded[x.Node] == "" })
			return r
		}
	}
	return unchanged
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

// retries keeps nodes with several strikes out for a moment although the amnesty has suspended their exclusions: work that
// cannot start anywhere must not use up terms. It returns when the first of them may try again.
func (e *Elector) retries(b rankingInput, list []cluster.Exclusion, excluded map[string]string) time.Duration {
	var wake time.Duration
	for i, x := range list {
		if _, already := excluded[x.Node]; already {
			continue
		}
		age := b.in.Now - e.endedSince // for a strike that is not in the record yet
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
