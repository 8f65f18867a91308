// Package policy decides which members are eligible, ranks them, and explains both. A policy is a list of filters, all
// of which a member must pass, and a list of rankers, whose scores are compared lexicographically (docs/policies.md).
// It is pure.
package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/vm"

	"zkelectd/internal/cluster"
)

// Input is everything that a ranking depends on besides the policy.
type Input struct {
	Members []cluster.Member
	// Incumbent is the incarnation that is elected and whose attempt is not over; empty if there is none.
	Incumbent string
	// Lapsed is set if the incumbent's lease has ended in an outage: it is ranked as if it led, but its work was killed.
	Lapsed bool
	// Circumstances are those of the election, or of the decision in force.
	Circumstances cluster.Circumstances
	// Barred names incarnations that must not be elected, with the reason.
	Barred map[string]string
	// Silent names the incarnations of lost hosts that are still registered: they do not count as members for
	// expressions, for a ranking program and for means. They must be in Barred as well.
	Silent map[string]bool
	// Excluded names nodes that the watchdog has excluded, with the reason.
	Excluded map[string]string
	// Cordons are the cordons in force, Move is the move in force or nil.
	Cordons []cluster.Cordon
	Move    *cluster.Move
	// Answer is the ranking program's, nil while there is none.
	Answer *Answer
	// RollCall is the number of the roll call by whose answers the members are ranked, which are their scores then, see
	// [cluster.WithAnswers]; empty if they are ranked by what they publish.
	RollCall string
	// Held is for how many other slots a node is elected, by its id, and PerNode for how many it may be; 0 in a group
	// with one leader.
	Held    map[string]int
	PerNode int

	// Group is the name of the group, with its slot if there is one.
	Group string
	// Reelect is set for an operator's reelection, in which fewest may replace the incumbent.
	Reelect bool
	// Load is how many leaderships each node has, by its id, without that of the group that is ranked. Each slot
	// counts as one. A node that is missing leads nothing, as far as is known.
	Load map[string]int
	// Peers has the id of the node that is elected in other groups, by their names. It is empty while there is none,
	// and a group of which nothing is known is missing. Relations are those of other groups.
	Peers     map[string]string
	Relations Graph
}

// Answer is the answer of an exec policy's ranking program: node ids, best first; or Err, the reason why there is none.
type Answer struct {
	Ranking []string
	Err     string
}

// Policy is a compiled policy. It is immutable.
type Policy struct {
	Revision   int64
	Rules      cluster.Rules
	filters    []filter
	strategies []strategy
	types      map[string]policyType
	compared   []expression
	confirm    *vm.Program // nil if no election waits for a person
}

// New compiles a policy record. The error names the setting at fault.
func New(rec cluster.Policy) (*Policy, error) {
	p := &Policy{Revision: rec.Revision, Rules: rec.Rules}
	err := checkValues(rec.Rules)
	if err != nil {
		return nil, err
	}
	if p.types, err = compileTypes(rec.Rules); err != nil {
		return nil, err
	}
	if p.strategies, err = compileStrategies(rec.Rules, p.types); err != nil {
		return nil, err
	}
	if p.filters, err = filters(rec.Rules); err != nil {
		return nil, err
	}
	if text := rec.Rules.Confirm; text != "" {
		if p.confirm, err = compile("policy.confirm", text, exprEnv{}, expr.AsBool()); err != nil {
			return nil, err
		}
	}
	p.compared = expressionsOf(rec.Rules)
	return p, nil
}

// checkValues rejects values that the configuration would reject: the record may come from elsewhere.
func checkValues(r cluster.Rules) error {
	if _, _, err := cluster.ParseFailback(r.Failback); err != nil {
		return fmt.Errorf("policy.failback: %w", err)
	}
	if _, err := cluster.ParseConfirmAfter(r.ConfirmAfter); err != nil {
		return fmt.Errorf("policy.confirm_after: %w", err)
	}
	if r.MaxPreemptions < 0 {
		return fmt.Errorf("policy.max_preemptions: %d is negative", r.MaxPreemptions)
	}
	if by := r.SpreadBy; by != "" && by != cluster.SpreadByHost && by != cluster.SpreadBySite {
		return fmt.Errorf("policy.spread_by: %q is not %s or %s", by, cluster.SpreadByHost, cluster.SpreadBySite)
	}
	if r.Hysteresis < 0 {
		return fmt.Errorf("policy.hysteresis: %d is negative", r.Hysteresis)
	}
	return nil
}

// Approval returns a function that reports whether a person must approve that a member is elected, under the input's
// circumstances. An expression that fails asks one; then why says so.
func (p *Policy) Approval(in Input) func(m *cluster.Member) (needed bool, why string) {
	if p.confirm == nil {
		return func(*cluster.Member) (bool, string) { return false, "" }
	}
	group := groupOf(in)
	return func(m *cluster.Member) (bool, string) {
		got, err := run(p.confirm, envOf(group, m, &in))
		if err != nil {
			return true, fmt.Sprintf("policy.confirm %s failed: %s", p.Rules.Confirm, oneLine(err))
		}
		needed, _ := got.(bool)
		return needed, ""
	}
}

