// Package policy decides which members may lead and who is the best of them, and says why. A policy is a list of
// filters and a list of rankers, compared lexicographically. It is pure.
package policy

import (
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
	// Circumstances are those of the election, or of the decision that stands.
	Circumstances cluster.Circumstances
	// Barred names incarnations that must not be chosen, with the reason.
	Barred map[string]string
	// Excluded names nodes that the watchdog has excluded, with the reason.
	Excluded map[string]string
	// Cordons are those in force, Move the one in force, nil for none.
	Cordons []cluster.Cordon
	Move    *cluster.Move
	// Answer is that of the exec policy's program, nil while there is none.
	Answer *Answer
}

// Answer is the ranking of an exec policy's program, best first, by node id; or why there is none.
type Answer struct {
	Order []string
	Err   string
}

// Ranker gives each member of an input a score, higher first, and the score in words; none if it is not worth any.
type Ranker interface {
	Name() string
	For(in Input) func(m cluster.Member) (score float64, words string)
}

// Policy ranks members. It is immutable.
type Policy struct {
	Revision   int64
	Rules      cluster.Rules
	filters    []filter
	strategies []strategy
	presets    map[string]preset
}

// New compiles a policy record. The error names the key at fault.
func New(rec cluster.Policy) (*Policy, error) {
	p := &Policy{Revision: rec.Revision, Rules: rec.Rules}
	err := checkNumbers(rec.Rules)
	if err != nil {
		return nil, err
	}
	if p.presets, err = presets(rec.Rules); err != nil {
		return nil, err
	}
	if p.strategies, err = compileStrategies(rec.Rules, p.presets); err != nil {
		return nil, err
	}
	if p.filters, err = filters(rec.Rules); err != nil {
		return nil, err
	}
	return p, nil
}

// checkNumbers refuses what makes no sense, should somebody else have written the record.
func checkNumbers(r cluster.Rules) error {
	if !slices.Contains([]string{"", cluster.FailbackImmediate, cluster.FailbackDelayed, cluster.FailbackManual}, r.Failback) {
		return fmt.Errorf("election.failback.mode: %q is not one of immediate, delayed, manual", r.Failback)
	}
	if r.MaxPreemptions < 0 {
		return fmt.Errorf("election.max_preemptions: %d is negative", r.MaxPreemptions)
	}
	if r.Hysteresis < 0 {
		return fmt.Errorf("policy.hysteresis: %d is negative", r.Hysteresis)
	}
	return nil
}

// Rank orders the members. It is deterministic: the incarnation breaks the last tie.
func (p *Policy) Rank(in Input) Ranking {
	use, notes, unanswered := p.choose(in)
	rankers := append([]Ranker{moveRanker{}}, use.rankers...)
	scorers := make([]func(cluster.Member) (float64, string), len(rankers))
	for i, r := range rankers {
		scorers[i] = r.For(in)
	}
	filters := slices.Concat(p.filters, use.filters)
	refusers := make([]func(cluster.Member) string, len(filters))
	for i, f := range filters {
		refusers[i] = f.bound(in)
	}
	entries := make([]Entry, 0, len(in.Members))
	for _, m := range in.Members {
		e := Entry{Member: m}
		for i, refuses := range refusers {
			if why := refuses(m); why != "" {
				e.Refusals = append(e.Refusals, Refusal{filters[i].name, why})
			}
		}
		for i, score := range scorers {
			value, words := score(m)
			e.Scores = append(e.Scores, Score{rankers[i].Name(), value, words})
		}
		entries = append(entries, e)
	}
	cluster.OldestFirst(entries, func(e Entry) cluster.Incarnation { return e.Member.Incarnation })
	slices.SortStableFunc(entries, func(a, b Entry) int {
		if a.Allowed() != b.Allowed() {
			if a.Allowed() {
				return -1
			}
			return 1
		}
		return compare(b.Scores, a.Scores)
	})
	return Ranking{Entries: entries, Preset: use.name, Notes: notes, Unanswered: unanswered}
}

// choose finds the preset that decides: that of the first strategy whose condition holds, else the policy's type.
func (p *Policy) choose(in Input) (use preset, notes []string, unanswered bool) {
	name := p.typeName()
	for _, s := range p.strategies {
		holds, err := s.holds(in)
		if err != nil {
			notes = append(notes, fmt.Sprintf("the strategy %q is passed over: %v", s.when, err))
			continue
		}
		if holds {
			name = s.use
			break
		}
	}
	if name == execPreset && (in.Answer == nil || in.Answer.Err != "") {
		why := "its program has not answered"
		if in.Answer != nil {
			why = in.Answer.Err
		}
		notes = append(notes, fmt.Sprintf("exec has no ranking, %s decides: %s", fallback(p.Rules), why))
		name, unanswered = fallback(p.Rules), true
	}
	return p.presets[name], notes, unanswered
}

func (p *Policy) typeName() string {
	if len(p.Rules.Rank) > 0 {
		return listPreset
	}
	return p.Rules.Type
}

// WantsAnswer tells that under this input the ranking is that of an exec policy's program.
func (p *Policy) WantsAnswer(in Input) bool {
	in.Answer = &Answer{}
	use, _, _ := p.choose(in)
	return use.name == execPreset
}

// Problems are what is odd about the policy among these members, though it can be used.
func (p *Policy) Problems(members []cluster.Member) []string {
	here := make(map[string]bool)
	for _, m := range members {
		here[m.Node.Record.Site] = true
	}
	var missing []string
	for site := range p.Rules.Sites {
		if !here[site] {
			missing = append(missing, site)
		}
	}
	if len(missing) == 0 || len(members) == 0 {
		return nil
	}
	slices.Sort(missing)
	return []string{fmt.Sprintf("policy.sites names %s, where no member is", strings.Join(missing, ", "))}
}
