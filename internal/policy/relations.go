package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"zkelectd/internal/cluster"
)

const (
	withPrefix  = "with:"
	apartPrefix = "apart:"
	apartName   = "apart_strict"
)

// peerName matches the name of a group or a slot.
var peerName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}(/(0|[1-9][0-9]{0,2}))?$`)

func checkPeer(key, name string) error {
	if !peerName.MatchString(name) {
		return fmt.Errorf("%s: %q is not the name of a group, as in billing, or of a slot, as in ingest/3", key, name)
	}
	return nil
}

// Relations are the groups that a policy refers to.
type Relations struct {
	// With are those whose leader the group follows, Apart those whose leader it avoids.
	With, Apart []string
}

// Relates reports whether a ranker compares members by who leads another group.
func Relates(ranker string) bool {
	return strings.HasPrefix(ranker, withPrefix) || strings.HasPrefix(ranker, apartPrefix)
}

// RelationsOf returns the relations of a policy. A name that is not one of a group is left out.
func RelationsOf(rules cluster.Rules) Relations {
	var r Relations
	add := func(list *[]string, name string) {
		if peerName.MatchString(name) && !slices.Contains(*list, name) {
			*list = append(*list, name)
		}
	}
	for _, item := range rules.Rank {
		if name, ok := strings.CutPrefix(item, withPrefix); ok {
			add(&r.With, name)
		} else if name, ok := strings.CutPrefix(item, apartPrefix); ok {
			add(&r.Apart, name)
		}
	}
	for _, name := range rules.ApartStrict {
		add(&r.Apart, name)
	}
	return r
}

// Peers returns the names of all groups that the policy refers to.
func (r Relations) Peers() []string { return slices.Concat(r.With, r.Apart) }

// Graph has the relations of several groups, by their names.
type Graph map[string]Relations

// Cycle returns the relations that lead from the peer back to the group, beginning and ending with the group; nil if
// none do.
func (g Graph) Cycle(group, peer string) []string {
	seen := map[string]bool{}
	var walk func(at string) []string
	walk = func(at string) []string {
		if at == group {
			return []string{group}
		}
		if seen[at] {
			return nil
		}
		seen[at] = true
		for _, next := range g[at].Peers() {
			if rest := walk(next); rest != nil {
				return append([]string{at}, rest...)
			}
		}
		return nil
	}
	if rest := walk(peer); rest != nil {
		return append([]string{group}, rest...)
	}
	return nil
}

// CheckWith returns an error for the first group that a group must not follow, because that group refers back to it.
// Its text begins with the item of policy.rank.
func (g Graph) CheckWith(group string) error {
	for _, peer := range g[group].With {
		if cycle := g.Cycle(group, peer); cycle != nil {
			return fmt.Errorf("%s%s: the groups refer to each other in a circle (%s): remove one of these relations",
				withPrefix, peer, strings.Join(cycle, " -> "))
		}
	}
	return nil
}

// graph returns the relations of all groups that are known, with those of the group that is ranked.
func (in Input) graph(own Relations) Graph {
	all := Graph{in.Group: own}
	for name, r := range in.Relations {
		if name != in.Group {
			all[name] = r
		}
	}
	return all
}

// yields reports whether a leader makes room for the peer's. In a circle, only the later name yields to the earlier
// one, or leaders would move for ever.
func yields(in Input, own Relations, peer string) bool {
	return in.Group > peer || in.graph(own).Cycle(in.Group, peer) == nil
}

// withRanker prefers the node that is elected in another group.
func withRanker(peer string, own Relations) ranker {
	return ranker{withPrefix + peer, func(in Input) scorer {
		node := in.Peers[peer]
		if node != "" && in.graph(own).Cycle(in.Group, peer) != nil {
			node = ""
		}
		return func(m *cluster.Member) (float64, string) {
			switch {
			case node == "":
				return 0, ""
			case m.ID == node:
				return 1, "with " + peer
			}
			return 0, "not with " + peer
		}
	}}
}

// avoided returns the node that is elected in another group, and the incarnation that stays there all the same.
func avoided(in Input, own Relations, peer string) (node, stays string) {
	node = in.Peers[peer]
	if node != "" && !yields(in, own, peer) {
		stays = in.Incumbent
	}
	return node, stays
}

// apartRanker prefers nodes that are not elected in another group.
func apartRanker(peer string, own Relations) ranker {
	return ranker{apartPrefix + peer, func(in Input) scorer {
		node, stays := avoided(in, own, peer)
		return func(m *cluster.Member) (float64, string) {
			switch {
			case node == "":
				return 0, ""
			case m.ID != node:
				return 1, "apart from " + peer
			case m.Name == stays:
				return 1, peer + " has to yield"
			}
			return 0, "not apart from " + peer
		}
	}}
}

// apartFilter refuses the node that is elected in another group.
func apartFilter(peer string, own Relations) filter {
	return filter{name: apartName, bind: func(in Input) func(*cluster.Member) string {
		node, stays := avoided(in, own, peer)
		return func(m *cluster.Member) string {
			if node == "" || m.ID != node || m.Name == stays {
				return ""
			}
			return fmt.Sprintf("%s leads there, and policy.apart_strict lists it", peer)
		}
	}}
}

// relationNotes returns which rankers are ignored because groups follow each other in a circle.
func relationNotes(in Input, own Relations) (notes []string) {
	for _, peer := range own.With {
		if cycle := in.graph(own).Cycle(in.Group, peer); cycle != nil {
			notes = append(notes, fmt.Sprintf("%s%s is ignored: the groups refer to each other in a circle (%s)",
				withPrefix, peer, strings.Join(cycle, " -> ")))
		}
	}
	return notes
}

// Awaits returns a group that the policy follows and that is about to decide: no node is elected there, or one that
// cannot lead any more. It returns an empty string if there is none.
func (p *Policy) Awaits(in Input) string {
	if use, _, _ := p.chooseType(in); use.name != listType {
		return ""
	}
	own := RelationsOf(p.Rules)
	for _, peer := range own.With {
		node, known := in.Peers[peer]
		if known && (node == "" || !canLead(in, node)) && in.graph(own).Cycle(in.Group, peer) == nil {
			return peer
		}
	}
	return ""
}

// canLead reports whether a node that another group has elected can go on leading there. One that is no member here is
// taken to lead, unless it has just led this group as well.
func canLead(in Input, node string) bool {
	for _, m := range in.Members {
		if m.ID == node && !m.Superseded {
			return CheckMember(m, in.Cordons) == nil && in.Barred[m.Name] == ""
		}
	}
	return node != in.Circumstances.Node
}

// DependsOnOthers reports whether a member is not eligible because of what is led elsewhere.
func (r Ranking) DependsOnOthers() bool {
	return slices.ContainsFunc(r.Entries, func(e Entry) bool {
		return slices.ContainsFunc(e.Refusals, func(f Refusal) bool { return f.Filter == fullName || f.Filter == apartName })
	})
}
