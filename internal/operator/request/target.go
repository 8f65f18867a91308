package request

import (
	"fmt"
	"slices"
	"strings"

	"zkelectd/internal/cluster"
	"zkelectd/internal/sys/suggest"
)

// resolve replaces Target by the node or the site of that name.
func (r Request) resolve(s cluster.Snapshot) (Request, error) {
	name := r.Target
	if name == "" {
		return r, nil
	}
	nodes, sites := members(s)
	if r.Kind == KindUncordon {
		nodes, sites = cordoned(s)
	}
	node, site := slices.Contains(nodes, name), slices.Contains(sites, name)
	r.Target = ""
	switch {
	case node && site:
		return r, fmt.Errorf("%s is a node and a site: write which one you mean, %s %[1]s or --site %[1]s", name, r.Kind.nodeFlag())
	case node, !r.Kind.Takes(FieldSite):
		r.Node = name
	case site:
		r.Site = name
	case r.Kind == KindUncordon:
		return r, notCordoned(s, name)
	default:
		return r, &NotAffectedError{Reason: fmt.Sprintf("no member has the node or site %q; there are the nodes %s and the sites %s%s",
			name, list(nodes), list(sites), didYouMean(name, slices.Concat(nodes, sites)))}
	}
	return r, nil
}

// nodeFlag returns the flag of the command that names a node.
func (k Kind) nodeFlag() string {
	if k == KindMove {
		return "--to"
	}
	return "--node"
}

// members returns the node ids and the sites of the members, sorted.
func members(s cluster.Snapshot) (nodes, sites []string) {
	for _, m := range s.Members {
		nodes, sites = append(nodes, m.ID), append(sites, m.Node.Record.Site)
	}
	return sorted(nodes), sorted(sites)
}

// cordoned returns the nodes and sites that have cordons, sorted.
func cordoned(s cluster.Snapshot) (nodes, sites []string) {
	for _, c := range s.Control.Record.Cordons {
		if c.Site != "" {
			sites = append(sites, c.Site)
		} else {
			nodes = append(nodes, c.Node)
		}
	}
	return sorted(nodes), sorted(sites)
}

func sorted(names []string) []string {
	slices.SortFunc(names, cluster.CompareNodes)
	return slices.Compact(names)
}

// checkTarget returns an error unless a member has the node id, or is at the site.
func (d *draft) checkTarget(node, site string) error {
	if (node == "") == (site == "") {
		return errTarget
	}
	nodes, sites := members(d.q.Snapshot)
	kind, known, others, other := "node", nodes, sites, "it is a site: use --site"
	if site != "" {
		kind, known, others, other = "site", sites, nodes, "it is a node"
	}
	name := node + site
	if slices.Contains(known, name) {
		return nil
	}
	hint := didYouMean(name, known)
	if slices.Contains(others, name) {
		hint = "; " + other
	}
	return &NotAffectedError{Reason: fmt.Sprintf("no member has the %s %q; there are %s%s", kind, name, list(known), hint)}
}

// notCordoned is the error for a request to end a cordon of name, empty for all, that is not in force.
func notCordoned(s cluster.Snapshot, name string) error {
	nodes, sites := cordoned(s)
	known := slices.Concat(nodes, sites)
	reason := "there is no such cordon"
	if len(known) > 0 {
		reason += "; there are cordons of " + list(known)
	}
	return &NotAffectedError{Reason: reason + didYouMean(name, known), Done: true}
}

// didYouMean returns a hint that names the one of the known names that a mistyped one is nearest to, "" if there is none.
func didYouMean(name string, known []string) string {
	near := suggest.Nearest(name, known)
	if near == "" || near == name {
		return ""
	}
	return "; did you mean " + near + "?"
}

// maxListed bounds the names in an error.
const maxListed = 20

func list(names []string) string {
	if len(names) > maxListed {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListed], ", "), len(names)-maxListed)
	}
	return strings.Join(names, ", ")
}
