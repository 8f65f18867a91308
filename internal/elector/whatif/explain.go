package whatif

import (
	"fmt"
	"math"
	"strings"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

// Explanation says why the leader is the leader, and what would change it.
type Explanation struct {
	Leader string `json:"leader,omitempty"`
	Site   string `json:"site,omitempty"`
	Term   int64  `json:"term,omitempty"`
	Cause  string `json:"cause,omitempty"`
	Reason string `json:"reason,omitempty"`
	// NoLeader says why there is no leader; empty if there is one.
	NoLeader string `json:"no_leader,omitempty"`
	// PolicyType is the one that ranked the members, Revision is the policy's, Circumstances is what the ranking takes
	// into account.
	PolicyType    string                `json:"policy_type"`
	Revision      int64                 `json:"policy_revision"`
	Circumstances cluster.Circumstances `json:"circumstances"`
	Notes         []string              `json:"notes,omitempty"`
	Members       []RankedMember        `json:"members"`
	// Waiting says how long, and why, the leader waits before it starts its work; empty if it does not wait.
	Waiting string `json:"waiting,omitempty"`
	// RollCall has the answers that have led to the decision in force; nil if the members were not asked.
	RollCall []cluster.RankedAnswer `json:"roll_call,omitempty"`
	// Stuck says why the member that holds leadership can't give it up, as its daemon has said; empty if that is not
	// known to be so. Its caller fills it in: ZooKeeper does not have it.
	Stuck string `json:"stuck,omitempty"`
	// Fencing has the attempts of this leader to fence earlier ones.
	Fencing []cluster.FencingResult `json:"fencing,omitempty"`
	// Heir is the node that would lead if the leader was lost; empty if none would.
	Heir string `json:"heir,omitempty"`
	// Blocked says why a better member does not take over, Changes what would change the outcome.
	Blocked string   `json:"preemption_blocked,omitempty"`
	Changes []string `json:"changes"`
}

// RankedMember is one member's place in the ranking, with the reasons.
type RankedMember struct {
	Rank     int              `json:"rank"` // 0 if the member is not eligible
	Node     string           `json:"node"`
	Site     string           `json:"site"`
	Refusals []policy.Refusal `json:"refusals,omitempty"`
	Scores   []Score          `json:"scores"`
}

// Score is what a ranker gives a member, as a number and in words.
type Score struct {
	Ranker string   `json:"ranker"`
	Value  *float64 `json:"value"` // null if there is none
	Words  string   `json:"words,omitempty"`
}

// Explain returns why the leader is the leader, and what would change that.
func Explain(q Question) Explanation {
	out := Run(q)
	r := out.Last.Ranking
	e := Explanation{
		PolicyType: r.PolicyType, Revision: q.Policy.Revision, Circumstances: out.Last.Circumstances,
		Notes:   append(r.Notes, out.Problems...),
		Members: []RankedMember{}, Blocked: out.Blocked, Waiting: q.Snapshot.Waiting(), Fencing: q.Snapshot.FencingResults(),
		RollCall: cluster.AnswersIn(q.Snapshot.Elected.Record.Ranking),
	}
	if c, rec := q.Snapshot.Current, q.Snapshot.Elected; c.Readable() && rec.Readable() &&
		c.Record.Term < rec.Record.Term {
		e.Waiting = fmt.Sprintf("until %s gives up leadership, which it has held since term %d", c.Record.Node, c.Record.Term)
	}
	next := Succession(q, out.Leader.ID)
	e.Changes = describeChanges(out, next)
	if out.HasLeader() {
		e.Heir = next.Leader.ID
	}
	if rec := q.Snapshot.Elected.Record; !out.HasLeader() {
		e.NoLeader = out.WhyNoLeader()
	} else if q.Snapshot.Elected.Readable() {
		e.Leader, e.Site, e.Term, e.Cause, e.Reason = rec.Node, rec.Site, rec.Term, string(rec.Cause), rec.Reason
	}
	for _, step := range out.Steps {
		e.Leader, e.Site, e.Term, e.Cause, e.Reason = step.Node, step.Site, step.Term, string(step.Cause),
			"about to be elected: "+step.Reason
	}
	for i, entry := range r.Entries {
		e.Members = append(e.Members, explainEntry(entry, i+1))
	}
	return e
}

func explainEntry(entry policy.Entry, rank int) RankedMember {
	m := RankedMember{Node: entry.Member.ID, Site: entry.Member.Node.Record.Site, Refusals: entry.Refusals,
		Scores: []Score{}}
	if entry.Eligible() {
		m.Rank = rank
	}
	for _, s := range entry.Scores {
		m.Scores = append(m.Scores, Score{Ranker: s.Ranker, Value: finiteOrNil(s.Value), Words: s.Words})
	}
	return m
}

// finiteOrNil returns nil for values that JSON cannot represent.
func finiteOrNil(v float64) *float64 {
	if math.IsInf(v, 0) || math.IsNaN(v) {
		return nil
	}
	return &v
}

// describeChanges says what would make another member the leader. next is the outcome if the leader is lost.
func describeChanges(out, next Outcome) []string {
	if !out.HasLeader() {
		return []string{"there is no leader: " + out.WhyNoLeader()}
	}
	lines := []string{describeLoss(out.Leader.ID, next)}
	better := true // than the leader
	for _, entry := range out.Last.Ranking.Entries {
		if entry.Member.Name == out.Leader.Name {
			better = false
		} else if line := compare(out, entry, better); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// describeLoss says what the loss of the leader would lead to.
func describeLoss(leader string, next Outcome) string {
	if next.HasLeader() {
		return fmt.Sprintf("if %s is lost, %s (%s) leads", leader, next.Leader.ID, next.Leader.Node.Record.Site)
	}
	return fmt.Sprintf("if %s is lost, there is no leader: %s", leader, next.WhyNoLeader())
}

// compare says why the member of an entry is not the leader; better is set if it is ranked before it.
func compare(out Outcome, entry policy.Entry, better bool) string {
	r, leader, id := out.Last.Ranking, out.Leader, entry.Member.ID
	switch {
	case !entry.Eligible():
		var why []string
		for _, refusal := range entry.Refusals {
			why = append(why, refusal.Reason)
		}
		return fmt.Sprintf("%s is not eligible: %s", id, strings.Join(why, "; "))
	case better:
		return fmt.Sprintf("%s comes before %s (%s); see Blocked", id, leader.ID, r.Difference(entry.Member.Name,
			leader.Name))
	}
	if difference := r.Difference(leader.Name, entry.Member.Name); difference != "" {
		return fmt.Sprintf("%s comes after %s: %s", id, leader.ID, difference)
	}
	return ""
}
