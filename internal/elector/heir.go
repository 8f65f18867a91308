package elector

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

// This file decides who is published as the heir: the member that the elector would elect if the leader was lost. There
// is no second ranking: a copy of the elector decides on a copy of the group without the leader.

// maxForecast ends a forecast that does not come to an election.
const maxForecast = 10

// maxHeirMembers is the size of a group above which ELECT does not name the heir: a forecast takes as long as an
// election, or as one for each slot, and a failover must not wait for it. HEIR follows. In a group with slots, each
// slot counts as so many members.
const maxHeirMembers = 250

// AwaitsRetry reports whether no member is eligible, but one will soon be, as only a strike is against it.
func (d Decision) AwaitsRetry(s cluster.Snapshot) bool {
	return s.Elected.Readable() && !slices.ContainsFunc(d.Ranking.Entries, policy.Entry.Eligible) &&
		slices.ContainsFunc(d.Ranking.Entries, policy.Entry.EligibleOrExcluded)
}

// Heir returns the member that would be elected if the leader was lost, nil if there is no leader to succeed. It
// changes nothing. A leader that is still taking over counts as one that leads, so that its READY makes no other heir.
// A ranking program is not asked again: its last answer counts, without the leader.
func (e *Elector) Heir(in Input) *cluster.Heir {
	s := &in.Snapshot
	if !s.Elected.Readable() || s.Ended() || s.Newer() != nil {
		return nil
	}
	if _, alive := s.Member(s.Elected.Record.Incarnation); !alive {
		return nil
	}
	return e.heirTo(in, s.Elected.Record)
}

// heirTo returns the heir to an elected member.
func (e *Elector) heirTo(in Input, elected cluster.Elected) *cluster.Heir {
	f := e.forecaster()
	in.Overdue, in.Revoke, in.NoRoom, in.Succeeded = "", "", "", true
	if elected.Term != in.Snapshot.Elected.Record.Term {
		in.Exclusions = elected.Exclusions
	}
	if elected.Incarnation == in.Snapshot.Self.Name {
		// The elector is lost as well, with what it has measured.
		opt := e.opt
		opt.LastKnown = f.lastKnown
		f = New(opt)
		f.forecast, f.startup.over = true, true
		in.Exclusions = elected.Exclusions
	}
	in.Snapshot = in.Snapshot.AfterElection(elected).Without(func(m cluster.Member) bool { return m.ID == elected.Node })
	in.Others = f.afterLossOf(elected.Node, in)
	next := f.nextElection(in)
	if next == nil {
		return &cluster.Heir{}
	}
	return &cluster.Heir{Node: next.Node, Site: next.Site, Incarnation: next.Incarnation}
}

// forecaster returns a copy that decides on hypothetical groups.
func (e *Elector) forecaster() *Elector {
	f, lastKnown := *e, *e.lastKnown
	f.forecast, f.startup.over, f.lastKnown = true, true, &lastKnown
	f.stopping, f.silent = maps.Clone(e.stopping), maps.Clone(e.silent)
	return &f
}

// nextElection returns the next election, nil if there will be none.
func (e *Elector) nextElection(in Input) *cluster.Elected {
	for range maxForecast {
		d := e.Decide(in)
		switch {
		case d.Elect != nil:
			return d.Elect
		case d.Control != nil:
			in.Snapshot.Control.Record = *d.Control
		case d.Wake > in.Now && (d.Awaiting != "" || d.Note != "" && d.AwaitsRetry(in.Snapshot)):
			in.Now = d.Wake
		default:
			return nil
		}
	}
	return nil
}

// afterLossOf returns the other slots after the loss of a node. Those of lower numbers that it led are decided before
// this one, as what they decide counts for it; [whatif.RunSlots] has the same order.
func (e *Elector) afterLossOf(node string, in Input) []cluster.SlotState {
	others := slices.Clone(in.Others)
	own := cluster.SlotNumber(in.Snapshot.Slot)
	slices.SortFunc(others, func(a, b cluster.SlotState) int {
		return cluster.SlotNumber(a.Slot) - cluster.SlotNumber(b.Slot)
	})
	for i, o := range others {
		if o.Elected.Record.Node != node || o.Ended() || cluster.SlotNumber(o.Slot) > own {
			continue
		}
		next := in
		next.Snapshot.Slot, next.Snapshot.Elected, next.Snapshot.Fence, next.Snapshot.Current = o.Slot, o.Elected,
			o.Fence, o.Current
		next.Snapshot = next.Snapshot.AfterElection(o.Elected.Record)
		next.Snapshot.Current = cluster.Stored[cluster.Current]{}
		next.Exclusions = o.Elected.Record.Exclusions
		next.Others = slices.Concat(others[:i], others[i+1:], []cluster.SlotState{in.Snapshot.SlotState()})
		if elected := e.forecaster().nextElection(next); elected != nil {
			after := next.Snapshot.AfterElection(*elected)
			others[i] = after.SlotState()
		}
	}
	return others
}

