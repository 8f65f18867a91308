package policy

import (
	"cmp"
	"fmt"
	"strings"
	"unicode/utf8"

	"zkelectd/internal/cluster"
)

// Ranking is the result of [Policy.Rank]: the best member first, members that are not eligible last.
type Ranking struct {
	Entries []Entry
	// PolicyType is the policy type that was used; Notes say where the policy could not be followed as written.
	PolicyType string
	Notes      []string
	// Unanswered is set if the fallback was used because the ranking program has no answer. Such a ranking is good enough
	// for an election, but never preempts a leader: a program that fails now and then would move it back and forth (S3).
	Unanswered bool
	// RollCall is as in [Input].
	RollCall string
}

// Refusals describes why members are not eligible; empty if all of them are.
func (r Ranking) Refusals() string {
	if len(r.Entries) == 0 {
		return "no member is registered"
	}
	var all []string
	more := 0
	for _, entry := range r.Entries {
		switch {
		case entry.Eligible():
		case len(all) < 5:
			all = append(all, entry.Member.ID+": "+entry.RefusalReason())
		default:
			more++
		}
	}
	if more > 0 {
		all = append(all, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, "; ")
}

// Entry is one member's place.
type Entry struct {
	// Member is one of [Input.Members], which must not change as long as the ranking is used: a member is too large to
	// be copied for each of thousands.
	Member *cluster.Member
	// Refusals are the filters that the member does not pass; none if it is eligible.
	Refusals []Refusal
	// Scores are the rankers' scores, in the order of the rankers.
	Scores []Score
}

// Refusal is the reason why a filter does not let a member lead.
type Refusal struct {
	Filter string `json:"filter"`
	Reason string `json:"reason"`
}

// Score is a ranker's score, described in words that may be empty.
type Score struct {
	Ranker string
	Value  float64
	Words  string
}

// Eligible reports whether the member is eligible.
func (e Entry) Eligible() bool { return len(e.Refusals) == 0 }

// EligibleOrExcluded reports whether the member is eligible, or would be without an exclusion.
func (e Entry) EligibleOrExcluded() bool {
	return e.Eligible() || len(e.Refusals) == 1 && e.Refusals[0].Filter == ExcludedFilter
}

// RefusalReason returns the first reason why the member is not eligible; empty if it is.
func (e Entry) RefusalReason() string {
	if e.Eligible() {
		return ""
	}
	return e.Refusals[0].Reason
}

func compare(a, b []Score) int {
	for i := range min(len(a), len(b)) {
		if c := cmp.Compare(a[i].Value, b[i].Value); c != 0 {
			return c
		}
	}
	return 0
}

// Best returns the best eligible member.
func (r Ranking) Best() (cluster.Member, bool) {
	if len(r.Entries) == 0 || !r.Entries[0].Eligible() {
		return cluster.Member{}, false
	}
	return *r.Entries[0].Member, true
}

// Find returns the entry of an incarnation.
func (r Ranking) Find(incarnation string) (Entry, bool) {
	for _, e := range r.Entries {
		if e.Member.Name == incarnation {
			return e, true
		}
	}
	return Entry{}, false
}

// Each member reads the elected record after each election. So that of a group with more than maxVerdicts members holds
// only the first verdicts: those of the member that is elected, and of those that come next.
const (
	maxVerdicts   = 50
	firstVerdicts = 12
)

// Verdicts returns the ranking as the elected record holds it, and how many members were left out.
func (r Ranking) Verdicts() (verdicts []cluster.Verdict, omitted int) {
	n := len(r.Entries)
	if n > maxVerdicts {
		n = firstVerdicts
	}
	verdicts = make([]cluster.Verdict, 0, n)
	for i, e := range r.Entries[:n] {
		v := cluster.Verdict{Node: e.Member.ID, Site: clip(e.Member.Node.Record.Site), Incarnation: e.Member.Name,
			Reason: clip(e.RefusalReason())}
		if e.Eligible() {
			v.Rank, v.Reason = i+1, clip(e.words())
		}
		if a := e.Member.AnswerTo(r.RollCall); a != nil && r.RollCall != "" {
			v.Answer = &cluster.Answer{Score: a.Score, Why: clip(a.Why)}
		}
		verdicts = append(verdicts, v)
	}
	return verdicts, len(r.Entries) - n
}

// maxWords bounds what a verdict quotes of a member's record. Whatever that record contains, a decision with
// maxVerdicts verdicts must not outgrow [cluster.MaxRecord], or no daemon could read it.
const maxWords = 200

// clip shortens a text to at most maxWords bytes in JSON.
func clip(s string) string {
	size := 0
	for i, r := range s {
		cost := utf8.RuneLen(r)
		if r < ' ' || strings.ContainsRune(`"\<>&`, r) || r == utf8.RuneError {
			cost = 6 // as JSON escapes it
		}
		if size += cost; size > maxWords {
			return s[:i] + "…"
		}
	}
	return s
}

func (e Entry) words() string {
	var all []string
	for _, s := range e.Scores {
		if s.Words != "" {
			all = append(all, s.Words)
		}
	}
	return strings.Join(all, ", ")
}

// Difference describes why a ranks before b: b is not eligible, or the first ranker whose scores differ.
func (r Ranking) Difference(a, b string) string {
	x, okX := r.Find(a)
	y, okY := r.Find(b)
	switch {
	case !okX || !okY:
		return ""
	case !y.Eligible():
		return fmt.Sprintf("%s is not eligible: %s", y.Member.ID, y.RefusalReason())
	}
	for i := range min(len(x.Scores), len(y.Scores)) {
		s, t := x.Scores[i], y.Scores[i]
		switch {
		case s.Value == t.Value:
		case s.Words != "" && t.Words != "":
			return s.Words + " against " + t.Words
		case s.Words != "":
			return s.Words
		default:
			return fmt.Sprintf("by %s: not %s", s.Ranker, t.Words)
		}
	}
	return "it is older"
}
