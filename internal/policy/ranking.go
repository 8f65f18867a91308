package policy

import (
	"cmp"
	"fmt"
	"strings"
	"unicode/utf8"

	"zkelectd/internal/cluster"
)

// Ranking is the outcome, best first; those that may not lead come last.
type Ranking struct {
	Entries []Entry
	// Preset is what has ranked; Notes say what did not go as written.
	Preset string
	Notes  []string
	// Unanswered tells that the fallback has ranked, as exec has no ranking: good for an election, but no reason to move a
	// leader, or a program that fails now and then would move it to and fro (S3).
	Unanswered bool
}

// Entry is one member's place.
type Entry struct {
	Member cluster.Member
	// Refusals are the filters that do not let the member lead; none if it may.
	Refusals []Refusal
	// Scores are those of the rankers, in their order.
	Scores []Score
}

// Refusal is a filter's verdict.
type Refusal struct{ Filter, Why string }

// Score is a ranker's verdict, with the value in words where they are worth any.
type Score struct {
	Ranker string
	Value  float64
	Words  string
}

// Allowed tells that the member may lead.
func (e Entry) Allowed() bool { return len(e.Refusals) == 0 }

// Refused is why the member may not lead, the first reason; empty if it may.
func (e Entry) Refused() string {
	if e.Allowed() {
		return ""
	}
	return e.Refusals[0].Why
}

func compare(a, b []Score) int {
	for i := range min(len(a), len(b)) {
		if c := cmp.Compare(a[i].Value, b[i].Value); c != 0 {
			return c
		}
	}
	return 0
}

// Best is the first that may lead.
func (r Ranking) Best() (cluster.Member, bool) {
	if len(r.Entries) == 0 || !r.Entries[0].Allowed() {
		return cluster.Member{}, false
	}
	return r.Entries[0].Member, true
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

// maxVerdicts bounds the record in large groups: it must stay far below ZooKeeper's limit of 1 MB a znode.
const maxVerdicts = 250

// Verdicts puts the ranking in words for the elected record, and says how many members were left out.
func (r Ranking) Verdicts() (verdicts []cluster.Verdict, omitted int) {
	n := min(len(r.Entries), maxVerdicts)
	verdicts = make([]cluster.Verdict, 0, n)
	for i, e := range r.Entries[:n] {
		v := cluster.Verdict{Node: e.Member.ID, Site: clip(e.Member.Node.Record.Site), Incarnation: e.Member.Name, Why: clip(e.Refused())}
		if e.Allowed() {
			v.Rank, v.Why = i+1, clip(e.words())
		}
		verdicts = append(verdicts, v)
	}
	return verdicts, len(r.Entries) - n
}

// maxWords bounds what a verdict quotes of a member's record: whatever is in there, a decision with maxVerdicts of them must
// not outgrow [cluster.MaxRecord], or nobody could read it.
const maxWords = 200

// clip shortens a quotation to what takes maxWords bytes in JSON.
func clip(s string) string {
	taken := 0
	for i, r := range s {
		cost := utf8.RuneLen(r)
		if r < ' ' || strings.ContainsRune(`"\<>&`, r) || r == utf8.RuneError {
			cost = 6 // as JSON escapes it
		}
		if taken += cost; taken > maxWords {
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

// Difference says in words what puts a before b: the first ranker that tells them apart.
func (r Ranking) Difference(a, b string) string {
	x, okX := r.Find(a)
	y, okY := r.Find(b)
	if !okX || !okY {
		return ""
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
