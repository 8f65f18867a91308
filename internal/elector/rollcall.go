package elector

import (
	"cmp"
	"fmt"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

// rollCall is what an elector remembers of the roll call for an election that it wants to hold (docs/protocol.md, The
// roll call).
//
// Answers count only if they were asked for after the election became due, or once the lease that it ends was over: a
// leader that goes on working changes what they compare, so older ones could make a member lead that has less of the
// data than another one. So an election in a group with roll calls is made in two steps: who would be elected is found
// out by what members publish; and once the answers are there, everything is ranked again.
type rollCall struct {
	wanted bool          // the present decision wants an election
	due    bool          // so have all decisions since
	since  time.Duration // when that began
	term   int64         // the elected term then
	lost   bool          // no leader or candidate is at work, so this is no planned move
	called bool          // the roll was called for it
	number string        // the roll call that members are ranked by; empty while answers are awaited
	known  time.Duration // since when that has been so
	quiet  time.Duration // not before then does policy call the roll again
}

const (
	// answersAge is how long answers count if the election that they are for is not made. While a person has not
	// approved it they are not asked for again.
	answersAge = 30 * time.Second
	// rollCallPause is how long policy calls no roll after one that has not led to an election: what members publish
	// may go on to say that another one is better.
	rollCallPause = 30 * time.Second
)

// answers returns the number of the roll call by which members are ranked; empty for none.
func (r *rollCall) answers(s *cluster.Snapshot) string {
	if call, ok := s.Called(); r.due && ok && call.Number == r.number {
		return r.number
	}
	return ""
}

// end forgets the roll call if no election is wanted any more.
func (r *rollCall) end(elected int64, now time.Duration) {
	if r.wanted {
		return
	}
	quiet := r.quiet
	if (r.called || r.number != "") && r.term == elected {
		quiet = now + rollCallPause
	}
	*r = rollCall{quiet: quiet}
}

// awaitsAnswers reports whether an election that is wanted must wait for the answers to a roll call, or be considered
// again with them. It never waits longer than three times the timeout of a roll call (L1). r is the ranking that the
// election follows from; lost is set if neither a leader nor a candidate that is overdue may be at work. One that is
// lost while it is about to be replaced may have done much since the answers: they are asked for again.
func (e *Elector) awaitsAnswers(b rankingInput, r rankedMembers, lost bool, d *Decision) bool {
	s, rules, c := &b.in.Snapshot, b.in.Policy.Rules.RollCall, &e.rollCall
	hypothetical := e.forecast || e.opt.Estimate || b.in.Policy.Rules.Observe
	if !rules.Enabled || s.Slot != "" || hypothetical || s.RollCall.Newer() != nil || !r.mayAnswer(s, b.ended) {
		return false
	}
	now, wait := b.in.Now, rules.Wait()
	elected, _ := s.Terms()
	outlived := b.in.LeaseOver && c.since < killed(&b.in) // by a holder whose work may have begun since
	if !c.due || c.term != elected || c.lost != lost || outlived || c.number != "" && now-c.known >= answersAge &&
		!b.proposed {
		*c = rollCall{due: true, since: now, term: elected, lost: lost, quiet: c.quiet}
	}
	c.wanted = true
	call, fresh := e.freshCall(&b.in)
	from := c.since
	if fresh {
		from = cmp.Or(b.in.RollCallSeen, from)
	}
	until := min(from+wait, c.since+3*wait)
	switch {
	case fresh && call.Number == c.number:
		if !b.proposed {
			d.Wake = cluster.Earliest(d.Wake, c.known+answersAge)
		}
		return false
	case now < until && (!fresh || r.silentOn(call.Number)):
		d.AwaitsAnswers, d.CallRoll = true, !fresh
		c.called = c.called || d.CallRoll
		d.Wake = cluster.Earliest(d.Wake, until)
		return true
	case !fresh:
		return false // it could not be called: what members publish must do
	}
	c.number, c.known, d.again = call.Number, now, true
	if policy.UsesExec(b.in.Policy.Rules) { // the ranking program gets the answers first
		d.again, d.AwaitsAnswers, d.Wake = false, true, cluster.Earliest(d.Wake, now+time.Millisecond)
	}
	return true
}

// freshCall returns the present roll call, if it was called since the election is due, or, for one that takes over from a
// silent holder, once the guard had to kill its work. When this member has seen a roll call does not prove that: it may
// read late.
func (e *Elector) freshCall(in *Input) (call cluster.RollCall, ok bool) {
	call, ok = in.Snapshot.Called()
	if lease := in.Snapshot.LeaseAt(in.Lease); in.LeaseOver && lease != 0 {
		return call, ok && call.Lease == lease && in.Now-in.RollCallSeen < answersAge
	}
	return call, ok && in.RollCallSeen >= e.rollCall.since
}

// killed returns when a silent holder's guard had to kill its work; 0 if its lease was not seen.
func killed(in *Input) time.Duration {
	if in.Lease.At == 0 {
		return 0
	}
	return in.Lease.At + in.Snapshot.Fence.Record.KillWait(0)
}

// mayAnswer reports whether answers can make any difference: at least one member may lead by them, besides an elected
// one that must not.
func (r rankedMembers) mayAnswer(s *cluster.Snapshot, replaced bool) bool {
	for _, entry := range r.Entries {
		if entry.MayAnswer() && !(replaced && entry.Member.Name == s.Elected.Record.Incarnation) {
			return true
		}
	}
	return false
}

// silentOn reports whether a member that may lead has not answered a roll call yet.
func (r rankedMembers) silentOn(number string) bool {
	for _, entry := range r.Entries {
		if entry.MayAnswer() && entry.Member.AnswerTo(number) == nil {
			return true
		}
	}
	return false
}

// checkRollCall returns an error while policy must not call the roll again.
func (e *Elector) checkRollCall(in Input, d *Decision) error {
	c := &e.rollCall
	if !in.Policy.Rules.RollCall.Enabled || c.due || in.Now >= c.quiet {
		return nil
	}
	d.Wake = cluster.Earliest(d.Wake, c.quiet)
	ago := (rollCallPause - (c.quiet - in.Now)).Round(time.Second)
	return &heldError{reason: fmt.Sprintf("a roll call %s ago has not led to another leader", ago), until: c.quiet}
}
