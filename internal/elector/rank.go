package elector

import (
	"maps"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

// rankingInput is what one ranking is made from.
type rankingInput struct {
	in            Input
	group         string
	ended         bool // the elected attempt has ended
	lapsed        bool // only because ZooKeeper had not answered
	stopping      map[string]string
	silent        map[string]bool
	circumstances cluster.Circumstances
	exclusions    []cluster.Exclusion
	struck        bool // the attempt has ended with a strike
	cordons       []cluster.Cordon
	move          *cluster.Move
	reelect       bool
	rollCall      string // the roll call by whose answers the members are ranked; empty for none
	proposed      bool   // the election is proposed, and not approved
}

// rankedMembers is a ranking, with the exclusions that the next decision must record, and when it may change by itself.
type rankedMembers struct {
	policy.Ranking
	exclusions []cluster.Exclusion
	wake       time.Duration
	failures   *failures // nil if a member could lead that has not failed
}

// input returns it as the policy takes it.
func (b rankingInput) input() policy.Input {
	s := &b.in.Snapshot
	p := policy.Input{
		Members: s.Members, Circumstances: b.circumstances, Barred: map[string]string{}, Excluded: excluded(b.exclusions),
		Cordons: b.cordons, Move: b.move, Answer: b.in.Answer, Silent: maps.Clone(b.silent),
		Group: b.group, Reelect: b.reelect, Load: b.in.Placement.Load, Peers: b.in.Placement.Peers,
		Relations: b.in.Placement.Relations,
	}
	if b.rollCall != "" {
		p.Members, p.RollCall = cluster.WithAnswers(s.Members, b.rollCall), b.rollCall
	}
	maps.Copy(p.Barred, b.stopping)
	for incarnation, why := range b.in.Silent {
		p.Barred[incarnation], p.Silent[incarnation] = "it is silent: "+why, true
	}
	if s.Slot != "" {
		p.Held, p.PerNode = held(b.in), s.Slots.Record.PerNode
	}
	if !b.ended || b.lapsed {
		p.Incumbent, p.Lapsed = s.Elected.Record.Incarnation, b.lapsed
	}
	return p
}

// rankingInput returns the input under the requests in force, with the strike for the end of the attempt, if it earned
// one.
func (e *Elector) rankingInput(in Input, g attemptEnd, active *activeRequests) rankingInput {
	s := &in.Snapshot
	e.trackStopping(in)
	b := rankingInput{in: in, group: e.opt.Group, ended: g.ended, lapsed: g.cause == cluster.CauseLapsed,
		stopping: e.stopping, silent: e.silent, circumstances: circumstances(s, g), cordons: active.Cordons,
		move: active.Move, rollCall: e.rollCall.answers(s)}
	for _, p := range active.Proposals {
		b.proposed = b.proposed || p.Term == s.Elected.Record.Term && p.Answer != cluster.ProposalApproved
	}
	b.exclusions = active.Uncleared(in.Exclusions)
	if b.struck = g.strike; b.struck {
		rec := s.Elected.Record
		b.exclusions = cluster.Strike(b.exclusions, rec.Node, g.reason, rec.Term, e.opt.Exclusion,
			e.opt.ExclusionMax, in.Wall)
	}
	return b
}

// stops begins the reason why an incarnation whose membership ends is not elected.
const stops = "its membership ends: "

// maxSilent bounds how many silent incarnations a decision names.
const maxSilent = 64

// silentMembers returns the silent incarnations that are still members. Those that only this elector remembers are
// among them: the record that named them may have been lost, and their nodes register again only if they read it.
func (e *Elector) silentMembers(in *Input) []string {
	var list []string
	for i := range in.Snapshot.Members {
		name := in.Snapshot.Members[i].Name
		if _, found := in.Silent[name]; (found || e.silent[name]) && len(list) < maxSilent {
			list = append(list, name)
		}
	}
	return list
}

// trustCandidate takes it back that the elected candidate is silent, if somebody has found that. When nobody else can
// be elected, it must be left to go on. A silent leader is about to release or to end. But one whose current was
// deleted waits for its election. Without a decision that can be read, the holder that the fence names may be that
// candidate.
func (in *Input) trustCandidate() bool {
	s := &in.Snapshot
	candidate, acquired := s.Elected.Record.Incarnation, s.Acquired()
	if !s.Elected.Readable() {
		candidate, acquired = s.Fence.Record.Incarnation, true
	}
	if _, found := in.Silent[candidate]; !found || in.takes() && acquired && s.Current.Exists && !s.ForeignCurrent() {
		return false
	}
	in.Silent = maps.Clone(in.Silent)
	delete(in.Silent, candidate)
	return true
}

// trackStopping remembers the incarnations that have released because their memberships end: until then they must not
// be elected again. That goes for all slots, and in a slot also for one whose leadership was released by FINAL: its
// incarnation ends with the session.
func (e *Elector) trackStopping(in Input) {
	s := &in.Snapshot
	for _, slot := range append([]cluster.SlotState{s.SlotState()}, in.Others...) {
		f := slot.Fence.Record
		if !slot.Acquired() || (f.State != cluster.FenceReleased && f.State != cluster.FenceUnclean) {
			continue
		}
		switch {
		case f.Stopping != "" && f.Stopping == f.Incarnation:
			e.stopping[f.Incarnation] = stops + f.Reason
		case f.Lost && s.Slot != "":
			e.stopping[f.Incarnation] = "it is gone: " + f.Reason
		}
	}
	for _, slot := range append([]cluster.SlotState{s.SlotState()}, in.Others...) {
		for _, incarnation := range slot.Silent() {
			e.silent[incarnation], e.stopping[incarnation] = true, cluster.SilentReason
		}
	}
	for incarnation := range e.stopping {
		if _, exists := s.Member(incarnation); !exists {
			delete(e.stopping, incarnation)
			delete(e.silent, incarnation)
		}
	}
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

// rank ranks the members. It is the one answer to whether a member could lead, and why not. While a member is left that
// has not failed, exclusions are in force. When all have failed, they are suspended in turn, so that the group recovers
// by itself (L3; docs/protocol.md, The watchdog): those of the members with the fewest strikes, but that of the last
// failure only if it is alone. And then the next attempt is delayed.
func (e *Elector) rank(b rankingInput) rankedMembers {
	pin := b.input()
	r := rankedMembers{Ranking: b.in.Policy.Rank(pin), exclusions: b.exclusions}
	if elsewhere, ok := e.awayFromSilentSites(b, pin); ok {
		pin, r.Ranking = elsewhere, b.in.Policy.Rank(elsewhere)
	}
	r.failures = failuresOf(r.Ranking, b.exclusions)
	if r.failures == nil {
		return r
	}
	if begin := e.endedSince + r.failures.pause(); b.struck {
		r.exclusions = r.failures.limit(b.exclusions, e.opt)
		if b.in.Now < begin {
			pin.Excluded = r.failures.reasons()
			r.Ranking, r.wake = b.in.Policy.Rank(pin), begin
			return r
		}
	}
	if _, ok := r.Best(); ok {
		return r
	}
	for _, nodes := range []func(string) bool{r.failures.next, r.failures.has} {
		suspended := r
		suspended.exclusions = cluster.Suspend(r.exclusions, nodes)
		pin.Excluded = excluded(suspended.exclusions)
		suspended.Ranking = b.in.Policy.Rank(pin)
		if _, ok := suspended.Best(); ok {
			return suspended
		}
	}
	return r
}

// awayFromSilentSites returns the input without the members of sites at which more than one has fallen silent, such as
// a leader and the candidate after it: a lost site must not cost the time of each of its members. ok is false if that
// leaves nobody.
func (e *Elector) awayFromSilentSites(b rankingInput, pin policy.Input) (elsewhere policy.Input, ok bool) {
	count := make(map[string]int)
	for i := range pin.Members {
		m := &pin.Members[i]
		if _, found := b.in.Silent[m.Name]; found || e.silent[m.Name] {
			count[m.Node.Record.Site]++
		}
	}
	pin.Barred = maps.Clone(pin.Barred)
	for i := range pin.Members {
		m := &pin.Members[i]
		if site := m.Node.Record.Site; site != "" && count[site] > 1 && pin.Barred[m.Name] == "" {
			pin.Barred[m.Name], ok = "several members of site "+site+" have fallen silent", true
		}
	}
	if ok {
		_, ok = b.in.Policy.Rank(pin).Best()
	}
	return pin, ok
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
