// Package policy decides which members may lead and who is the best of them, and says why. A policy is a list of
// filters and a list of rankers, compared lexicographically. It is pure.
package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"zkelectd/internal/cluster"
)

// Input is what a ranking is made from.
type Input struct {
	Members []cluster.Member
	// Incumbent is the incarnation that is elected and whose attempt goes on; empty if there is none.
	Incumbent string
	// Barred names incarnations that must not be chosen, with the reason.
	Barred map[string]string
	// Excluded names nodes that the watchdog has excluded, with the reason.
	Excluded map[string]string
}

// Filter says whether a member may lead; why is for people and only read where it may not.
type Filter interface {
	Name() string
	Allow(m cluster.Member, in Input) (ok bool, why string)
}

// Ranker gives a member a score, higher first, and the score in words; none if it is not worth any.
type Ranker interface {
	Name() string
	Score(m cluster.Member, in Input) (score float64, words string)
}

// Policy ranks members. It is immutable.
type Policy struct {
	Revision int64
	filters  []Filter
	rankers  []Ranker
}

// New compiles a policy record. The error names the key at fault.
func New(rec cluster.Policy) (*Policy, error) {
	p := &Policy{Revision: rec.Revision, filters: []Filter{recordFilter{}, eligibleFilter{}, barredFilter{}, excludedFilter{}}}
	switch rec.Type {
	case "priority":
		p.rankers = []Ranker{siteRanker(rec.Sites), priorityRanker{}, incumbentRanker{}, oldestRanker{}}
	default:
		return nil, fmt.Errorf("policy.type: %q is not a policy: want one of %s", rec.Type, strings.Join(Types(), ", "))
	}
	return p, nil
}

// Types lists the values of policy.type.
func Types() []string { return []string{"priority"} }

// Ranking is the outcome, best first; those that may not lead come last.
type Ranking struct {
	Entries []Entry
}

// Entry is one member's place.
type Entry struct {
	Member cluster.Member
	// Refused is why the member may not lead; empty if it may.
	Refused string
	// By names the filter that refused.
	By     string
	scores []float64
	words  []string
}

// Best is the first that may lead.
func (r Ranking) Best() (cluster.Member, bool) {
	if len(r.Entries) == 0 || r.Entries[0].Refused != "" {
		return cluster.Member{}, false
	}
	return r.Entries[0].Member, true
}

// Allows tells whether the incarnation is a member that may lead.
func (r Ranking) Allows(incarnation string) (ok bool, why string) {
	for _, e := range r.Entries {
		if e.Member.Name == incarnation {
			return e.Refused == "", e.Refused
		}
	}
	return false, "not a member"
}

// Rank orders the members. It is deterministic: the incarnation breaks the last tie.
func (p *Policy) Rank(in Input) Ranking {
	entries := make([]Entry, 0, len(in.Members))
	for _, m := range in.Members {
		entries = append(entries, p.judge(m, in))
	}
	slices.SortStableFunc(entries, func(a, b Entry) int {
		if (a.Refused == "") != (b.Refused == "") {
			if a.Refused == "" {
				return -1
			}
			return 1
		}
		return cmp.Or(slices.Compare(b.scores, a.scores), cluster.Older(a.Member.Incarnation, b.Member.Incarnation))
	})
	return Ranking{Entries: entries}
}

func (p *Policy) judge(m cluster.Member, in Input) Entry {
	e := Entry{Member: m}
	for _, f := range p.filters {
		if ok, why := f.Allow(m, in); !ok {
			e.Refused, e.By = why, f.Name()
			return e
		}
	}
	for _, r := range p.rankers {
		score, words := r.Score(m, in)
		e.scores = append(e.scores, score)
		e.words = append(e.words, words)
	}
	return e
}

// maxVerdicts bounds the record in large groups: it must stay far below ZooKeeper's limit of 1 MB a znode.
const maxVerdicts = 250

// Verdicts puts the ranking in words for the elected record, and says how many members were left out.
func (r Ranking) Verdicts() (verdicts []cluster.Verdict, omitted int) {
	n := min(len(r.Entries), maxVerdicts)
	verdicts = make([]cluster.Verdict, 0, n)
	for i, e := range r.Entries[:n] {
		v := cluster.Verdict{Node: e.Member.ID, Site: e.Member.Node.Record.Site, Incarnation: e.Member.Name}
		if e.Refused != "" {
			v.Why = e.Refused
		} else {
			v.Rank = i + 1
			v.Why = strings.Join(slices.DeleteFunc(slices.Clone(e.words), func(w string) bool { return w == "" }), ", ")
		}
		verdicts = append(verdicts, v)
	}
	return verdicts, len(r.Entries) - n
}

// Difference says in words what puts a before b: the first ranker that tells them apart.
func (r Ranking) Difference(a, b string) string {
	var x, y *Entry
	for i := range r.Entries {
		switch r.Entries[i].Member.Name {
		case a:
			x = &r.Entries[i]
		case b:
			y = &r.Entries[i]
		}
	}
	if x == nil || y == nil {
		return ""
	}
	for i := range min(len(x.scores), len(y.scores)) {
		if x.scores[i] != y.scores[i] {
			return strings.TrimSuffix(x.words[i]+" against "+y.words[i], " against ")
		}
	}
	return ""
}
