package policy

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/vm"

	"zkelectd/internal/cluster"
)

// exprMember is what an expression sees of a member.
type exprMember struct {
	ID        string            `expr:"id"`
	Site      string            `expr:"site"`
	Priority  int               `expr:"priority"`
	Labels    map[string]string `expr:"labels"`
	Incumbent bool              `expr:"incumbent"`
	// Score and Latency (ms) are as published, 0 if they are not; Known tells.
	Score        float64 `expr:"score"`
	Latency      float64 `expr:"latency"`
	KnownScore   bool    `expr:"known_score"`
	KnownLatency bool    `expr:"known_latency"`
}

// exprLeader is what it sees of the last leader.
type exprLeader struct {
	ID   string `expr:"id"`
	Site string `expr:"site"`
}

// exprGroup is what a strategy's condition sees, exprEnv what the expression about a member sees.
type exprGroup struct {
	Previous exprLeader   `expr:"previous"`
	Cause    string       `expr:"cause"`
	Failed   []string     `expr:"failed_sites"`
	Members  []exprMember `expr:"members"`
	Turn     func() bool  `expr:"__turn"` // see [turns]
}

type exprEnv struct {
	Member   exprMember   `expr:"member"`
	Previous exprLeader   `expr:"previous"`
	Cause    string       `expr:"cause"`
	Failed   []string     `expr:"failed_sites"`
	Members  []exprMember `expr:"members"`
	Turn     func() bool  `expr:"__turn"` // see [turns]
}

func memberOf(m cluster.Member, in Input) exprMember {
	n := m.Node.Record
	e := exprMember{ID: m.ID, Site: seen(n.Site), Priority: n.Priority, Labels: seenLabels(n.Labels), Incumbent: m.Name == in.Incumbent}
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
	g := exprGroup{Previous: exprLeader{c.Node, c.Site}, Cause: string(c.Cause), Failed: c.Failed, Turn: turns(1)}
	for _, m := range in.Members {
		g.Members = append(g.Members, memberOf(m, in))
	}
	slices.SortFunc(g.Members, func(a, b exprMember) int { return strings.Compare(a.ID, b.ID) })
	return g
}

func envOf(g exprGroup, m exprMember) exprEnv {
	return exprEnv{Member: m, Previous: g.Previous, Cause: g.Cause, Failed: g.Failed, Members: g.Members, Turn: turns(len(g.Members))}
}

// compileFilter makes a filter of an expression. One that fails for a member is that member's verdict, no crash.
func compileFilter(key, text string) (filter, error) {
	program, err := compile(key, text, exprEnv{}, expr.AsBool())
	return filter{name: "filter " + text, bind: func(in Input) func(cluster.Member) string {
		group := groupOf(in)
		return func(m cluster.Member) string {
			got, err := run(program, envOf(group, memberOf(m, in)))
			if err != nil {
				return fmt.Sprintf("policy.filter %s fails: %s", text, oneLine(err))
			}
			if ok, _ := got.(bool); ok {
				return ""
			}
			return "policy.filter says no: " + text
		}
	}}, err
}

// exprRanker ranks by an expression: a number, or true before false.
type exprRanker struct {
	text    string
	program *vm.Program
}

func compileRanker(key, text string) (Ranker, error) {
	program, err := compile(key, text, exprEnv{}, expr.AsFloat64())
	if err != nil {
		var asBool error
		if program, asBool = compile(key, text, exprEnv{}, expr.AsBool()); asBool != nil {
			if errors.As(asBool, new(tooMuch)) {
				err = asBool // it is a truth, and refused for another reason
			}
			return nil, err
		}
	}
	return exprRanker{text, program}, nil
}

func (r exprRanker) Name() string { return exprPreset }

func (r exprRanker) For(in Input) func(cluster.Member) (float64, string) {
	group := groupOf(in)
	return func(m cluster.Member) (float64, string) {
		got, err := run(r.program, envOf(group, memberOf(m, in)))
		if err != nil {
			return worst, fmt.Sprintf("%s fails: %s", r.text, oneLine(err))
		}
		switch v := got.(type) {
		case bool:
			if v {
				return 1, r.text
			}
			return 0, "not " + r.text
		case float64:
			if !math.IsNaN(v) {
				return v, fmt.Sprintf("%s = %.6g", r.text, v)
			}
		}
		return worst, fmt.Sprintf("%s is no number", r.text)
	}
}

// strategy is a compiled [cluster.Strategy].
type strategy struct {
	when    string
	use     string
	program *vm.Program // nil holds always
}

func compileStrategies(rules cluster.Rules, all map[string]preset) ([]strategy, error) {
	var list []strategy
	for i, s := range rules.Strategies {
		key := fmt.Sprintf("policy.strategies[%d]", i)
		if err := known(all, key+".use", s.Use); err != nil {
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

func (s strategy) holds(in Input) (bool, error) {
	if s.program == nil {
		return true, nil
	}
	got, err := run(s.program, groupOf(in))
	if err != nil {
		return false, fmt.Errorf("it fails: %s", oneLine(err))
	}
	ok, _ := got.(bool)
	return ok, nil
}
