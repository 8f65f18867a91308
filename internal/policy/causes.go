package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/parser"

	"zkelectd/internal/cluster"
	"zkelectd/internal/sys/suggest"
)

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

// checkCause returns an error if cause is never name in expressions.
func checkCause(name string) error {
	known := causes()
	if slices.Contains(known, name) {
		return nil
	}
	return fmt.Errorf("cause is never %q: it is one of %s%s", name, strings.Join(known, ", "), suggest.Hint(name, known))
}

// CheckCauses returns an error for an expression that compares cause with a text that it never is. It is for the rules of a
// configuration, whose unknown types and settings are refused too. [New] accepts such an expression: the record that it compiles may have
// been published by a later version, which has more causes.
func CheckCauses(rules cluster.Rules) error {
	check := func(key, text string) error {
		tree, err := parser.Parse(text)
		if err != nil {
			return nil // New reports it
		}
		c := comparisons{is: isCause}
		ast.Walk(&tree.Node, &c)
		for _, name := range c.texts {
			if err := checkCause(name); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		}
		return nil
	}
	return eachExpression(rules, check)
}

// eachExpression calls f for the expressions in the rules until it returns an error.
func eachExpression(rules cluster.Rules, f func(key, text string) error) error {
	for i, name := range rules.Rank {
		if text, ok := strings.CutPrefix(name, exprPrefix); ok {
			if err := f(fmt.Sprintf("policy.rank[%d]", i), text); err != nil {
				return err
			}
		}
	}
	for i, text := range rules.Filter {
		if err := f(fmt.Sprintf("policy.filter[%d]", i), text); err != nil {
			return err
		}
	}
	if rules.Confirm != "" {
		if err := f("policy.confirm", rules.Confirm); err != nil {
			return err
		}
	}
	for i, s := range rules.Strategies {
		if s.When != "" {
			if err := f(fmt.Sprintf("policy.strategies[%d].when", i), s.When); err != nil {
				return err
			}
		}
	}
	return nil
}

// comparisons collects the texts with which a parsed expression compares a value, and those that it looks for in a list.
type comparisons struct {
	is     func(ast.Node) bool
	isList func(ast.Node) bool // nil for no list
	texts  []string
}

// Visit implements [ast.Visitor].
func (c *comparisons) Visit(node *ast.Node) {
	n, ok := (*node).(*ast.BinaryNode)
	if !ok {
		return
	}
	switch n.Operator {
	case "==", "!=":
		if c.is(n.Left) {
			c.add(n.Right)
		} else if c.is(n.Right) {
			c.add(n.Left)
		}
	case "in":
		if list, ok := n.Right.(*ast.ArrayNode); ok && c.is(n.Left) {
			for _, item := range list.Nodes {
				c.add(item)
			}
		} else if c.isList != nil && c.isList(n.Right) {
			c.add(n.Left)
		}
	}
}

func (c *comparisons) add(n ast.Node) {
	if text, ok := n.(*ast.StringNode); ok {
		c.texts = append(c.texts, text.Value)
	}
}

func isCause(n ast.Node) bool {
	id, ok := n.(*ast.IdentifierNode)
	return ok && id.Value == "cause"
}
