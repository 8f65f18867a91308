package policy

import (
	"slices"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
)

func TestTypes(t *testing.T) {
	three := []cluster.Member{member("b", "dc1", 5, 1), member("c", "dc2", 9, 2), member("a", "dc1", 1, 3)}
	failed := func(sites ...string) cluster.Circumstances {
		return cluster.Circumstances{Cause: cluster.CauseFailure, Node: "b", Site: "dc1", Failed: sites}
	}
	after := func(id string) cluster.Circumstances { return cluster.Circumstances{Node: id} }
	sites := map[string]int{"dc1": 2, "dc2": 1}
	for name, c := range map[string]struct {
		rules cluster.Rules
		in    Input
		want  string
	}{
		"first: the oldest":                     {cluster.Rules{Type: "first"}, Input{}, "b c a"},
		"first: not the incumbent":              {cluster.Rules{Type: "first"}, Input{Incumbent: "a"}, "b c a"},
		"node-id":                               {cluster.Rules{Type: "node-id"}, Input{Incumbent: "c"}, "a b c"},
		"round-robin: the first":                {cluster.Rules{Type: "round-robin"}, Input{}, "a b c"},
		"round-robin: the next":                 {cluster.Rules{Type: "round-robin"}, Input{Circumstances: after("a")}, "b c a"},
		"round-robin: after one that is gone":   {cluster.Rules{Type: "round-robin"}, Input{Circumstances: after("aa")}, "b c a"},
		"round-robin: from the start again":     {cluster.Rules{Type: "round-robin"}, Input{Circumstances: after("c")}, "a b c"},
		"round-robin: the incumbent stays":      {cluster.Rules{Type: "round-robin"}, Input{Circumstances: after("a"), Incumbent: "c"}, "c b a"},
		"other-site: nothing has failed":        {cluster.Rules{Type: "other-site", Sites: sites}, Input{}, "b a c"},
		"other-site: one has":                   {cluster.Rules{Type: "other-site", Sites: sites}, Input{Circumstances: failed("dc1")}, "c b a"},
		"other-site: all have":                  {cluster.Rules{Type: "other-site", Sites: sites}, Input{Circumstances: failed("dc1", "dc2")}, "b a c"},
		"other-site: a stop is no failure":      {cluster.Rules{Type: "other-site", Sites: sites}, Input{Circumstances: cluster.Circumstances{Cause: cluster.CauseStopped, Site: "dc1"}}, "b a c"},
		"rank: in its order":                    {cluster.Rules{Rank: []string{"priority"}, Sites: sites}, Input{}, "c b a"},
		"rank: the later ones break the tie":    {cluster.Rules{Rank: []string{"site", "node-id"}, Sites: sites}, Input{}, "a b c"},
		"rank: every ranker":                    {cluster.Rules{Rank: slices.Concat([]string{"expr: member.id == 'a'"}, Rankers())}, Input{}, "a c b"},
		"rank: goes before the type":            {cluster.Rules{Type: "node-id", Rank: []string{"oldest"}}, Input{}, "b c a"},
		"rank: round-robin goes by the last":    {cluster.Rules{Rank: []string{"round-robin"}}, Input{Circumstances: after("a"), Incumbent: "c"}, "b c a"},
		"expr: a number":                        {cluster.Rules{Rank: []string{"expr:member.priority * (member.site == 'dc2' ? -1 : 1)", "incumbent"}}, Input{}, "b a c"},
		"expr: true before false":               {cluster.Rules{Rank: []string{"expr:member.site == 'dc2'", "incumbent"}}, Input{}, "c b a"},
		"expr: then the incumbent, the oldest":  {cluster.Rules{Rank: []string{"expr:1", "incumbent"}}, Input{Incumbent: "a"}, "a b c"},
		"expr: it sees the circumstances":       {cluster.Rules{Rank: []string{"expr:cause == 'failure' && member.site != previous.site && member.site not in failed_sites", "incumbent"}}, Input{Circumstances: failed("dc1")}, "c b a"},
		"expr: it sees the others":              {cluster.Rules{Rank: []string{"expr:count(members, .site == member.site)", "incumbent"}}, Input{}, "b a c"},
		"a move goes before all policy":         {cluster.Rules{Sites: sites}, Input{Incumbent: "b", Move: &cluster.Move{Node: "a"}}, "a b c"},
		"a move to a site, by policy within it": {cluster.Rules{Sites: map[string]int{"dc2": 9}}, Input{Incumbent: "c", Move: &cluster.Move{Site: "dc1"}}, "b a c"},
	} {
		c.in.Members = three
		if got := places(policyOf(t, c.rules).Rank(c.in)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestMeasurementTypes(t *testing.T) {
	for name, c := range map[string]struct {
		rules     cluster.Rules
		members   []cluster.Member
		incumbent string
		want      string
	}{
		"the shortest latency":          {cluster.Rules{Type: "latency"}, []cluster.Member{member("a", "dc1", 9, 1, latency(5)), member("b", "dc1", 1, 2, latency(2))}, "a", "b a"},
		"no latency yet":                {cluster.Rules{Type: "latency"}, []cluster.Member{member("a", "dc1", 9, 1), member("b", "dc1", 1, 2, latency(900))}, "", "b a"},
		"the same latency: as priority": {cluster.Rules{Type: "latency"}, []cluster.Member{member("a", "dc1", 1, 1, latency(5)), member("b", "dc1", 9, 2, latency(5))}, "a", "b a"},
		"none has one: as priority":     {cluster.Rules{Type: "latency"}, []cluster.Member{member("a", "dc1", 1, 1), member("b", "dc1", 9, 2)}, "", "b a"},
		"the highest score":             {cluster.Rules{Type: "score"}, []cluster.Member{member("a", "dc1", 9, 1, score(2)), member("b", "dc1", 1, 2, score(5))}, "a", "b a"},
		"no score yet":                  {cluster.Rules{Type: "score"}, []cluster.Member{member("a", "dc1", 9, 1), member("b", "dc1", 1, 2, score(-7))}, "", "b a"},
		"the same score: as priority":   {cluster.Rules{Type: "score", Sites: map[string]int{"dc2": 1}}, []cluster.Member{member("a", "dc1", 9, 1, score(0)), member("b", "dc2", 1, 2, score(0))}, "", "b a"},
	} {
		if got := places(policyOf(t, c.rules).Rank(Input{Members: c.members, Incumbent: c.incumbent})); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestHysteresisKeepsNoiseFromMovingTheIncumbent(t *testing.T) {
	for name, c := range map[string]struct {
		rules  cluster.Rules
		a, b   func(*cluster.Node) // a is the incumbent
		leader string
	}{
		"latency within it":    {cluster.Rules{Type: "latency", Hysteresis: 20}, latency(10), latency(8.1), "a"},
		"latency beyond it":    {cluster.Rules{Type: "latency", Hysteresis: 20}, latency(10), latency(7.9), "b"},
		"latency, none is set": {cluster.Rules{Type: "latency"}, latency(10), latency(9.99), "b"},
		"score within it":      {cluster.Rules{Type: "score", Hysteresis: 10}, score(100), score(109), "a"},
		"score beyond it":      {cluster.Rules{Type: "score", Hysteresis: 10}, score(100), score(111), "b"},
		"score, none is set":   {cluster.Rules{Type: "score"}, score(100), score(101), "b"},
		"negative, within it":  {cluster.Rules{Type: "score", Hysteresis: 10}, score(-100), score(-91), "a"},
		"negative, beyond it":  {cluster.Rules{Type: "score", Hysteresis: 10}, score(-100), score(-89), "b"},
		"in a list":            {cluster.Rules{Rank: []string{"site", "score"}, Hysteresis: 10}, score(100), score(109), "a"},
	} {
		in := Input{Members: []cluster.Member{member("a", "dc1", 1, 2, c.a), member("b", "dc1", 1, 1, c.b)}, Incumbent: "a"}
		if best, _ := policyOf(t, c.rules).Rank(in).Best(); best.ID != c.leader {
			t.Errorf("%s: %s leads, want %s", name, best.ID, c.leader)
		}
		in.Incumbent = ""
		if best, _ := policyOf(t, c.rules).Rank(in).Best(); best.ID != "b" {
			t.Errorf("%s: %s leads without an incumbent", name, best.ID)
		}
	}
}

func TestExecFollowsItsProgram(t *testing.T) {
	for name, c := range map[string]struct {
		rules      cluster.Rules
		answer     *Answer
		want       string
		policyType string
		note       string
	}{
		"it answers":                   {cluster.Rules{Type: "exec"}, &Answer{Ranking: []string{"c", "a", "b"}}, "c a b", "exec", ""},
		"it has not answered":          {cluster.Rules{Type: "exec"}, nil, "b a c", "priority", "exec has no ranking, priority is used instead: its program has not answered"},
		"it fails":                     {cluster.Rules{Type: "exec"}, &Answer{Ranking: []string{"c"}, Err: "exit status 1"}, "b a c", "priority", "exec has no ranking, priority is used instead: exit status 1"},
		"it names unknown nodes":       {cluster.Rules{Type: "exec"}, &Answer{Ranking: []string{"x", "c", "y", "b", "a"}}, "c b a", "exec", ""},
		"it names one twice":           {cluster.Rules{Type: "exec"}, &Answer{Ranking: []string{"c", "a", "c", "b"}}, "c a b", "exec", ""},
		"it leaves members out":        {cluster.Rules{Type: "exec"}, &Answer{Ranking: []string{"c"}}, "c (a) (b)", "exec", ""},
		"it names none":                {cluster.Rules{Type: "exec"}, &Answer{}, "(a) (b) (c)", "exec", ""},
		"filters hold under it":        {cluster.Rules{Type: "exec", Filter: []string{"member.id != 'c'"}}, &Answer{Ranking: []string{"c", "a", "b"}}, "a b (c)", "exec", ""},
		"another type ignores answers": {cluster.Rules{Type: "node-id"}, &Answer{Ranking: []string{"c"}}, "a b c", "node-id", ""},
	} {
		in := Input{Members: []cluster.Member{member("a", "dc1", 1, 1), member("b", "dc1", 9, 2), member("c", "dc2", 0, 3)}, Answer: c.answer}
		r := policyOf(t, c.rules).Rank(in)
		if got := places(r); got != c.want || r.PolicyType != c.policyType {
			t.Errorf("%s: %s by %s, want %s by %s", name, got, r.PolicyType, c.want, c.policyType)
		}
		if notes := strings.Join(r.Notes, "\n"); (notes == "") != (c.note == "") || !strings.Contains(notes, c.note) {
			t.Errorf("%s: noted %q, want %q", name, notes, c.note)
		}
	}
}

func TestStrategies(t *testing.T) {
	rules := cluster.Rules{Type: "first", Strategies: []cluster.Strategy{
		{When: "int(previous.site) > 3", Use: "score"},
		{When: `cause == "failure" && previous.site == "1"`, Use: "other-site"},
		{When: `cause == "failure"`, Use: "round-robin"},
		{When: "any(members, .labels.rack == 'r9')", Use: "latency"},
	}}
	for name, c := range map[string]struct {
		c     cluster.Circumstances
		label func(*cluster.Node)
		want  string
		notes int
	}{
		"none holds":                {cluster.Circumstances{Cause: cluster.CauseStopped, Site: "1"}, label("rack", "r1"), "first", 0},
		"the first that holds":      {cluster.Circumstances{Cause: cluster.CauseFailure, Site: "1"}, label("rack", "r9"), "other-site", 0},
		"a later one":               {cluster.Circumstances{Cause: cluster.CauseFailure, Site: "2"}, label("rack", "r9"), "round-robin", 0},
		"by the members":            {cluster.Circumstances{Cause: cluster.CauseFirst, Site: "2"}, label("rack", "r9"), "latency", 0},
		"one that fails is skipped": {cluster.Circumstances{Cause: cluster.CauseFailure, Site: "dc2"}, label("rack", "r1"), "round-robin", 1},
		"and no other holds":        {cluster.Circumstances{Cause: cluster.CauseStopped, Site: "dc2"}, label("rack", "r1"), "first", 1},
	} {
		r := policyOf(t, rules).Rank(Input{Members: []cluster.Member{member("a", "1", 1, 1, c.label)}, Circumstances: c.c})
		if r.PolicyType != c.want || len(r.Notes) != c.notes {
			t.Errorf("%s: by %s, noted %q; want %s and %d notes", name, r.PolicyType, r.Notes, c.want, c.notes)
		}
		if c.notes > 0 && !strings.HasPrefix(r.Notes[0], `the strategy "int(previous.site) > 3" is skipped`) {
			t.Errorf("%s: noted %q", name, r.Notes)
		}
	}
	always := policyOf(t, cluster.Rules{Type: "first", Strategies: []cluster.Strategy{{Use: "node-id"}, {Use: "latency"}}})
	if r := always.Rank(Input{}); r.PolicyType != "node-id" {
		t.Errorf("a strategy without a condition: %s decides", r.PolicyType)
	}
}

func TestWantsAnswer(t *testing.T) {
	strategies := []cluster.Strategy{{When: "cause == 'failure'", Use: "exec"}}
	for name, c := range map[string]struct {
		rules cluster.Rules
		cause cluster.Cause
		want  bool
	}{
		"exec":                     {cluster.Rules{Type: "exec"}, cluster.CauseFirst, true},
		"another type":             {cluster.Rules{Type: "first"}, cluster.CauseFirst, false},
		"a strategy that holds":    {cluster.Rules{Type: "first", Strategies: strategies}, cluster.CauseFailure, true},
		"one that does not":        {cluster.Rules{Type: "first", Strategies: strategies}, cluster.CauseFirst, false},
		"one that takes over exec": {cluster.Rules{Type: "exec", Strategies: []cluster.Strategy{{Use: "first"}}}, cluster.CauseFirst, false},
	} {
		for _, answer := range []*Answer{nil, {Err: "it hangs"}, {Ranking: []string{"a"}}} {
			in := Input{Circumstances: cluster.Circumstances{Cause: c.cause}, Answer: answer}
			if got := policyOf(t, c.rules).WantsAnswer(in); got != c.want {
				t.Errorf("%s, with answer %+v: %v", name, answer, got)
			}
		}
	}
}

func TestUsesLoads(t *testing.T) {
	limited := []cluster.Member{{}, {Node: cluster.Stored[cluster.Node]{Exists: true, Record: cluster.Node{MaxLeaders: 3}}}}
	for name, c := range map[string]struct {
		rules   cluster.Rules
		members []cluster.Member
		want    bool
	}{
		"the default":        {cluster.Rules{Type: "priority"}, nil, false},
		"latency":            {cluster.Rules{Type: "latency"}, nil, true},
		"exec":               {cluster.Rules{Type: "exec"}, nil, true},
		"a list":             {cluster.Rules{Rank: []string{"site", "with:billing", "apart:web", "newest:v", "oldest:v", "spread"}}, nil, false},
		"a list with fewest": {cluster.Rules{Rank: []string{"incumbent", "fewest"}}, nil, true},
		"an expression":      {cluster.Rules{Rank: []string{"expr:score"}}, nil, true},
		"a filter":           {cluster.Rules{Type: "priority", Filter: []string{"latency < 5"}}, nil, true},
		"strategies":         {cluster.Rules{Type: "priority", Strategies: []cluster.Strategy{{Use: "latency"}}}, nil, true},
		"a limit":            {cluster.Rules{Type: "priority"}, limited, true},
	} {
		if got := UsesLoads(c.rules, c.members); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	for _, known := range Types() {
		if known == "latency" || known == "score" || known == "exec" || known == "fewest" {
			continue
		}
		if UsesLoads(cluster.Rules{Type: known}, nil) {
			t.Errorf("type %s", known)
		}
	}
}

func TestExpressionsCannotDependOnTheOrderOfLabels(t *testing.T) {
	for _, text := range []string{"keys(member.labels)[0] == 'a'", "values(member.labels)[0] == '1'", "toPairs(member.labels)[0][0] == 'a'"} {
		p, err := New(cluster.Policy{Rules: cluster.Rules{Rank: []string{"expr:" + text, "incumbent"}}})
		if err != nil {
			continue
		}
		m := member("a", "dc1", 1, 1, func(n *cluster.Node) { n.Labels = map[string]string{"a": "1", "b": "2", "c": "3"} })
		seen := map[float64]bool{}
		for range 100 {
			seen[p.Rank(Input{Members: []cluster.Member{m}}).Entries[0].Scores[1].Value] = true
		}
		if len(seen) > 1 {
			t.Errorf("%s has varying values", text)
		}
	}
}

func TestAForcedMoveOverridesTheProgram(t *testing.T) {
	in := Input{Members: []cluster.Member{member("a", "dc1", 1, 1), member("b", "dc1", 1, 2)}, Answer: &Answer{Ranking: []string{"a"}}, Move: &cluster.Move{Node: "b", Force: true}}
	if best, _ := policyOf(t, cluster.Rules{Type: "exec"}).Rank(in).Best(); best.ID != "b" {
		t.Errorf("%s leads", best.ID)
	}
}

func TestValuesAreChecked(t *testing.T) {
	for _, r := range []cluster.Rules{{Type: "coin", Rank: []string{"site"}}, {Type: "first", Failback: "sometimes"}, {Type: "first", MaxPreemptions: -1}, {Type: "first", Hysteresis: -5}} {
		if _, err := New(cluster.Policy{Rules: r}); err == nil {
			t.Errorf("accepted: %+v", r)
		}
	}
}
