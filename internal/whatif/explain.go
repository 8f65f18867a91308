package whatif

import (
	"fmt"
	"math"
	"strings"

	"zkelectd/internal/elector"
)

// Explain says why the leader is the leader, and what would change it.
func Explain(q Question) Explanation {
	out := Run(q)
	r := out.Last.Ranking
	e := Explanation{
		Preset: r.Preset, Revision: q.Policy.Revision, Circumstances: out.Last.Circumstances, Notes: append(r.Notes, out.Problems...),
		Members: []RankedMember{}, Holding: out.Last.Blocked, Waiting: q.Snapshot.Waiting(), Changes: []string{},
	}
	if rec := q.Snapshot.Elected.Record; q.Snapshot.Elected.Readable() {
		e.Leader, e.Site, e.Term, e.Cause, e.Reason = rec.Node, rec.Site, rec.Term, string(rec.Cause), rec.Reason
	}
	for _, step := range out.Steps {
		e.Leader, e.Site, e.Term, e.Cause, e.Reason = step.Node, step.Site, step.Term, string(step.Cause), "about to be elected: "+step.Reason
	}
	for i, entry := range r.Entries {
		m := RankedMember{Node: entry.Member.ID, Site: entry.Member.Node.Record.Site, Scores: []Score{}}
		if entry.Allowed() {
			m.Rank = i + 1
		}
		for _, refused := range entry.Refusals {
			m.Refusals = append(m.Refusals, Refusal{Filter: refused.Filter, Why: refused.Why})
		}
		for _, s := range entry.Scores {
			m.Scores = append(m.Scores, Score{Ranker: s.Ranker, Value: finite(s.Value), Words: s.Words})
		}
		e.Members = append(e.Members, m)
	}
	e.Changes = changes(q, out)
	return e
}

// finite is nil for what JSON can't hold.
func finite(v float64) *float64 {
	if math.IsInf(v, 0) || math.IsNaN(v) {
		return nil
	}
	return &v
}

// changes say what would have another member lead.
func changes(q Question, out Outcome) []string {
	r := out.Last.Ranking
	if !out.Led() {
		return []string{"nobody leads: " + elector.Refusals(r)}
	}
	var lines []string
	lost := q
	lost.Change.Without = []string{out.Leader.ID}
	if next := Run(lost); next.Led() {
		lines = append(lines, fmt.Sprintf("if %s is lost, %s (%s) leads", out.Leader.ID, next.Leader.ID, next.Leader.Node.Record.Site))
	} else {
		lines = append(lines, fmt.Sprintf("if %s is lost, NOBODY leads", out.Leader.ID))
	}
	after := false // the leader
	for _, entry := range r.Entries {
		switch {
		case entry.Member.Name == out.Leader.Name:
			after = true
		case entry.Allowed() && !after:
			lines = append(lines, fmt.Sprintf("%s comes before %s (%s); see what holds it back", entry.Member.ID, out.Leader.ID, r.Difference(entry.Member.Name, out.Leader.Name)))
		case !entry.Allowed():
			var why []string
			for _, refused := range entry.Refusals {
				why = append(why, refused.Why)
			}
			lines = append(lines, fmt.Sprintf("%s may not lead: %s", entry.Member.ID, strings.Join(why, "; ")))
		default:
			if d := r.Difference(out.Leader.Name, entry.Member.Name); d != "" {
				lines = append(lines, fmt.Sprintf("%s comes after %s: %s", entry.Member.ID, out.Leader.ID, d))
			}
		}
	}
	return lines
}
