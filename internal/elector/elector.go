// Package elector turns a snapshot into a decision: whom to elect, whom to revoke, and why (docs/protocol.md,
// Electing). It is pure. Its rules are level-triggered: each decision follows from a whole snapshot, so no single event
// matters.
package elector

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

// Options are the elector's settings.
type Options struct {
	// Exclusion is how long a first strike excludes a node. It doubles with each strike, up to ExclusionMax.
	Exclusion, ExclusionMax time.Duration
	// Takeover is how long a takeover may take.
	Takeover time.Duration
	// LastKnown is what the daemon remembers of earlier leaderships; nil if nothing.
	LastKnown *cluster.LastKnown
	// Epoch is the one that the instance was started for, see [cluster.Slots]; 0 in a group with one leader.
	Epoch int64
	// Group is the name of the group, with its slot if there is one. Spread is set if the host has many groups: their
	// preemptions are spread over twice the delay of the failback, and for so long there is none after a member has
	// vanished.
	Group  string
	Spread bool
	// Estimate takes durations from the times in records, for a forecast, which has measured nothing itself.
	Estimate bool
	// Settle is how long the first election waits for other members; 0 for not at all.
	Settle time.Duration
}

// Input is everything that a decision depends on, besides what the elector remembers.
type Input struct {
	Snapshot cluster.Snapshot
	Policy   *policy.Policy
	// Now is the elector's monotonic time, Wall its wall clock, a lower bound for terms and otherwise
	// only written into records for people.
	Now  time.Duration
	Wall time.Time
	// Overdue, Revoke and Exclusions are the watchdog's findings.
	Overdue, Revoke string
	Exclusions      []cluster.Exclusion
	// Silent maps the incarnations that have fallen silent to what they have not done, in words. LeaseOver is set if
	// the holder of the fence is among them because its lease is over: it may also be a candidate again, that has not
	// taken over.
	Silent    map[string]string
	LeaseOver bool
	// Lease is the sighting of the lease of a holder that is silent; the zero value if there is none.
	Lease cluster.LeaseZnodeSeen
	// RollCallSeen is when this member has first seen the present roll call; 0 if there is none, or if it was there
	// before.
	RollCallSeen time.Duration
	// Leaderless is how long no leader's work has run; nil if a member is READY, or if that is not known.
	Leaderless *cluster.Gap
	// Answer is the ranking program's answer to [Elector.Question]; nil while there is none.
	Answer *policy.Answer
	// Others are all other slots of the group, in any order, as this daemon has read them last. If some are missing,
	// there is no election.
	Others []cluster.SlotState
	// Succeeded reports that other members had registered before this elector did.
	Succeeded bool
	// NoRoom is the reason why no preemption may begin, whatever the policy; empty if there is none.
	NoRoom string
	// Placement is what is known of other groups.
	Placement Placement
}

// Decision is what the elector wants to be written. At most one of Elect, Revoke and Control is set.
type Decision struct {
	// Elect is the next decision, nil to keep the present one.
	Elect *cluster.Elected
	// Fence is the fence that must be written together with Elect, nil to leave the existing one.
	Fence *cluster.Fence
	// Take is set if Elect must be written by TAKE, or Revoke by SILENCE: the holder of the fence is silent.
	Take bool
	// Revoke is the fence of a REVOKE, or of a SILENCE; nil if there is nothing to revoke.
	Revoke *cluster.Fence
	// Control is control brought up to date, nil to leave it.
	Control *cluster.Control
	// Ranking is the ranking of the members under Circumstances.
	Ranking       policy.Ranking
	Circumstances cluster.Circumstances
	// Blocked says why a better member does not preempt the leader; zero if there is none, or if it does.
	Blocked Blocked
	// AwaitsRoom reports that only [Input.NoRoom] holds a preemption back.
	AwaitsRoom bool
	// NoSuccessor reports that the elected member is about to leave, and that nobody can replace it now: it need not wait.
	NoSuccessor bool
	// Failing is set if every member that could lead has failed: then the pause between two attempts grows.
	Failing *Failing
	// Note is the reason why no member is elected although there should be a leader; empty otherwise. AwaitsApproval is
	// set if that is that a person must approve. Proposal is the one that has not been answered, once it has been
	// written.
	Note           string
	AwaitsApproval bool
	Proposal       *cluster.Proposal
	// Starting is set if Note is only that the first election waits for other hosts.
	Starting bool
	// Awaiting is the group whose decision must be known before the election that is due; empty if there is none.
	// Nothing is written then, until Wake at the latest.
	Awaiting string
	// AwaitsAnswers reports that the election that is due waits for answers to a roll call, until Wake at the latest.
	// CallRoll is set if that must be written first.
	AwaitsAnswers, CallRoll bool
	// again is set if the answers are there, and everything must be ranked by them.
	again bool
	// Newer says which record has a format that this build does not know; nothing is written then. Empty otherwise.
	Newer string
	// Wake is when the decision may change without an event; 0 means never.
	Wake time.Duration
}

