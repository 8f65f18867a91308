package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/parser"

	"zkelectd/internal/cluster"
	"zkelectd/internal/sys/suggest"
)

// expression is what an expression in the rules refers to.
type expression struct {
	key string // its setting
	// causes, sites and nodes are the texts that it compares with such a value, best is set if it uses the answers to
	// roll calls.
	causes, sites, nodes []string
	best                 bool
}

// expressionsOf returns what the expressions in the rules refer to. Those that cannot be parsed are left out: [New]
// reports them.
func expressionsOf(rules cluster.Rules) (all []expression) {
	add := func(key, text string) {
		if tree, err := parser.Parse(text); err == nil {
			e := expression{key: key}
			ast.Walk(&tree.Node, &e)
			all = append(all, e)
		}
	}
	for i, name := range rules.Rank {
		if text, ok := strings.CutPrefix(name, exprPrefix); ok {
			add(fmt.Sprintf("policy.rank[%d]", i), text)
		}
	}
	for i, text := range rules.Filter {
		add(fmt.Sprintf("policy.filter[%d]", i), text)
	}
	add("policy.confirm", rules.Confirm)
	for i, s := range rules.Strategies {
		add(fmt.Sprintf("policy.strategies[%d].when", i), s.When)
	}
	return all
}

// Visit implements [ast.Visitor].
func (e *expression) Visit(node *ast.Node) {
	if isName(*node, "best") {
		e.best = true
	}
	n, ok := (*node).(*ast.BinaryNode)
	if !ok {
		return
	}
	switch n.Operator {
	case "==", "!=":
		e.compare(n.Left, n.Right)
		e.compare(n.Right, n.Left)
	case "in":
		if list, ok := n.Right.(*ast.ArrayNode); ok {
			for _, item := range list.Nodes {
				e.compare(n.Left, item)
			}
		}
		if text, ok := n.Left.(*ast.StringNode); ok && isName(n.Right, "failed_sites") {
			e.sites = append(e.sites, text.Value)
		}
	}
}

// compare notes a text that a value is compared with.
func (e *expression) compare(value, with ast.Node) {
	text, ok := with.(*ast.StringNode)
	switch {
	case !ok:
	case isName(value, "cause"):
		e.causes = append(e.causes, text.Value)
	case isField(value, "site"):
		e.sites = append(e.sites, text.Value)
	case isField(value, "id"):
		e.nodes = append(e.nodes, text.Value)
	}
}

func isName(n ast.Node, name string) bool {
	id, ok := n.(*ast.IdentifierNode)
	return ok && id.Value == name
}

// isField reports whether a node is this field of a member or of the last leader, and not a label.
func isField(n ast.Node, field string) bool {
	m, ok := n.(*ast.MemberNode)
	return ok && isProperty(m, field) && !isProperty(m.Node, "labels")
}

func isProperty(n ast.Node, name string) bool {
	m, ok := n.(*ast.MemberNode)
	if !ok {
		return false
	}
	property, ok := m.Property.(*ast.StringNode)
	return ok && property.Value == name
}

// causes returns the values of cause in expressions.
func causes() []string {
	var names []string
	for _, c := range cluster.Causes {
		if seen, ok := c.InPolicy(); ok && seen == c {
			names = append(names, string(c))
		}
	}
	return names
}

// CheckCauses returns an error for an expression that compares cause with a text that it never is. It is for the
// rules of a configuration, whose unknown types and settings are refused too. [New] accepts such an expression: the
// record that it compiles may have been published by a later version, which has more causes.
func CheckCauses(rules cluster.Rules) error {
	known := causes()
	for _, e := range expressionsOf(rules) {
		for _, name := range e.causes {
			if !slices.Contains(known, name) {
				return fmt.Errorf("%s: cause is never %q: it is one of %s%s", e.key, name, strings.Join(known, ", "),
					suggest.DidYouMean(name, known))
			}
		}
	}
	return nil
}

// UsesBest returns the setting of the first expression that uses best, the answers to roll calls; empty if none does.
func UsesBest(rules cluster.Rules) string {
	for _, e := range expressionsOf(rules) {
		if e.best {
			return e.key
		}
	}
	return ""
}

// checkNames returns a line for each site and node that is not among those that are known. It may be a mistake, or
// the name of hosts that have not joined yet.
func (e expression) checkNames(sites, nodes map[string]bool) (lines []string) {
	add := func(names []string, known map[string]bool, what, why string) {
		names = slices.Sorted(slices.Values(names))
		for _, name := range slices.Compact(names) {
			if name != "" && !known[name] { // empty: no last leader
				advice := suggest.DidYouMean(name, slices.Sorted(maps.Keys(known)))
				lines = append(lines, fmt.Sprintf("%s names the %s %q, %s%s", e.key, what, name, why, advice))
			}
		}
	}
	add(e.sites, sites, "site", "which no member is at, and policy.sites does not name")
	add(e.nodes, nodes, "node", "which is not a member")
	return lines
}
