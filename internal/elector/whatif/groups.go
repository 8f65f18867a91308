package whatif

import (
	"maps"
	"slices"
	"strings"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
	"zkelectd/internal/policy"
)

// maxRounds ends a forecast of several groups, or slots, that does not settle: it is more than settles a group with
// all slots on one node.
const maxRounds = 2 * cluster.MaxSlots

// forecasts are those of several groups that are placed with regard to each other.
type forecasts struct {
	questions []Question
	placed    bool // the questions have their placements
	index     map[string]int
	relations policy.Graph
	leads     []string // by question: the node that leads; empty for none
	outcomes  []Outcome
}

func newForecasts(questions []Question) *forecasts {
	f := &forecasts{
		questions: slices.Clone(questions), index: make(map[string]int), relations: make(policy.Graph),
		leads: make([]string, len(questions)), outcomes: make([]Outcome, len(questions)),
	}
	for i, q := range questions {
		f.index[q.Options.Group] = i
		if r := policy.RelationsOf(q.Policy.Rules); len(r.Peers()) > 0 {
			f.relations[q.Options.Group] = r
		}
		f.questions[i].Snapshot = q.applyChange()
		if q.Snapshot.Elected.Readable() {
			f.leads[i] = q.Snapshot.Elected.Record.Node
		}
	}
	return f
}

// placement returns what an election of a group takes into account of the others.
func (f *forecasts) placement(i int) elector.Placement {
	p := elector.Placement{Load: make(map[string]int), Peers: make(map[string]string), Relations: f.relations}
	for j, node := range f.leads {
		if j != i && node != "" {
			p.Load[node]++
		}
	}
	for _, peer := range f.relations[f.questions[i].Options.Group].Peers() {
		if j, known := f.index[peer]; known {
			p.Peers[peer] = f.leads[j]
		}
	}
	return p
}

// run forecasts one group from where its last forecast has ended.
func (f *forecasts) run(i int) (changed bool) {
	q := f.questions[i]
	q.Others = f.otherSlots(i)
	if !f.placed {
		q.Placement = f.placement(i)
	}
	out, after := settle(q)
	changed = f.leads[i] != out.Leader.ID || len(out.Steps) > 0
	out.Steps = slices.Concat(f.outcomes[i].Steps, out.Steps)
	f.outcomes[i], f.leads[i], f.questions[i].Snapshot = out, out.Leader.ID, after
	return changed
}

// otherSlots returns the other slots of the same group.
func (f *forecasts) otherSlots(i int) (all []cluster.SlotState) {
	if f.questions[i].Snapshot.Slot == "" {
		return nil
	}
	own, _, _ := strings.Cut(f.questions[i].Options.Group, "/")
	for j, q := range f.questions {
		if name, _, _ := strings.Cut(q.Options.Group, "/"); j != i && name == own {
			all = append(all, q.Snapshot.SlotState())
		}
	}
	return all
}

// round forecasts all groups, those that others follow first.
func (f *forecasts) round() (changed bool) {
	seen := make([]bool, len(f.questions))
	var visit func(i int)
	visit = func(i int) {
		if seen[i] {
			return
		}
		seen[i] = true
		for _, peer := range f.relations[f.questions[i].Options.Group].With {
			if j, known := f.index[peer]; known {
				visit(j)
			}
		}
		changed = f.run(i) || changed
	}
	for i := range f.questions {
		visit(i)
	}
	return changed
}

// WithPlacement returns the questions about several groups, or slots, with what they tell about each other. Their names
// are in their options.
func WithPlacement(questions []Question) []Question {
	f, all := newForecasts(questions), slices.Clone(questions)
	for i := range all {
		all[i].Placement = f.placement(i)
	}
	return all
}

// InTurn plans several groups, or slots, one after the other. Each takes into account who would lead those before it,
// which plan returns, and who leads the others. Their names are in their options.
func InTurn(questions []Question, plan func(i int, q Question) (leader string)) {
	f := newForecasts(questions)
	for i, q := range questions {
		q.Placement = f.placement(i)
		f.leads[i] = plan(i, q)
	}
}

// RunAll returns the forecasts for several groups, or slots: each takes into account who would lead the others. Their
// names are in their options.
func RunAll(questions []Question) []Outcome { return newForecasts(questions).settle() }

// RunSlots answers the questions about all slots of a group, in their order. What one slot decides counts for the
// others; what is known of other groups stays as it is.
func RunSlots(questions []Question) []Outcome {
	f := newForecasts(questions)
	f.placed = true
	return f.settle()
}

// settle decides all in turn until none changes.
func (f *forecasts) settle() []Outcome {
	for range maxRounds {
		if !f.round() {
			break
		}
	}
	return f.outcomes
}

// Balance is how evenly the leaders of several groups are spread over the nodes that are eligible in one of them.
type Balance struct {
	// Groups is the number of groups with a leader, Nodes the number of nodes. Most is the number of groups that the
	// node leads which leads most.
	Groups int `json:"groups"`
	Nodes  int `json:"nodes"`
	Most   int `json:"most"`
	// Ratio is how many times the mean that is, and WeightedRatio the same for what a node leads in relation to its
	// weight.
	Ratio         float64 `json:"most_to_mean"`
	WeightedRatio float64 `json:"most_to_mean_by_weight"`
	// Leaders is the number of groups that each node leads.
	Leaders map[string]int `json:"leaders"`
}

// BalanceOf returns the balance of forecasts.
func BalanceOf(outcomes []Outcome) Balance {
	b := Balance{Leaders: make(map[string]int)}
	weights := make(map[string]float64)
	count := func(m cluster.Member, n int) {
		weights[m.ID] = m.Node.Record.SpreadWeight()
		b.Leaders[m.ID] += n
		b.Groups += n
	}
	for _, out := range outcomes {
		for _, e := range out.Last.Ranking.Entries {
			if e.Eligible() {
				count(*e.Member, 0)
			}
		}
		if out.HasLeader() {
			count(out.Leader, 1)
		}
	}
	total := 0.0
	for _, id := range slices.SortedFunc(maps.Keys(weights), cluster.CompareNodes) {
		total += weights[id]
	}
	b.Nodes = len(b.Leaders)
	for id, n := range b.Leaders {
		b.Most = max(b.Most, n)
		if b.Groups > 0 {
			b.Ratio = max(b.Ratio, float64(n)*float64(b.Nodes)/float64(b.Groups))
			b.WeightedRatio = max(b.WeightedRatio, float64(n)/weights[id]*total/float64(b.Groups))
		}
	}
	return b
}