// Blocked says who would lead, and what holds that member back.
type Blocked struct {
	// Reason says both. Remedy is what an operator can do; empty if there is nothing to do but wait.
	Reason, Remedy string
	// Until is when it ends by itself, on the clock of [Input.Now]; 0 if that is not known.
	Until time.Duration
	// Manual is set if only a manual failback holds the member back: leadership stays where it is on purpose.
	Manual bool
}

// String returns a sentence that does not change while nothing else does; empty if nothing is held back.
func (b Blocked) String() string { return join("; ", b.Reason, b.Remedy) }

// Sentence returns the whole sentence, with the time at which it ends by itself, if that is known. now is on the clock
// of [Input.Now], wall the time then.
func (b Blocked) Sentence(now time.Duration, wall time.Time) string {
	until := ""
	if b.Until > now {
		until = "until about " + wall.Add(b.Until-now).UTC().Round(time.Second).Format(time.RFC3339)
	}
	return join("; ", join(", ", b.Reason, until), b.Remedy)
}

// join joins the parts that are not empty.
func join(separator string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), separator)
}

// Elector makes the decisions. It remembers only what must be measured over time, such as since when each member has
// been eligible.
type Elector struct {
	opt             Options
	lastKnown       *cluster.LastKnown
	known           int64                    // its term before the present snapshot
	eligible        map[string]time.Duration // by incarnation, since when without a break, for delayed failback
	preemptions     map[int64]time.Duration  // by term, since when the preemption has been known, for damping
	firstDecisionAt time.Duration            // when this elector made its first decision, if there was no leader then
	decided         bool                     // it has made a decision
	requests        requests
	stopping        map[string]string // incarnations that are about to end, with the reason why they must not be elected
	silent          map[string]bool   // those of them that are silent
	endedTerm       int64             // the last term whose attempt was over
	endedSince      time.Duration     // when that was first seen
	fencedTerm      int64             // the last term whose leader has fenced nodes
	fencedSince     time.Duration     // when that was first seen
	moves           moves
	startup         startup
	peers           peerWait
	rollCall        rollCall
	forecast        bool // it decides on a hypothetical group, see [Elector.Heir]
}

// New returns an elector that has seen nothing.
func New(opt Options) *Elector {
	lastKnown := opt.LastKnown
	if lastKnown == nil {
		lastKnown = new(cluster.LastKnown)
	}
	return &Elector{opt: opt, lastKnown: lastKnown, eligible: make(map[string]time.Duration),
		preemptions: make(map[int64]time.Duration), stopping: make(map[string]string), silent: make(map[string]bool)}
}

