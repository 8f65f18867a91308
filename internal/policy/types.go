package policy

import (
	"fmt"
	"slices"
	"strings"

	"zkelectd/internal/cluster"
	"zkelectd/internal/sys/suggest"
)

// policyType is a named list of rankers, with additional filters.
type policyType struct {
	name    string
	filters []filter
	rankers []ranker
}

// add appends a ranker. One that spreads groups follows the one for sites, if they share.
func (p *policyType) add(rules cluster.Rules, r ranker) {
	switch sites := (spreadBy{site: true}); {
	case !bySite(rules):
	case r.name == spreadName:
		p.rankers = append(p.rankers, spreadRanker(sites))
	case r.name == fewestName:
		p.rankers = append(p.rankers, fewestRanker(sites, false))
		r = fewestRanker(spreadBy{}, true)
	}
	p.rankers = append(p.rankers, r)
}

const (
	execType = "exec"
	// fallback is the type that is used while exec has no answer.
	fallback   = "priority"
	listType   = "rank" // the list in policy.rank
	exprPrefix = "expr:"
)

// typeSpecs defines the policy types.
var typeSpecs = []struct{ name, rank string }{
	{"priority", "site priority incumbent oldest"},
	{"first", "oldest"},
	{"node-id", "node-id"},
	{"highest-node-id", "highest-node-id"},
	{"round-robin", "incumbent round-robin"},
	{"other-site", "other-site site priority incumbent oldest"},
	{"latency", "latency site priority incumbent oldest"},
	{"score", "score site priority incumbent oldest"},
	{"spread", "spread"},
	{"fewest", "fewest"},
	{execType, "exec"},
}

// Types returns the values of policy.type.
func Types() []string {
	var names []string
	for _, l := range typeSpecs {
		names = append(names, l.name)
	}
	return names
}

// Rankers returns the names that policy.rank may list, besides those with a colon.
func Rankers() []string {
	return []string{"site", "priority", "incumbent", "oldest", "node-id", "highest-node-id", "round-robin",
		"other-site", "latency", "score", "spread", "fewest"}
}

// compileTypes compiles all policy types that the rules provide for.
func compileTypes(rules cluster.Rules) (map[string]policyType, error) {
	all := make(map[string]policyType)
	for _, l := range typeSpecs {
		p := policyType{name: l.name}
		if l.name == execType {
			p.filters = []filter{execFilter()}
		}
		for name := range strings.FieldsSeq(l.rank) {
			r, err := newRanker(rules, "policy.type", name)
			if err != nil {
				return nil, err
			}
			p.add(rules, r)
		}
		all[l.name] = p
	}
	if len(rules.Rank) > 0 {
		p := policyType{name: listType}
		for i, name := range rules.Rank {
			r, err := newRanker(rules, fmt.Sprintf("policy.rank[%d]", i), name)
			if err != nil {
				return nil, err
			}
			p.add(rules, r)
		}
		all[listType] = p
	}
	if len(rules.Rank) == 0 || rules.Type != "" {
		if err := checkType(all, "policy.type", rules.Type); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// UsesExec reports whether the rules may run the ranking program.
func UsesExec(rules cluster.Rules) bool {
	return (len(rules.Rank) == 0 && rules.Type == execType) ||
		slices.ContainsFunc(rules.Strategies, func(s cluster.Strategy) bool { return s.Use == execType })
}

// checkType returns an error if there is no policy type of that name.
func checkType(all map[string]policyType, key, name string) error {
	if _, ok := all[name]; ok {
		return nil
	}
	if name == listType {
		return fmt.Errorf("%s: rank needs a list in policy.rank", key)
	}
	return fmt.Errorf("%s: %q is not a policy: want one of %s%s", key, name, strings.Join(Types(), ", "),
		suggest.DidYouMean(name, Types()))
}

// newRanker returns the ranker of a name that the setting key lists.
func newRanker(rules cluster.Rules, key, name string) (ranker, error) {
	if text, ok := strings.CutPrefix(name, exprPrefix); ok {
		return compileRanker(key, strings.TrimSpace(text))
	}
	for _, prefix := range []string{newestPrefix, oldestPrefix} {
		if label, ok := strings.CutPrefix(name, prefix); ok {
			return versionRanker(prefix, label), checkLabel(key, label)
		}
	}
	if peer, ok := strings.CutPrefix(name, withPrefix); ok {
		return withRanker(peer, RelationsOf(rules)), checkPeer(key, peer)
	}
	if peer, ok := strings.CutPrefix(name, apartPrefix); ok {
		return apartRanker(peer, RelationsOf(rules)), checkPeer(key, peer)
	}
	all := []ranker{
		siteRanker(rules.Sites), priorityRanker, incumbentRanker, oldestRanker, nodeIDRanker, highestNodeIDRanker,
		roundRobinRanker, otherSiteRanker,
		latencyRanker(rules), scoreRanker(rules), spreadRanker(spreadBy{}), fewestRanker(spreadBy{}, false), execRanker,
	}
	i := slices.IndexFunc(all, func(r ranker) bool { return r.name == name })
	if i < 0 || (name == execType && strings.HasPrefix(key, "policy.rank")) {
		return ranker{}, fmt.Errorf("%s: %q is not a ranker: want one of %s, newest:LABEL, oldest:LABEL, with:GROUP, "+
			"apart:GROUP or expr:EXPRESSION%s", key, name, strings.Join(Rankers(), ", "), suggest.DidYouMean(name, Rankers()))
	}
	return all[i], nil
}
