// Package termlog derives the history of terms, which is kept for operators, from the elector's snapshots. It is pure, and no
// decision depends on it.
package termlog

import (
	"slices"
	"time"

	"zkelectd/internal/cluster"
)

// maxVerdicts is how many verdicts of each term's ranking are kept.
const maxVerdicts = 12

// Recorder turns an elector's snapshots into past terms. It measures only what it has seen happen.
type Recorder struct {
	watched  bool            // it has observed a snapshot
	pending  cluster.Elected // the newest decision
	decided  time.Duration   // when it was first seen; 0 if that was in the first snapshot
	vacant   time.Duration   // since when no member has been READY; 0 if since before the first snapshot
	serving  bool            // a member is READY, maybe one that is being replaced
	term     int64           // its term
	seen     time.Duration   // when it was last seen READY
	recorded int64           // the last term that was recorded
	waiting  []cluster.PastTerm
	counted  []cluster.PastTerm // terms whose decision it has seen happen
}

// Observe records a snapshot, read by the elector, at its monotonic time now.
func (r *Recorder) Observe(s cluster.Snapshot, now time.Duration) {
	ready := s.Ready()
	serving := ready || (s.Current.Readable() && s.Current.Record.State == cluster.CurrentReady)
	if r.watched && r.serving && !serving {
		r.vacant = now
	}
	if r.serving && serving && s.Current.Record.Term != r.term {
		r.vacant = r.seen // the gap was too short to be seen: this is its upper bound
	}
	if s.Elected.Readable() && s.Elected.Record.Term != r.pending.Term {
		if r.pending.Term > r.recorded {
			r.add(r.pending, "never READY: "+s.Elected.Record.Reason, nil, nil, nil)
		}
		r.pending, r.decided = s.Elected.Record, 0
		if r.watched {
			r.decided = now
		}
	}
	if ready && r.pending.Term > r.recorded {
		var toReady, leaderless *cluster.Duration
		if r.decided > 0 {
			toReady = span(now - r.decided)
		}
		if r.vacant > 0 {
			leaderless = span(now - r.vacant)
		}
		r.add(r.pending, string(cluster.CurrentReady), &s.Fence.Record, toReady, leaderless)
	}
	if serving {
		r.vacant = 0
	}
	r.serving, r.watched = serving, true
	if serving {
		r.term, r.seen = s.Current.Record.Term, now
	}
}

// Succeed is called by a member whose predecessor as the elector has just ended, before it observes its first snapshot as the elector.
// If the predecessor was the leader as well, which is usual, nobody has led since then, and no other elector has seen that.
func (r *Recorder) Succeed(s cluster.Snapshot, now time.Duration) {
	if _, registered := s.Member(s.Elected.Record.Incarnation); s.Elected.Readable() && !registered {
		r.vacant = now
	}
}

// Take returns the terms to be written. They are kept until [Recorder.Written].
func (r *Recorder) Take() []cluster.PastTerm { return slices.Clone(r.waiting) }

// Witnessed returns the terms recorded since the last call whose decision this recorder has seen happen. So each term is
// witnessed by one elector only: one that was there before may have been witnessed by another.
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

func (r *Recorder) add(e cluster.Elected, outcome string, fence *cluster.Fence, toReady, leaderless *cluster.Duration) {
	if fence == nil {
		fence = new(cluster.Fence)
	}
	kept := min(len(e.Ranking), maxVerdicts)
	r.recorded = e.Term
	r.waiting = append(r.waiting, cluster.PastTerm{
		Term: e.Term, Node: e.Node, Site: e.Site, Previous: e.PreviousNode, Cause: e.Cause, Reason: e.Reason, By: e.RequestedBy, Elector: e.By,
		Outcome: outcome, ToReady: toReady, Leaderless: leaderless, Wait: fence.Wait, Fencing: fence.Fencing, Ranking: e.Ranking[:kept], RankingOmitted: e.RankingOmitted + len(e.Ranking) - kept,
		PolicyRevision: e.PolicyRevision, Circumstances: e.Circumstances, Time: e.Time,
	})
	if r.decided > 0 {
		r.counted = append(r.counted, r.waiting[len(r.waiting)-1])
	}
	if extra := len(r.waiting) - cluster.MaxHistory; extra > 0 {
		r.waiting = r.waiting[extra:]
	}
}

func span(d time.Duration) *cluster.Duration {
	v := cluster.Duration(d)
	return &v
}
