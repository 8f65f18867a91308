package policy

import (
	"fmt"
	"slices"
	"strings"

	"zkelectd/internal/cluster"
)

// preset is a list of rankers with a name.
type preset struct {
	name    string
	filters []filter
	rankers []Ranker
}

const (
	execPreset = "exec"
	exprPreset = "expr"
	listPreset = "rank" // what policy.rank spells out
	exprPrefix = "expr:"
)

// lists says what the presets consist of.
var lists = []struct{ name, rank, doc string }{
	{"priority", "site priority incumbent oldest", "the site's priority, the node's, the incumbent, the oldest"},
	{"first", "oldest", "the oldest registration"},
	{"node-id", "node-id", "the lowest id"},
	{"round-robin", "incumbent round-robin", "the next in the order of the ids after the last leader"},
	{"other-site", "other-site site priority incumbent oldest", "after a failure a site other than the one that failed; else as priority"},
	{"latency", "latency site priority incumbent oldest", "the shortest round trip to ZooKeeper"},
	{"score", "score site priority incumbent oldest", "the highest number of the score probe"},
	{exprPreset, "incumbent oldest", "the highest value of policy.expr, then the incumbent, then the oldest"},
	{execPreset, "exec", "the order that policy.exec.command answers with"},
}

// Types lists the values of policy.type.
func Types() []string {
	var names []string
	for _, l := range lists {
		names = append(names, l.name)
	}
	return names
}

// Describe says what a preset ranks by.
func Describe(name string) string {
	for _, l := range lists {
		if l.name == name {
			return l.doc
		}
	}
	return ""
}

// Rankers lists what policy.rank may name, besides expr:EXPRESSION.
func Rankers() []string {
	return []string{"site", "priority", "incumbent", "oldest", "node-id", "round-robin", "other-site", "latency", "score"}
}

// presets compiles all presets that the rules allow for.
func presets(rules cluster.Rules) (map[string]preset, error) {
	all := make(map[string]preset)
	for _, l := range lists {
		p := preset{name: l.name}
		switch {
		case l.name == execPreset:
			p.filters = []filter{execFilter()}
		case l.name == exprPreset && rules.Expr == "":
			continue
		case l.name == exprPreset:
			r, err := compileRanker("policy.expr", rules.Expr)
			if err != nil {
				return nil, err
			}
			p.rankers = append(p.rankers, r)
		}
		for name := range strings.FieldsSeq(l.rank) {
			r, err := ranker(rules, "policy.type", name)
			if err != nil {
				return nil, err
			}
			p.rankers = append(p.rankers, r)
		}
		all[l.name] = p
	}
	if len(rules.Rank) > 0 {
		p := preset{name: listPreset}
		for i, name := range rules.Rank {
			r, err := ranker(rules, fmt.Sprintf("policy.rank[%d]", i), name)
			if err != nil {
				return nil, err
			}
			p.rankers = append(p.rankers, r)
		}
		all[listPreset] = p
	}
	if len(rules.Rank) == 0 || rules.Type != "" {
		if err := known(all, "policy.type", rules.Type); err != nil {
			return nil, err
		}
	}
	if rules.Fallback == execPreset {
		return nil, fmt.Errorf("policy.exec.fallback: exec cannot be its own fallback")
	}
	return all, known(all, "policy.exec.fallback", fallback(rules))
}

// fallback is the preset that ranks while exec cannot.
func fallback(rules cluster.Rules) string {
	if rules.Fallback == "" {
		return lists[0].name
	}
	return rules.Fallback
}

// UsesExec tells that a program may be asked for a ranking.
func UsesExec(rules cluster.Rules) bool {
	return (len(rules.Rank) == 0 && rules.Type == execPreset) ||
		slices.ContainsFunc(rules.Strategies, func(s cluster.Strategy) bool { return s.Use == execPreset })
}

// known refuses the name of a preset that there is not.
func known(all map[string]preset, key, name string) error {
	if _, ok := all[name]; ok {
		return nil
	}
	if name == exprPreset {
		return fmt.Errorf("%s: expr needs an expression in policy.expr", key)
	}
	if name == listPreset {
		return fmt.Errorf("%s: rank needs a list in policy.rank", key)
	}
	return fmt.Errorf("%s: %q is not a policy: want one of %s", key, name, strings.Join(Types(), ", "))
}

func ranker(rules cluster.Rules, key, name string) (Ranker, error) {
	if text, ok := strings.CutPrefix(name, exprPrefix); ok {
		return compileRanker(key, strings.TrimSpace(text))
	}
	all := []Ranker{
		siteRanker(rules.Sites), priorityRanker, incumbentRanker, oldestRanker, nodeIDRanker, roundRobinRanker, otherSiteRanker,
		latencyRanker(rules), scoreRanker(rules), execRanker,
	}
	i := slices.IndexFunc(all, func(r Ranker) bool { return r.Name() == name })
	if i < 0 || (name == execPreset && strings.HasPrefix(key, "policy.rank")) {
		return nil, fmt.Errorf("%s: %q is not a ranker: want one of %s, or expr:EXPRESSION", key, name, strings.Join(Rankers(), ", "))
	}
	return all[i], nil
}
