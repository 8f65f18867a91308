package policy

import (
	"fmt"
	"maps"
	"slices"

	"zkelectd/internal/cluster"
)

// Names of filters that the elector tells apart.
const (
	HealthFilter = "health"
	CordonFilter = "cordon"
	// ExcludedFilter keeps out who has failed, for a while.
	ExcludedFilter = "excluded"
)

// filter says why a member may not lead, "" if it may.
type filter struct {
	name string
	// soft filters are put aside for the target of a forced move.
	soft bool
	bind func(in Input) func(m cluster.Member) string
}

// plain is a filter that looks at one member at a time.
func plain(name string, refuses func(m cluster.Member, in Input) string) filter {
	return filter{name: name, bind: func(in Input) func(cluster.Member) string {
		return func(m cluster.Member) string { return refuses(m, in) }
	}}
}

// bound is the filter for one input.
func (f filter) bound(in Input) func(m cluster.Member) string {
	refuses := f.bind(in)
	if !f.soft || in.Move == nil || !in.Move.Force {
		return refuses
	}
	return func(m cluster.Member) string {
		if in.Move.Meets(m.ID, m.Node.Record.Site) {
			return ""
		}
		return refuses(m)
	}
}

// filters are those that hold under every preset.
func filters(rules cluster.Rules) ([]filter, error) {
	soft := []filter{
		plain("eligible", func(m cluster.Member, _ Input) string { return m.Node.Record.Ineligible }),
		plain(HealthFilter, unhealthy),
		plain(CordonFilter, cordoned),
	}
	soft = append(soft, constraints(rules)...)
	for i, text := range rules.Filter {
		f, err := compileFilter(fmt.Sprintf("policy.filter[%d]", i), text)
		if err != nil {
			return nil, err
		}
		soft = append(soft, f)
	}
	all := []filter{
		plain("record", recordRefuses),
		plain("barred", func(m cluster.Member, in Input) string { return in.Barred[m.Name] }),
		plain(ExcludedFilter, func(m cluster.Member, in Input) string { return in.Excluded[m.ID] }),
	}
	for _, f := range soft {
		f.soft = true
		all = append(all, f)
	}
	return all, nil
}

func recordRefuses(m cluster.Member, _ Input) string {
	switch {
	case m.Superseded:
		return "an older registration of a node that has registered again"
	case !m.Node.Exists:
		return "its znode below nodes is missing"
	case m.Node.Err != nil:
		return m.Node.Err.Error()
	}
	return ""
}

func unhealthy(m cluster.Member, _ Input) string {
	if m.Node.Record.Unhealthy == "" {
		return ""
	}
	return "unhealthy: " + m.Node.Record.Unhealthy
}

// cordoned lets a leader go on, unless it is to be drained.
func cordoned(m cluster.Member, in Input) string {
	for _, c := range in.Cordons {
		if c.Meets(m.ID, m.Node.Record.Site) && (c.Drain || m.Name != in.Incumbent) {
			return c.Words()
		}
	}
	return ""
}

func constraints(rules cluster.Rules) []filter {
	var all []filter
	add := func(name string, refuses func(n cluster.Node) string) {
		all = append(all, plain(name, func(m cluster.Member, _ Input) string { return refuses(m.Node.Record) }))
	}
	if rules.MinPriority != 0 {
		add("min_priority", func(n cluster.Node) string {
			if n.Priority >= rules.MinPriority {
				return ""
			}
			return fmt.Sprintf("priority %d is below policy.min_priority %d", n.Priority, rules.MinPriority)
		})
	}
	for _, key := range slices.Sorted(maps.Keys(rules.RequireLabels)) {
		want := rules.RequireLabels[key]
		add("require_labels", func(n cluster.Node) string {
			if n.Labels[key] == want {
				return ""
			}
			return fmt.Sprintf("has not the label %s=%s of policy.require_labels", key, want)
		})
	}
	if len(rules.ExcludeNodes) > 0 {
		add("exclude_nodes", func(n cluster.Node) string {
			if !slices.Contains(rules.ExcludeNodes, n.ID) {
				return ""
			}
			return "policy.exclude_nodes names it"
		})
	}
	if len(rules.DisabledSites) > 0 {
		add("disabled_sites", func(n cluster.Node) string {
			if !slices.Contains(rules.DisabledSites, n.Site) {
				return ""
			}
			return fmt.Sprintf("policy.disabled_sites names its site %s", n.Site)
		})
	}
	return all
}
