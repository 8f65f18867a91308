// Package elector turns a snapshot into a decision: whom to elect, whom to revoke, and why (docs/protocol.md,
// Electing). It is pure. Its rules are level-triggered: every snapshot is judged whole, so nothing hangs on one event.
package elector

import (
	"fmt"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

// Options are the elector's settings.
type Options struct {
	// Exclusion is the duration of a first strike, ExclusionMax the most that doubling makes of it.
	Exclusion, ExclusionMax time.Duration
	// Memory is what the daemon remembers of earlier leaderships; nil for nothing.
	Memory *cluster.Memory
}

// Input is what a decision is made from.
type Input struct {
	Snapshot cluster.Snapshot
	Policy   *policy.Policy
	// Now is the elector's monotonic time, Wall its wall clock, which is only written into records for people.
	Now  time.Duration
	Wall time.Time
	// Overdue, Revoke, Exclusions and Age are the watchdog's findings.
	Overdue, Revoke string
	Exclusions      []cluster.Exclusion
	Age             []time.Duration
	// Answer is that of the exec policy's program to [Elector.Question]; nil while there is none.
	Answer *policy.Answer
}

// Decision is what the elector wants written, at most one of Elect and Revoke at a time.
type Decision struct {
	// Elect is the next decision, nil to leave the present one.
	Elect *cluster.Elected
	// Fence is the fence that must be written anew with Elect, nil to leave the one that is there.
	Fence *cluster.Fence
	// Revoke is the fence that takes current away from its holder, nil for none.
	Revoke *cluster.Fence
	// Control is the requests brought up to date, nil to leave them; only without Elect and Revoke.
	Control *cluster.Control
	// Ranking is how the members stand, under Circumstances.
	Ranking       policy.Ranking
	Circumstances cluster.Circumstances
	// Holding says why a better member does not take over; empty if there is none, or if it does.
	Holding string
	// Note says why nothing was elected where there ought to be a leader; empty otherwise.
	Note string
	// Newer says which record has a format that this build does not know: then nothing is written. Empty otherwise.
	Newer string
	// Wake is when the decision may change with no event; 0 if never.
	Wake time.Duration
}

// Elector remembers since when members have been eligible, for delayed failback, and since when an attempt has been over
// that it could not replace yet.
type Elector struct {
	opt         Options
	memory      *cluster.Memory
	eligible    map[string]time.Duration
	preemptions map[int64]time.Duration // since when preemptions have been known, for damping
	founded     time.Duration           // when the first decision of this elector was made, if nobody led then
	decided     bool                    // it has decided before
	requests    requests
	stopping    map[string]bool // incarnations that have let go on request
	overTerm    int64
	overSince   time.Duration
}

// New returns an elector that has seen nothing.
func New(opt Options) *Elector {
	memory := opt.Memory
	if memory == nil {
		memory = new(cluster.Memory)
	}
	return &Elector{opt: opt, memory: memory, eligible: make(map[string]time.Duration), preemptions: make(map[int64]time.Duration), stopping: make(map[string]bool)}
}

// Decide judges one snapshot. The snapshot must have been read by the elector (Snapshot.Elector).
func (e *Elector) Decide(in Input) Decision {
	s := &in.Snapshot
	elected, _ := s.Terms()
	known := e.memory.Term
	e.memory.See(s)
	v := attempt(in, known)
	if v.over && elected != e.overTerm {
		e.overTerm, e.overSince = elected, in.Now
	}
	o := e.requests.standing(s, in.Now, in.Wall)
	d := e.judge(in, v, &o)
	if d.Elect != nil {
		d.Fence = e.memory.FenceAnew(s, d.Elect.Term, in.Wall)
		e.memory.Term = d.Elect.Term
	} else if d.Revoke == nil && o.changed {
		d.Control = &o.Control
	}
	d.Wake = cluster.Earliest(d.Wake, o.wake)
	return d
}

// judge decides under the requests in force, and notes which of them have come to their end.
func (e *Elector) judge(in Input, v verdict, o *standing) Decision {
	s := &in.Snapshot
	b := e.ballot(in, v, o)
	r := e.rank(b)
	e.track(r.Ranking, in.Now)
	d := Decision{Ranking: r.Ranking, Circumstances: b.circumstances, Wake: r.wake}
	if why := o.lost(r.Ranking, v, s, in.Wall); why != "" && v.over {
		v.reason += "; " + why
	}
	e.recent(s.Elected.Record.Preemptions, in) // a move counts from when it was first seen
	best, ok := r.Best()
	if err := s.Newer(); err != nil {
		d.Newer = err.Error()
		return d
	}
	switch {
	case o.Pause != nil && o.Pause.Hard:
		if v.over {
			d.Note = fmt.Sprintf("paused hard %s: %s, and nobody is elected until 'zkelectd resume'", o.Pause.Request, v.reason)
		}
		return d
	case v.over && !ok:
		d.Note = "no member may lead: " + Refusals(r.Ranking)
		return d
	case v.over:
		d.Elect = e.elect(b, r, v, best)
		return d
	}
	if d.Elect = e.replace(b, r, best, o, &d); d.Elect != nil {
		return d
	}
	if in.Revoke != "" && s.Current.Exists {
		d.Revoke = revoke(in)
	}
	return d
}

// track keeps since when each member has been eligible without a break.
func (e *Elector) track(r policy.Ranking, now time.Duration) {
	next := make(map[string]time.Duration, len(r.Entries))
	for _, entry := range r.Entries {
		if !entry.Allowed() {
			continue
		}
		since, known := e.eligible[entry.Member.Name]
		if !known {
			since = now
		}
		next[entry.Member.Name] = since
	}
	e.eligible = next
}

// settling is how long a group that has just come up may take to find its best member without damping: its members join
// one after the other.
const settling = time.Minute

// elect writes the decision down.
func (e *Elector) elect(b ballot, r outcome, v verdict, best cluster.Member) *cluster.Elected {
	in, s := b.in, &b.in.Snapshot
	verdicts, omitted := r.Verdicts()
	next := &cluster.Elected{
		Header:         s.Elected.Record.Header,
		Term:           e.memory.Next(in.Wall),
		Node:           best.ID,
		Site:           best.Node.Record.Site,
		Incarnation:    best.Name,
		Cause:          v.cause,
		Reason:         v.reason,
		Request:        v.request.ID,
		RequestedBy:    v.request.By,
		By:             s.Self.Name,
		PreviousNode:   s.Elected.Record.Node,
		PreviousSite:   s.Elected.Record.Site,
		Ranking:        verdicts,
		RankingOmitted: omitted,
		Exclusions:     r.exclusions,
		PolicyRevision: in.Policy.Revision,
		Circumstances:  b.circumstances,
		Preemptions:    e.recent(s.Elected.Record.Preemptions, in),
		Time:           in.Wall,
	}
	if next.PreviousNode == "" && s.Fence.Readable() {
		next.PreviousNode, next.PreviousSite = s.Fence.Record.Node, s.Fence.Record.Site
	}
	if v.over && !e.decided {
		e.founded = in.Now
	}
	e.decided = true
	if v.cause == cluster.CausePreempt && (e.founded == 0 || in.Now-e.founded >= settling) {
		next.Preemptions = append(next.Preemptions, next.Term)
	}
	return next
}

// revoke marks the fence: the holder's lease may still run, so its figures stay in it for the successor's lease wait. The
// fence can be read: one that cannot is written anew by an election first.
func revoke(in Input) *cluster.Fence {
	f := in.Snapshot.Fence.Record
	f.Led = f.Led || f.State == cluster.FenceReady
	f.State, f.Reason, f.Time = cluster.FenceRevoked, in.Revoke, in.Wall
	return &f
}
