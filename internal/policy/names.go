package policy

import (
	"fmt"
	"maps"
	"slices"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/parser"

	"zkelectd/internal/cluster"
	"zkelectd/internal/sys/suggest"
)

// comparison has the sites and nodes that the expression of a setting compares with.
type comparison struct {
	key          string
	sites, nodes []string
}

// comparisonsOf returns what the expressions in the rules compare with.
func comparisonsOf(rules cluster.Rules) (all []comparison) {
	_ = eachExpression(rules, func(key, text string) error { // there is none
		tree, err := parser.Parse(text)
		if err != nil {
			return nil // compile has reported it
		}
		texts := func(c comparisons) []string {
			ast.Walk(&tree.Node, &c)
			slices.Sort(c.texts)
			none := func(name string) bool { return name == "" } // no last leader
			return slices.DeleteFunc(slices.Compact(c.texts), none)
		}
		all = append(all, comparison{
			key: key, sites: texts(comparisons{is: isFieldOf("site"), isList: isFailedSites}), nodes: texts(comparisons{is: isFieldOf("id")}),
		})
		return nil
	})
	return all
}

// check returns a line for each site and node that is not among those that are known. It may be a mistake, or the name of hosts that have
// not joined yet.
func (c comparison) check(sites, nodes map[string]bool) (lines []string) {
	add := func(names []string, known map[string]bool, what, why string) {
		for _, name := range names {
			if !known[name] {
				hint := suggest.Hint(name, slices.Sorted(maps.Keys(known)))
				lines = append(lines, fmt.Sprintf("%s names the %s %q, %s%s", c.key, what, name, why, hint))
			}
		}
	}
	add(c.sites, sites, "site", "which no member is at, and policy.sites does not name")
	add(c.nodes, nodes, "node", "which is not a member")
	return lines
}

// isFieldOf returns a function that reports whether a node is this field of a member or of the last leader, and not a label.
func isFieldOf(field string) func(ast.Node) bool {
	return func(n ast.Node) bool {
		m, ok := n.(*ast.MemberNode)
		return ok && isProperty(m, field) && !isProperty(m.Node, "labels")
	}
}

func isProperty(n ast.Node, name string) bool {
	m, ok := n.(*ast.MemberNode)
	if !ok {
		return false
	}
	property, ok := m.Property.(*ast.StringNode)
	return ok && property.Value == name
}

func isFailedSites(n ast.Node) bool {
	id, ok := n.(*ast.IdentifierNode)
	return ok && id.Value == "failed_sites"
}
