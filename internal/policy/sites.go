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

// comparedSite is a site that an expression compares with. Key is the setting.
type comparedSite struct{ key, site string }

// comparedSites returns the sites that the expressions in the rules compare with.
func comparedSites(rules cluster.Rules) (all []comparedSite) {
	_ = eachExpression(rules, func(key, text string) error { // there is none
		tree, err := parser.Parse(text)
		if err != nil {
			return nil // compile has reported it
		}
		c := comparisons{is: isSite, isList: isFailedSites}
		ast.Walk(&tree.Node, &c)
		slices.Sort(c.texts)
		for _, site := range slices.Compact(c.texts) {
			if site != "" { // no last leader
				all = append(all, comparedSite{key, site})
			}
		}
		return nil
	})
	return all
}

// unknownSites returns a line for each site that is not among those that are known. It may be a mistake, or a site whose hosts have not
// joined yet.
func unknownSites(compared []comparedSite, known map[string]bool) (lines []string) {
	names := slices.Sorted(maps.Keys(known))
	for _, c := range compared {
		if !known[c.site] {
			lines = append(lines, fmt.Sprintf("%s names the site %q, which no member is at, and policy.sites does not name%s",
				c.key, c.site, suggest.Hint(c.site, names)))
		}
	}
	return lines
}

// isSite reports whether a node is the site of a member or of the last leader, and not a label.
func isSite(n ast.Node) bool {
	m, ok := n.(*ast.MemberNode)
	return ok && isProperty(m, "site") && !isProperty(m.Node, "labels")
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
