package cluster

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// RollCall is the record of rollcall: it asks every member to measure its score now, since what they publish is
// smoothed and seconds old, and to answer in the record of its node (docs/protocol.md, The roll call). No transaction
// checks it: an election that knows no answers is as safe as one that does.
type RollCall struct {
	Header
	// Term is that of the decision that is about to be replaced; 0 before the first. Once there is another one, nobody
	// answers any more.
	Term int64 `json:"term"`
	// Number is random, from [NewInstance]. Answers repeat it.
	Number string `json:"number"`
	// Lease is the [Snapshot.LeaseAt] that the caller had seen unchanged for three quarters of W; 0 for a roll call for
	// another reason.
	Lease int64 `json:"lease,omitempty"`
	// Timeout is how long the caller waits for answers.
	Timeout Duration `json:"timeout"`
	// By is the incarnation of the elector or deputy that calls.
	By string `json:"by"`
	// Time is when it was written, by that member's clock; for people.
	Time time.Time `json:"time"`
}

// MaxRollCall bounds the timeout of a roll call.
const MaxRollCall = time.Minute

func (r *RollCall) validate(stat Stat) error {
	if len(r.Number) != instanceDigits {
		return fmt.Errorf("the number has %d bytes, not %d", len(r.Number), instanceDigits)
	}
	if time.Duration(r.Timeout) > MaxRollCall {
		return fmt.Errorf("the timeout of %s is above %s", r.Timeout, MaxRollCall)
	}
	return checkTerm(r.Term, stat, TermSlack)
}

// Answer is a node's answer to a roll call: the score that it has measured for it, or why it has none.
type Answer struct {
	// Number is that of the roll call.
	Number string   `json:"number,omitempty"`
	Score  *float64 `json:"score,omitempty"`
	Why    string   `json:"why,omitempty"`
}

// RollCallRules say whether members measure their scores for each election.
type RollCallRules struct {
	Enabled bool `json:"enabled,omitempty"`
	// Timeout is how long an election waits for them.
	Timeout Duration `json:"timeout,omitempty"`
}

// Wait returns how long an election waits for answers, also if the rules come from elsewhere.
func (r RollCallRules) Wait() time.Duration { return min(time.Duration(r.Timeout), MaxRollCall) }

// Called returns the roll call for the decision that is to replace the present one; ok is false if there is none.
func (s *Snapshot) Called() (call RollCall, ok bool) {
	elected, _ := s.Terms()
	if !s.RollCall.Readable() || s.RollCall.Record.Term != elected {
		return RollCall{}, false
	}
	return s.RollCall.Record, true
}

// LeaseAt returns the transaction that has granted or renewed the present lease last, by what was read of its znode; 0 if
// that was not read, or if the holder may work on by promises without renewals. A change of the fence can grant one, too.
func (s *Snapshot) LeaseAt(seen LeaseZnodeSeen) int64 {
	if f := s.Fence.Record.Failsafe; seen.Stat.Modified == 0 || f != nil && len(f.Members) > 0 {
		return 0
	}
	return max(seen.Stat.Modified, s.Fence.Stat.Modified)
}

// AnswerTo returns the member's answer to the roll call with a number; nil if it has not answered that one.
func (m *Member) AnswerTo(number string) *Answer {
	a := m.Node.Record.Answer
	if !m.Node.Readable() || a == nil || a.Number != number {
		return nil
	}
	return a
}

// WithAnswers returns the members with their answers to the roll call with a number as their scores. A member that has
// not answered has none: what it has published is not comparable.
func WithAnswers(members []Member, number string) []Member {
	members = slices.Clone(members)
	for i := range members {
		var score *float64
		if a := members[i].AnswerTo(number); a != nil {
			score = a.Score
		}
		members[i].Node.Record.Score = score
	}
	return members
}

// RankedAnswer is what a member has answered to the roll call for a decision, for people.
type RankedAnswer struct {
	Node  string   `json:"node"`
	Score *float64 `json:"score,omitempty"`
	// Why says why there is no score.
	Why string `json:"why,omitempty"`
}

func (a RankedAnswer) String() string {
	if a.Score == nil {
		return a.Node + " none (" + a.Why + ")"
	}
	return a.Node + " " + strconv.FormatFloat(*a.Score, 'f', -1, 64)
}

// AnswersIn returns the answers that have led to a decision, in the order of its ranking; nil if no roll was called for
// it.
func AnswersIn(ranking []Verdict) []RankedAnswer {
	if !slices.ContainsFunc(ranking, func(v Verdict) bool { return v.Answer != nil }) {
		return nil
	}
	var all []RankedAnswer
	for _, v := range ranking {
		a := RankedAnswer{Node: v.Node, Why: "no answer"}
		if v.Answer != nil {
			a.Score, a.Why = v.Answer.Score, v.Answer.Why
		}
		all = append(all, a)
	}
	return all
}

// DescribeAnswers returns answers as one text.
func DescribeAnswers(list []RankedAnswer) string {
	texts := make([]string, len(list))
	for i, a := range list {
		texts[i] = a.String()
	}
	return strings.Join(texts, ", ")
}

// RollCallTx returns the write of a roll call by an elector or a deputy, whose incarnation is self.
func (p Paths) RollCallTx(self string, read Stored[RollCall], next RollCall) []Op {
	return []Op{p.alive(self), writeOp(p.RollCall(), read, Encode(&next))}
}

// RollCallSeen remembers when a member has first seen the present roll call. Answers count only if they were asked for
// after a loss: so one that was there when the member began to look counts as old, unless it names the lease.
type RollCallSeen struct {
	looked bool
	number string
	at     time.Duration
}

// Observe notes the roll call of a snapshot, which was received at now on the member's monotonic clock.
func (r *RollCallSeen) Observe(s *Snapshot, now time.Duration) {
	number := s.RollCall.Record.Number
	if number != r.number {
		r.number, r.at = number, 0
		if r.looked {
			r.at = now
		}
	}
	r.looked = true
}

// At returns when the present roll call was first seen; 0 if there is none, or if it was there before.
func (r *RollCallSeen) At() time.Duration { return r.at }