// Rank ranks the members, those that are eligible first. It is deterministic: the incarnation breaks the last tie.
func (p *Policy) Rank(in Input) Ranking {
	use, notes, unanswered := p.chooseType(in)
	if use.name == listType {
		notes = append(notes, relationNotes(in, RelationsOf(p.Rules))...)
	}
	rankers, filters := []ranker{moveRanker}, p.filters
	if in.PerNode > 0 {
		if bySite(p.Rules) {
			rankers = append(rankers, slotsRanker(spreadBy{site: true}))
		}
		rankers, filters = append(rankers, slotsRanker(spreadBy{})), append(slices.Clone(filters), perNodeFilter)
	}
	rankers = append(rankers, use.rankers...)
	scorers := make([]scorer, len(rankers))
	for i, r := range rankers {
		scorers[i] = r.bind(in)
	}
	filters = slices.Concat(filters, use.filters)
	checks := make([]func(*cluster.Member) string, len(filters))
	for i, f := range filters {
		checks[i] = f.bindWithMove(in)
	}
	unsorted, scores := make([]Entry, len(in.Members)), make([]Score, 0, len(in.Members)*len(scorers))
	for i := range in.Members {
		m := &in.Members[i]
		e := &unsorted[i]
		e.Member = m
		for j, check := range checks {
			if why := check(m); why != "" {
				e.Refusals = append(e.Refusals, Refusal{filters[j].name, why})
			}
		}
		begin := len(scores)
		for j, score := range scorers {
			value, words := score(m)
			scores = append(scores, Score{rankers[j].name, value, words})
		}
		e.Scores = scores[begin:len(scores):len(scores)]
	}
	preferWarm(unsorted, &in)
	return Ranking{Entries: sorted(unsorted), PolicyType: use.name, Notes: notes, Unanswered: unanswered,
		RollCall: in.RollCall}
}

// sorted returns the entries, the best first. It sorts their positions, since an entry is large.
func sorted(unsorted []Entry) []Entry {
	order := make([]int, len(unsorted))
	for i := range order {
		order[i] = i
	}
	cluster.OldestFirst(order, func(i int) cluster.Incarnation { return unsorted[i].Member.Incarnation })
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := &unsorted[i], &unsorted[j]
		if eligible := len(a.Refusals) == 0; eligible != (len(b.Refusals) == 0) {
			if eligible {
				return -1
			}
			return 1
		}
		return compare(b.Scores, a.Scores)
	})
	entries := make([]Entry, len(order))
	for to, from := range order {
		entries[to] = unsorted[from]
	}
	return entries
}

// chooseType returns the policy type to rank by: that of the first strategy whose condition holds, else the policy's
// type.
func (p *Policy) chooseType(in Input) (use policyType, notes []string, unanswered bool) {
	name := p.typeName()
	for _, s := range p.strategies {
		holds, err := s.holds(in)
		if err != nil {
			notes = append(notes, fmt.Sprintf("the strategy %q is skipped: %v", s.when, err))
			continue
		}
		if holds {
			name = s.use
			break
		}
	}
	if name == execType && (in.Answer == nil || in.Answer.Err != "") {
		why := "its program has not answered"
		if in.Answer != nil {
			why = in.Answer.Err
		}
		notes = append(notes, fmt.Sprintf("exec has no ranking, %s is used instead: %s", fallback, why))
		name, unanswered = fallback, true
	}
	return p.types[name], notes, unanswered
}

func (p *Policy) typeName() string {
	if len(p.Rules.Rank) > 0 {
		return listType
	}
	return p.Rules.Type
}

// WantsAnswer reports whether the ranking program decides under this input.
func (p *Policy) WantsAnswer(in Input) bool {
	in.Answer = &Answer{}
	use, _, _ := p.chooseType(in)
	return use.name == execType
}

// Problems returns likely mistakes in the policy, given the members and those that are absent. The policy can be used
// in spite of them.
func (p *Policy) Problems(s *cluster.Snapshot) []string {
	if len(s.Members) == 0 {
		return nil
	}
	sites, nodes, unlisted := make(map[string]bool), make(map[string]bool), make(map[string]bool)
	for _, m := range s.Members {
		site := m.Node.Record.Site
		sites[site], nodes[m.ID] = true, true
		if _, listed := p.Rules.Sites[site]; !listed && len(p.Rules.Sites) > 0 {
			unlisted[site] = true
		}
	}
	absent, _ := s.Absent()
	for _, n := range absent {
		sites[n.Site], nodes[n.ID] = true, true
	}
	var missing []string
	for site := range p.Rules.Sites {
		if !sites[site] {
			missing = append(missing, site)
		}
	}
	var all []string
	if len(missing) > 0 {
		slices.Sort(missing)
		all = append(all, fmt.Sprintf("policy.sites names %s, which no member is at", strings.Join(missing, ", ")))
	}
	if len(unlisted) > 0 {
		list := strings.Join(slices.Sorted(maps.Keys(unlisted)), ", ")
		all = append(all, fmt.Sprintf("members are at %s, which policy.sites does not name", list))
	}
	for site := range p.Rules.Sites {
		sites[site] = true
	}
	for _, c := range p.compared {
		all = append(all, c.checkNames(sites, nodes)...)
	}
	return all
}