// Decide returns the decision for one snapshot, which must have been read by the elector ([cluster.Snapshot.Elector]).
func (e *Elector) Decide(in Input) Decision {
	s := &in.Snapshot
	elected, _ := s.Terms()
	e.known = e.lastKnown.Term
	e.lastKnown.Update(s)
	g := checkAttempt(in, e.known)
	if g.ended && elected != e.endedTerm {
		e.endedTerm, e.endedSince = elected, in.Now
	}
	e.moves.observe(s, e.stopping, in.Now)
	e.trackFenced(in)
	active := e.requests.active(s, in.Now, in.Wall)
	e.rollCall.wanted = false
	d := e.decide(in, g, &active)
	if d.again {
		e.rollCall.wanted = false
		d = e.decide(in, g, &active)
	}
	e.rollCall.end(elected, in.Now)
	e.moves.forget()
	if d.Elect != nil {
		e.approve(in, g, &active, &d)
	}
	d.NoSuccessor = !g.ended && d.Elect == nil && d.Awaiting == "" && !d.AwaitsAnswers && leaving(s)
	if entry, known := d.Ranking.Find(s.Elected.Record.Incarnation); !g.ended && !d.AwaitsApproval && known &&
		entry.Eligible() {
		active.endUnneeded(s.Elected.Record.Node, in.Wall)
	}
	if d.Elect != nil {
		d.Fence, d.Take = e.lastKnown.ReplacementFence(s, d.Elect.Term, in.Wall), in.takes()
		e.lastKnown.Term = d.Elect.Term
		if !e.forecast && !e.opt.Estimate && len(s.Members)*(1+len(in.Others)) <= maxHeirMembers {
			d.Elect.Heir = e.heirTo(in, *d.Elect)
		}
		if !e.forecast {
			d.Elect.Deputies = deputies(s, *d.Elect, d.Elect.Heir)
		}
	} else if d.Revoke == nil && active.changed && !s.Acting {
		d.Control = &active.Control
	}
	d.Wake = cluster.Earliest(d.Wake, active.wake)
	return d
}

// takes reports whether the holder of the fence is silent, and its lease over.
func (in *Input) takes() bool {
	_, silent := in.Silent[in.Snapshot.Fence.Record.Incarnation]
	return silent && in.LeaseOver && in.Snapshot.MayBeTaken()
}

// leaving reports whether the elected member has announced that it is about to end.
func leaving(s *cluster.Snapshot) bool {
	elected, known := s.Member(s.Elected.Record.Incarnation)
	return known && elected.Node.Record.Leaving != ""
}

// decide decides under the active requests, and ends those that are done.
func (e *Elector) decide(in Input, g attemptEnd, active *activeRequests) Decision {
	s := &in.Snapshot
	b := e.rankingInput(in, g, active)
	r := e.rank(b)
	if _, ok := r.Best(); !ok && in.trustCandidate() {
		return e.decide(in, checkAttempt(in, e.known), active)
	}
	e.trackEligible(r.Ranking, in)
	d := Decision{Ranking: r.Ranking, Circumstances: b.circumstances, Wake: r.wake,
		Failing: r.failures.failing(s.Elected.Record.Node, g.ended)}
	if why := active.endLostMove(r.Ranking, in.Wall); why != "" && g.ended {
		g.reason += "; " + why
	}
	e.recentPreemptions(s.Elected.Record.Preemptions, in) // a preemption counts from when it was first seen
	best, ok := r.Best()
	early, until := e.startup.await(in, g, best.ID, e.opt.Settle)
	if err := s.Newer(); err != nil {
		d.Newer = err.Error()
		return d
	}
	if err := s.CheckSlots(e.opt.Epoch); err != nil {
		if g.ended {
			d.Note = err.Error()
		}
		return d
	}
	unread := checkOthers(in)
	switch {
	case active.Pause != nil && active.Pause.Hard:
		if g.ended {
			d.Failing = nil // there is no next attempt
			d.Note = fmt.Sprintf("paused hard %s: %s; there is no election until %s", active.Pause.Request, g.reason,
				cluster.InGroup("'zkelectd resume'", cluster.GroupOf(e.opt.Group)))
		}
		return d
	case unread != nil && g.ended:
		d.Note = unread.Error()
		return d
	case g.ended && early == "" && (e.awaitsAnswers(b, r, g.cause != cluster.CauseOverdue, &d) || ok && e.awaits(b, &d)):
		return d
	case g.ended && !ok:
		d.electNobody(r, in.Now)
		return d
	case early != "":
		d.Note, d.Starting, d.Wake = early, true, cluster.Earliest(d.Wake, until)
		return d
	case g.ended:
		d.Elect = e.elect(b, r, g, b.choose(r, g.cause, active))
		return d
	}
	if unread == nil && !s.Acting { // a deputy only elects where there is no leader
		if d.Elect = e.replace(b, r, best, active, &d); d.Elect != nil {
			return d
		}
	}
	d.revokeIfDue(in)
	return d
}

