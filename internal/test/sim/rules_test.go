package sim

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

// The parts of policies. Some expressions fail for some members, which are refused then.
var (
	expressions = []string{
		"member.score - member.latency", "member.priority", "member.id == previous.id", "member.id != previous.id",
		"member.site in failed_sites ? 0 : 1", `[1, 2][member.priority]`, `cause == "failure" && member.site == previous.site`,
	}
	conditions = []string{
		`cause == "failure"`, `previous.site == "dc0"`, "len(members) < 3", "len(failed_sites) > 0", `members[2].site == "dc0"`,
	}
	filters     = []string{"member.priority > 0", "member.known_latency and member.latency < 15", `member.site != "dc1"`, `member.id not in ["n1", "n9"]`, `member.labels.tier == "a"`}
	lists       = [][]string{{"score", "site"}, {"other-site", "latency", "incumbent"}, {"expr:member.priority", "round-robin"}, {"priority"}}
	hystereses  = []int{0, 20, 40}
	delays      = []time.Duration{2 * time.Second, 5 * time.Second, 10 * time.Second}
	execTimeout = policy.ProgramTimeout
	// confirmAfter is how long nobody approves an election.
	confirmAfter = 5 * time.Second
	// kinds are the policy types, and an expression as the only ranker.
	kinds = slices.Insert(policy.Types(), len(policy.Types())-1, anExpression)
)

const anExpression = "expr"

// drawPolicies draws the policies that are published in a group, and what affects the ranking.
func drawPolicies(rng *rand.Rand) (t groupTraits) {
	t.noise = rng.Float64() < 0.2
	plain, alike := rng.Float64() < 0.3, rng.Float64() < 0.5
	kind := one(rng, kinds)
	for range 4 {
		if !alike {
			kind = one(rng, kinds)
		}
		r := cluster.Rules{Type: "priority", Sites: map[string]int{"dc0": rng.IntN(3), "dc1": rng.IntN(2)}}
		if !plain {
			drawRules(rng, kind, &r)
			if t.noise { // only hysteresis keeps noise from moving the leader, and expressions have none
				r.Hysteresis, r.Filter = one(rng, hystereses[1:]), nil
				expression := one(rng, expressions[1:])
				if len(r.Rank) > 0 && strings.HasPrefix(r.Rank[0], "expr:"+expressions[0]) {
					rankBy(&r, anExpression, expression)
				}
			}
		}
		t.rules = append(t.rules, r)
	}
	t.keepsRequests, t.keepsReports, t.noAnswer = rng.Float64() < 0.5, rng.Float64() < 0.3, rng.Float64() < 0.3
	return t
}

func drawRules(rng *rand.Rand, kind string, r *cluster.Rules) {
	chance := func(p float64) bool { return rng.Float64() < p }
	expression := one(rng, expressions)
	r.Hysteresis = one(rng, hystereses)
	rankBy(r, kind, expression)
	if chance(0.1) {
		r.Rank = one(rng, lists)
	}
	for chance(0.2) {
		s := cluster.Strategy{When: one(rng, conditions), Use: one(rng, kinds)}
		if s.Use != anExpression {
			r.Strategies = append(r.Strategies, s)
		}
	}
	switch rng.IntN(6) {
	case 0:
		r.Failback = cluster.FailbackManual
	case 1, 2:
		r.Failback = one(rng, delays).String()
	case 3:
		r.Failback = cluster.FailbackImmediate
	}
	if chance(0.5) {
		r.MaxPreemptions = rng.IntN(7)
		if rng.IntN(3) > 0 {
			r.Confirm, r.ConfirmAfter = "member.site != previous.site", confirmAfter.String()
		}
	}
	if chance(0.3) {
		r.Filter = []string{filters[0], one(rng, filters[1:])}[rng.IntN(2):]
	}
}

// rankBy sets what the members are ranked by.
func rankBy(r *cluster.Rules, kind, expression string) {
	if kind == anExpression {
		r.Rank = []string{"expr:" + expression, "incumbent", "oldest"}
	} else {
		r.Type = kind
	}
}

func one[T any](rng *rand.Rand, of []T) T { return of[rng.IntN(len(of))] }

// publishPolicy puts rules into force.
func (g *group) publishPolicy(rules cluster.Rules) {
	g.revision++
	g.rules[g.revision] = rules
	rec := cluster.Policy{Revision: g.revision, Rules: rules, By: "sim"}
	g.tamper(cluster.Op{Kind: cluster.OpSet, Path: g.known.policy, Data: cluster.Encode(&rec)})
}

// own returns the policy in a daemon's configuration, for a daemon that finds no usable one.
func (g *group) own(revision int64) cluster.Policy {
	return cluster.Policy{Revision: revision, Rules: g.rules[0], By: "sim"}
}

// compiled keeps compiled policies across worlds: compiling expressions is slow.
var (
	compiled sync.Map
	kept     atomic.Int32
)

func compile(rec cluster.Policy) (*policy.Policy, error) {
	key := rec.Rules.Digest()
	known, ok := compiled.Load(key)
	if !ok {
		p, err := policy.New(rec)
		if err != nil {
			return nil, err
		}
		if kept.Add(1) > 2000 { // to bound memory
			compiled.Clear()
			kept.Store(0)
		}
		known, _ = compiled.LoadOrStore(key, p)
	}
	p := *known.(*policy.Policy)
	p.Revision = rec.Revision
	return &p, nil
}

func (g *group) readPolicy() cluster.Stored[cluster.Policy] {
	return readCached(g.w, g.known.policy, cluster.ReadStored[cluster.Policy])
}

// inForce returns the policy that electors rank by.
func (g *group) inForce() (*policy.Policy, error) {
	read := g.readPolicy()
	if !read.Readable() {
		return compile(g.own(0))
	}
	return compile(read.Record)
}
