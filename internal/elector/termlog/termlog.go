// Package termlog derives the history of terms, which is kept for operators, from the elector's snapshots. It is pure,
// and no decision depends on it.
package termlog

import (
	"slices"
	"time"

	"zkelectd/internal/cluster"
)

// maxVerdicts is how many verdicts of each term's ranking are kept.
const maxVerdicts = 12

// Recorder turns an elector's snapshots into past terms, and tells the elector how long no leader's work has run. It
// measures only what it has seen happen, and adds that to what the records say.
type Recorder struct {
	watched  bool            // it has observed a snapshot
	pending  cluster.Elected // the newest decision
	decision decision        // that this elector has made last
	decided  time.Duration   // when pending was made or first seen; 0 if that was in the first snapshot
	vacancy  vacancy
	fence    ending // the last fence that it has seen
	led      int64  // the last term that it knows to have been READY
	recorded int64  // the last term that was recorded
	waiting  []cluster.PastTerm
	counted  []cluster.PastTerm // terms whose decision it has seen happen
}

// decision is a term, and when it was decided on.
type decision struct {
	term int64
	at   time.Duration
}

// vacancy is how long no leader's work had run at a time; the zero value while a member is READY, maybe one that is
// being replaced.
type vacancy struct {
	gap *cluster.Gap
	at  time.Duration
}

// ending identifies what the fence says of a leadership.
type ending struct {
	term  int64
	state cluster.FenceState
}

// Observe records a snapshot, read by the elector, at its monotonic time now.
func (r *Recorder) Observe(s cluster.Snapshot, now time.Duration) {
	ready := s.Ready()
	r.observeVacancy(&s, now)
	if s.Elected.Readable() && s.Elected.Record.Term != r.pending.Term {
		if r.pending.Term > r.recorded {
			r.add(r.pending, "never READY: "+s.Elected.Record.Reason, nil, nil)
		}
		r.pending, r.decided = s.Elected.Record, 0
		switch {
		case r.decision.term == r.pending.Term:
			r.decided = r.decision.at
		case r.watched:
			r.decided = now
		}
	}
	if ready && r.pending.Term > r.recorded {
		var toReady *cluster.Duration
		if r.decided > 0 && r.decided < now { // else the decision was not seen before
			d := cluster.Duration(now - r.decided)
			toReady = &d
		}
		r.add(r.pending, string(cluster.CurrentReady), &s.Fence.Record, toReady)
	}
	r.watched = true
}

// observeVacancy notes since when no leader's work has run. What a fence says counts from when it is first seen. If its
// leader is gone without a word, its work has ended before that is seen. A recorder may have been blind for a while, as
// that of a deputy that acted twice, or have read late: who has been READY then, unseen, has ended the vacancy that it
// knows of.
func (r *Recorder) observeVacancy(s *cluster.Snapshot, now time.Duration) {
	f := ending{s.Fence.Record.Term, s.Fence.Record.State}
	written := f != r.fence
	led := f.state == cluster.FenceReady || s.Fence.Record.Led
	unseen := written && (f.state == cluster.FenceReady || led && f.term != r.led || f.term > r.pending.Term ||
		!s.Fence.Readable()) // nobody knows what it has said
	r.fence = f
	if led {
		r.led = f.term
	}
	if s.Ready() || s.Current.Readable() && s.Current.Record.State == cluster.CurrentReady {
		r.vacancy = vacancy{}
		return
	}
	own := r.vacancy.since(now)
	if unseen {
		own = nil
	}
	gap := cluster.LongerGap(own, cluster.AtLeast(0))
	switch said := s.Idle(); {
	case !r.watched: // it is not known when they were written
		gap = cluster.LongerGap(gap, said.OrMore())
		if !hasLed(s) {
			gap = cluster.LongerGap(gap, s.Elected.Record.Leaderless.OrMore())
		}
	case !written || said == nil:
	case said.Bound == "":
		gap = said
	default:
		gap = cluster.LongerGap(own, said)
	}
	r.vacancy = vacancy{gap, now}
}

// hasLed reports whether the member that was elected last has been READY, which has ended what its decision says of the
// time before.
func hasLed(s *cluster.Snapshot) bool {
	f := &s.Fence.Record
	return f.Term >= s.Elected.Record.Term && (f.Led || f.State == cluster.FenceReady)
}

// since returns the gap until now; nil while there is none.
func (v vacancy) since(now time.Duration) *cluster.Gap { return v.gap.Plus(now - v.at) }

// Leaderless returns how long no leader's work has run; nil while a member is READY. seen is what was last seen of the
// lease of a READY leader that has fallen silent; the zero value if it has not. A lease that was not seen to be renewed
// may have been old.
func (r *Recorder) Leaderless(now time.Duration, seen cluster.LeaseZnodeSeen) *cluster.Gap {
	gap := r.vacancy.since(now)
	if seen.At == 0 || r.fence.state != cluster.FenceReady {
		return gap
	}
	if seen.Witnessed {
		return cluster.AtMost(now - seen.At)
	}
	return cluster.LongerGap(gap, cluster.AtLeast(0))
}

// Decide notes that this elector decides on a term, and when.
func (r *Recorder) Decide(term int64, now time.Duration) { r.decision = decision{term, now} }

// Take returns the terms to be written. They are kept until [Recorder.Written].
func (r *Recorder) Take() []cluster.PastTerm { return slices.Clone(r.waiting) }

// Witnessed returns the terms recorded since the last call whose decision this recorder has seen happen. So each term
// is witnessed by one elector only: one that was there before may have been witnessed by another.
func (r *Recorder) Witnessed() []cluster.PastTerm {
	list := r.counted
	r.counted = nil
	return list
}

// Written drops terms that Take returned.
func (r *Recorder) Written(terms []cluster.PastTerm) {
	last := terms[len(terms)-1].Term
	r.waiting = slices.DeleteFunc(r.waiting, func(t cluster.PastTerm) bool { return t.Term <= last })
}

func (r *Recorder) add(e cluster.Elected, outcome string, fence *cluster.Fence, toReady *cluster.Duration) {
	if fence == nil {
		fence = new(cluster.Fence)
	}
	leaderless := fence.Idle
	if e.Cause == cluster.CauseFirst { // no leader was missed
		leaderless = nil
	}
	kept := min(len(e.Ranking), maxVerdicts)
	r.recorded = e.Term
	r.waiting = append(r.waiting, cluster.PastTerm{
		Term: e.Term, Node: e.Node, Site: e.Site, Previous: e.PreviousNode, Cause: e.Cause, Reason: e.Reason,
		By: e.RequestedBy, Elector: e.By,
		Outcome: outcome, ToReady: toReady, Leaderless: leaderless, Wait: fence.Wait, Fencing: fence.Fencing,
		Ranking: e.Ranking[:kept], RankingOmitted: e.RankingOmitted + len(e.Ranking) - kept,
		PolicyRevision: e.PolicyRevision, Circumstances: e.Circumstances, Time: e.Time,
	})
	if r.decided > 0 {
		r.counted = append(r.counted, r.waiting[len(r.waiting)-1])
	}
	if extra := len(r.waiting) - cluster.MaxHistory; extra > 0 {
		r.waiting = r.waiting[extra:]
	}
}