// deputies returns the ids of the nodes that take over from an elected one which falls silent, in their order: the
// elector, the heir, the oldest member of each other site, then the oldest ones (docs/protocol.md, Deputies). heir is
// nil if it is not known.
func deputies(s *cluster.Snapshot, elected cluster.Elected, heir *cluster.Heir) []string {
	var ids []string
	sites := map[string]bool{elected.Site: true}
	add := func(m cluster.Member) {
		site := m.Node.Record.Site
		if len(ids) < cluster.MaxDeputies && m.ID != elected.Node && !slices.Contains(ids, m.ID) && !m.Superseded &&
			m.Node.Readable() && m.Node.Record.Leaving == "" &&
			!s.DeclaredSilent(m.Name) && !slices.Contains(elected.Silent, m.Name) {
			ids, sites[site] = append(ids, m.ID), true
		}
	}
	if self, ok := s.Member(s.Self.Name); ok {
		add(self)
	}
	if heir != nil {
		if m, ok := s.Member(heir.Incarnation); ok {
			add(m)
		}
	}
	for _, elsewhere := range []bool{true, false} {
		for i := range s.Members {
			if m := s.Members[i]; !elsewhere || !sites[m.Node.Record.Site] {
				add(m)
			}
		}
	}
	return ids
}

const (
	// heirInterval is the least time between two writes of the heir.
	heirInterval = time.Second
	// maxHeirInterval is the same while heirs replace each other in turn, as with measurements that are almost alike.
	maxHeirInterval = 30 * time.Second
)

// heirMemory is how long an heir that was replaced is remembered: longer than it takes a few of them to take turns.
const heirMemory = 4 * maxHeirInterval

// HeirKeeper keeps the published heir true while this member is the elector.
type HeirKeeper struct {
	basis    uint64        // what was seen when the published heir was found to be true
	acts     [2]int64      // the requests and the policy that were seen last
	next     time.Duration // not before then is anything written
	interval time.Duration
	replaced map[cluster.Heir]time.Duration // when those that were heirs lately were replaced
}

// Update returns the record that must be written, nil if none, and when to call it again, 0 for never. It is called
// only while nothing else is to be written.
func (k *HeirKeeper) Update(core *Elector, in Input) (write *cluster.HeirRecord, wake time.Duration) {
	s := &in.Snapshot
	basis := heirBasis(in)
	if basis == k.basis || s.Heir.Newer() != nil {
		return nil, 0
	}
	if acts := [2]int64{s.Control.Stat.Modified, in.Policy.Revision}; acts != k.acts {
		k.acts, k.next = acts, min(k.next, in.Now+heirInterval) // people look at once what a request has changed
	}
	published, known := s.NextLeader()
	if _, alive := s.Member(published.Incarnation); known && published.Incarnation != "" && !alive {
		k.next = min(k.next, in.Now+heirInterval) // it cannot be right
	}
	if in.Now < k.next {
		return nil, k.next
	}
	heir := core.Heir(in)
	if heir == nil {
		k.basis = basis
		return nil, 0
	}
	next := deputies(s, s.Elected.Record, heir)
	if known && *heir == published && slices.Equal(next, s.Deputies()) {
		k.basis = basis
		return nil, 0
	}
	return &cluster.HeirRecord{
		Header: s.Heir.Record.Header, Term: s.Elected.Record.Term, Heir: *heir, Deputies: next, By: s.Self.Name,
		Time: in.Wall,
	}, 0
}

// Wrote records that a write that replaced an heir has ended, whether or not it took effect. If the new one was the
// heir not long ago, the next write waits longer.
func (k *HeirKeeper) Wrote(replaced cluster.Heir, next *cluster.HeirRecord, now time.Duration) {
	maps.DeleteFunc(k.replaced, func(_ cluster.Heir, at time.Duration) bool { return now-at > heirMemory })
	if _, again := k.replaced[next.Heir]; again {
		k.interval = min(2*k.interval, maxHeirInterval)
	} else {
		k.interval = heirInterval
	}
	if k.replaced == nil {
		k.replaced = make(map[cluster.Heir]time.Duration)
	}
	k.replaced[replaced], k.next = now, now+k.interval
}

// heirBasis returns a hash of what the heir depends on. Where it depends on measurements or on other groups, it differs
// every second.
func heirBasis(in Input) uint64 {
	s := &in.Snapshot
	h := fnv.New64a()
	fmt.Fprint(h, s.At, in.Policy.Revision, s.Elected.Stat.Modified, s.Heir.Stat.Modified, in.Answer != nil)
	for _, x := range in.Exclusions {
		fmt.Fprint(h, " ", x.Node, x.Term, x.Strikes, x.Expired)
	}
	for _, o := range in.Others {
		fmt.Fprint(h, " ", o.Slot, o.Elected.Stat.Modified, o.Fence.Stat.Modified)
	}
	if rules := in.Policy.Rules; policy.UsesLoads(rules, s.Members) || len(policy.RelationsOf(rules).Peers()) > 0 ||
		policy.UsesExec(rules) {
		fmt.Fprint(h, " ", in.Now/heirInterval)
	}
	return h.Sum64() | 1
}