// revokeIfDue revokes a holder that does not let go, which is not the elected member.
func (d *Decision) revokeIfDue(in Input) {
	if in.Revoke != "" && in.Snapshot.Current.Exists {
		d.Revoke = revoke(in)
	}
}

// electNobody notes why nobody can be elected.
func (d *Decision) electNobody(r rankedMembers, now time.Duration) {
	d.Note = "no member is eligible: " + r.Refusals()
	if d.Failing != nil {
		d.Note = d.Failing.Describe(false)
	}
	if r.DependsOnOthers() {
		d.Wake = cluster.Earliest(d.Wake, now+placementInterval)
	}
}

// trackEligible keeps track of since when each member has been eligible without a break.
func (e *Elector) trackEligible(r policy.Ranking, in Input) {
	next := make(map[string]time.Duration, len(r.Entries))
	for _, entry := range r.Entries {
		if !entry.Eligible() {
			continue
		}
		since, known := e.eligible[entry.Member.Name]
		if !known {
			since = e.firstSeen(in, entry.Member.Node.Record.Since)
		}
		next[entry.Member.Name] = since
	}
	e.eligible = next
}

// firstSeen returns since when something holds that was not known before, and that a record has a time of. Only a
// forecast trusts that time.
func (e *Elector) firstSeen(in Input, recorded time.Time) time.Duration {
	if !e.opt.Estimate || recorded.IsZero() {
		return in.Now
	}
	return in.Now - max(0, in.Wall.Sub(recorded))
}

// startupPeriod is for how long preemptions in a group that has just come up do not count for damping, because its
// members join one after the other.
const startupPeriod = time.Minute

// elect returns the record of a decision for best, on the given grounds.
func (e *Elector) elect(b rankingInput, r rankedMembers, g attemptEnd, best cluster.Member) *cluster.Elected {
	in, s := b.in, &b.in.Snapshot
	var verdicts []cluster.Verdict
	omitted := 0
	if !e.forecast {
		verdicts, omitted = r.Verdicts()
	}
	next := &cluster.Elected{
		Header:         s.Elected.Record.Header,
		Term:           e.lastKnown.Next(s, in.Wall),
		Node:           best.ID,
		Site:           best.Node.Record.Site,
		Incarnation:    best.Name,
		Cause:          g.cause,
		Reason:         g.reason,
		Request:        g.request.ID,
		RequestedBy:    g.request.By,
		By:             s.Self.Name,
		PreviousNode:   s.Elected.Record.Node,
		PreviousSite:   s.Elected.Record.Site,
		Ranking:        verdicts,
		RankingOmitted: omitted,
		Exclusions:     r.exclusions,
		PolicyRevision: in.Policy.Revision,
		Circumstances:  b.circumstances,
		Preemptions:    e.recentPreemptions(s.Elected.Record.Preemptions, in),
		Silent:         e.silentMembers(&b.in),
		Leaderless:     in.Leaderless,
		Time:           in.Wall,
	}
	if next.PreviousNode == "" && s.Fence.Readable() {
		next.PreviousNode, next.PreviousSite = s.Fence.Record.Node, s.Fence.Record.Site
	}
	if g.ended && !e.decided {
		e.firstDecisionAt = in.Now
	}
	e.decided = true
	if g.cause == cluster.CausePreempt && !newRevision(in) && (e.firstDecisionAt == 0 ||
		in.Now-e.firstDecisionAt >= startupPeriod) {
		next.Preemptions = append(next.Preemptions, cluster.Preemption{Term: next.Term, Time: in.Wall})
	}
	return next
}

// revoke returns the fence for a REVOKE. The holder's lease may still be running, so its durations stay in the fence,
// for the successor's lease wait. The fence is readable: an election has replaced one that is not.
func revoke(in Input) *cluster.Fence {
	f := in.Snapshot.Fence.Record
	f.End(in.Leaderless)
	f.State, f.Reason, f.Time = cluster.FenceRevoked, in.Revoke, in.Wall
	return &f
}
