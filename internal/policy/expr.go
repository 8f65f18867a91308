package policy

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/vm"

	"zkelectd/internal/cluster"
)

// exprMember is a member as expressions see it.
type exprMember struct {
	ID        string            `expr:"id"`
	Site      string            `expr:"site"`
	Priority  int               `expr:"priority"`
	Labels    map[string]string `expr:"labels"`
	Incumbent bool              `expr:"incumbent"`
	Healthy   bool              `expr:"healthy"`
	// Score and Latency (in ms) are as published, 0 if they are not known. In a ranking by answers to a roll call,
	// Score is the member's.
	Score        float64 `expr:"score"`
	Latency      float64 `expr:"latency"`
	KnownScore   bool    `expr:"known_score"`
	KnownLatency bool    `expr:"known_latency"`
}

// exprLeader is the last leader as expressions see it.
type exprLeader struct {
	ID     string `expr:"id"`
	Site   string `expr:"site"`
	Failed bool   `expr:"failed"` // it has failed, and not only been replaced
}

// exprSite is the site of the member that is evaluated.
type exprSite struct {
	Healthy float64 `expr:"healthy"` // the share of its members that are healthy, between 0 and 1
}

// exprGroup is the environment of a strategy's condition, exprEnv that of an expression about a member.
type exprGroup struct {
	Previous exprLeader   `expr:"previous"`
	Cause    string       `expr:"cause"`
	Failed   []string     `expr:"failed_sites"`
	Members  []exprMember `expr:"members"`
	Iterate  func() bool  `expr:"__iterate"` // see [iterationBudget]

	healthy  map[string]float64 // the share of healthy members, by site
	best     float64            // the best answer to the roll call
	answered bool               // there is one
}

type exprEnv struct {
	exprGroup
	Member exprMember `expr:"member"`
	Best   exprBest   `expr:"best"`
	Site   exprSite   `expr:"site"`
}

func memberOf(m *cluster.Member, in *Input) exprMember {
	n := m.Node.Record
	e := exprMember{
		ID: m.ID, Site: truncate(n.Site), Priority: n.Priority, Labels: truncateLabels(n.Labels),
		Incumbent: m.Name == in.Incumbent,
		Healthy:   n.Unhealthy == "",
	}
	if n.Score != nil {
		e.Score, e.KnownScore = *n.Score, true
	}
	if n.Latency != nil {
		e.Latency, e.KnownLatency = *n.Latency, true
	}
	return e
}

func groupOf(in Input) exprGroup {
	c := in.Circumstances
	g := exprGroup{
		Previous: exprLeader{c.Node, c.Site, c.Cause.IsSiteFailure()}, Cause: string(c.Cause), Failed: c.Failed,
		Iterate: iterationBudget(1), healthy: healthyShares(&in),
	}
	for i := range in.Members {
		if m := &in.Members[i]; !in.Silent[m.Name] {
			g.Members = append(g.Members, memberOf(m, &in))
		}
	}
	if in.RollCall != "" {
		g.setAnswers()
	}
	slices.SortFunc(g.Members, func(a, b exprMember) int { return cluster.CompareNodes(a.ID, b.ID) })
	return g
}

// healthyShares returns the share of each site's members that are healthy. Silent ones are not: they are lost.
func healthyShares(in *Input) map[string]float64 {
	healthy, all := make(map[string]float64), make(map[string]float64)
	for i := range in.Members {
		m := &in.Members[i]
		if m.Superseded {
			continue
		}
		site := m.Node.Record.Site
		all[site]++
		if m.Node.Record.Unhealthy == "" && !in.Silent[m.Name] {
			healthy[site]++
		}
	}
	for site := range all {
		healthy[site] /= all[site]
	}
	return healthy
}

func envOf(g exprGroup, m *cluster.Member, in *Input) exprEnv {
	member := memberOf(m, in)
	g.Iterate = iterationBudget(len(g.Members))
	return exprEnv{g, g.ranked(member), g.bestOf(member), exprSite{g.healthy[m.Node.Record.Site]}}
}

// expressionFilter begins the names of the filters that are expressions.
const expressionFilter = "filter "

// compileFilter returns a filter for an expression. If the expression fails for a member, that member is refused.
func compileFilter(key, text string) (filter, error) {
	program, err := compile(key, text, exprEnv{}, expr.AsBool())
	return filter{name: expressionFilter + text, bind: func(in Input) func(*cluster.Member) string {
		group := groupOf(in)
		return func(m *cluster.Member) string {
			got, err := run(program, envOf(group, m, &in))
			if err != nil {
				return fmt.Sprintf("policy.filter %s failed: %s", text, oneLine(err))
			}
			if ok, _ := got.(bool); ok {
				return ""
			}
			return "policy.filter does not hold: " + text
		}
	}}, err
}

// compileRanker returns a ranker by the value of an expression: a number, or a boolean, true first.
func compileRanker(key, text string) (ranker, error) {
	program, err := compile(key, text, exprEnv{}, expr.AsFloat64())
	if err != nil {
		var asBool error
		if program, asBool = compile(key, text, exprEnv{}, expr.AsBool()); asBool != nil {
			if errors.As(asBool, new(limitError)) {
				err = asBool // it is a boolean, refused for another reason
			}
			return ranker{}, err
		}
	}
	return ranker{"expr", func(in Input) scorer {
		group := groupOf(in)
		return func(m *cluster.Member) (float64, string) {
			got, err := run(program, envOf(group, m, &in))
			if err != nil {
				return unknownScore, fmt.Sprintf("%s failed: %s", text, oneLine(err))
			}
			switch v := got.(type) {
			case bool:
				if v {
					return 1, text
				}
				return 0, "not " + text
			case float64:
				if !math.IsNaN(v) {
					return v, fmt.Sprintf("%s = %s", text, numberText(v, in.RollCall != ""))
				}
			}
			return unknownScore, fmt.Sprintf("%s is not a number", text)
		}
	}}, nil
}

// strategy is a compiled [cluster.Strategy].
type strategy struct {
	when    string
	use     string
	program *vm.Program // nil if the condition always holds
}

func compileStrategies(rules cluster.Rules, all map[string]policyType) ([]strategy, error) {
	var list []strategy
	for i, s := range rules.Strategies {
		key := fmt.Sprintf("policy.strategies[%d]", i)
		if err := checkType(all, key+".use", s.Use); err != nil {
			return nil, err
		}
		c := strategy{when: s.When, use: s.Use}
		if s.When != "" {
			var err error
			if c.program, err = compile(key+".when", s.When, exprGroup{}, expr.AsBool()); err != nil {
				return nil, err
			}
		}
		list = append(list, c)
	}
	return list, nil
}

// holds reports whether the strategy's condition holds.
func (s strategy) holds(in Input) (bool, error) {
	if s.program == nil {
		return true, nil
	}
	got, err := run(s.program, groupOf(in))
	if err != nil {
		return false, fmt.Errorf("it failed: %s", oneLine(err))
	}
	ok, _ := got.(bool)
	return ok, nil
}
