package policy

import (
	"errors"
	"fmt"
	"slices"

	"zkelectd/internal/cluster"
)

// Names of filters that callers distinguish.
const (
	HealthFilter = "health"
	CordonFilter = "cordon"
	// LeavingFilter is the one for members that are about to end.
	LeavingFilter = "leaving"
	// ExcludedFilter is the one for members that the watchdog has excluded.
	ExcludedFilter = "excluded"
	// WarmFilter is the one for members whose standby is not ready to be promoted, while that of another one is.
	WarmFilter = "warm"
)

// filter decides whether a member is eligible. The functions that it binds return the reason why one is not, or "".
type filter struct {
	name string
	// soft filters do not apply to the target of a forced move.
	soft bool
	bind func(in Input) func(m *cluster.Member) string
}

// memberFilter returns a filter that looks at one member at a time.
func memberFilter(name string, check func(m *cluster.Member, in *Input) string) filter {
	return filter{name: name, bind: func(in Input) func(*cluster.Member) string {
		return func(m *cluster.Member) string { return check(m, &in) }
	}}
}

// bindWithMove binds the filter to an input. It lets the target of a forced move pass if the filter is soft.
func (f filter) bindWithMove(in Input) func(m *cluster.Member) string {
	check := f.bind(in)
	if !f.soft || in.Move == nil || !in.Move.Force {
		return check
	}
	return func(m *cluster.Member) string {
		if in.Move.Matches(m.ID, m.Node.Record.Site) {
			return ""
		}
		return check(m)
	}
}

// hardFilters and softFilters apply under every policy. An observer has no work to start, so no force makes it lead.
var (
	hardFilters = []filter{
		memberFilter("record", checkRecord),
		memberFilter(LeavingFilter, checkLeaving),
		memberFilter("eligible", func(m *cluster.Member, _ *Input) string { return m.Node.Record.Ineligible }),
	}
	softFilters = []filter{memberFilter(HealthFilter, checkHealth), memberFilter(CordonFilter, checkCordons)}
)

// CheckMember returns an error that says why a member is not eligible under any policy: because of its record,
// what it says about itself, its health or a cordon. It returns nil if none of these is a reason. [Policy.Rank] also
// considers the policy and exclusions.
func CheckMember(m cluster.Member, cordons []cluster.Cordon) error {
	in := Input{Cordons: cordons}
	for _, f := range slices.Concat(hardFilters, softFilters) {
		if why := f.bind(in)(&m); why != "" {
			return errors.New(why)
		}
	}
	return nil
}

// filters compiles the filters that apply under every policy type.
func filters(rules cluster.Rules) ([]filter, error) {
	soft := slices.Clone(softFilters)
	soft = append(soft, fullFilter)
	for i, peer := range rules.ApartStrict {
		if err := checkPeer(fmt.Sprintf("policy.apart_strict[%d]", i), peer); err != nil {
			return nil, err
		}
		soft = append(soft, apartFilter(peer, RelationsOf(rules)))
	}
	for i, text := range rules.Filter {
		f, err := compileFilter(fmt.Sprintf("policy.filter[%d]", i), text)
		if err != nil {
			return nil, err
		}
		soft = append(soft, f)
	}
	all := append(slices.Clone(hardFilters),
		memberFilter("barred", func(m *cluster.Member, in *Input) string { return in.Barred[m.Name] }),
		memberFilter(ExcludedFilter, func(m *cluster.Member, in *Input) string { return in.Excluded[m.ID] }))
	for _, f := range soft {
		f.soft = true
		all = append(all, f)
	}
	return all, nil
}

func checkRecord(m *cluster.Member, _ *Input) string {
	switch {
	case m.Superseded:
		return "an older registration of a node that has registered again"
	case !m.Node.Exists:
		return "its znode under nodes is missing"
	case m.Node.Err != nil:
		return m.Node.Err.Error()
	}
	return ""
}

func checkLeaving(m *cluster.Member, _ *Input) string {
	if m.Node.Record.Leaving == "" {
		return ""
	}
	return "it is leaving: " + m.Node.Record.Leaving
}

func checkHealth(m *cluster.Member, _ *Input) string {
	if m.Node.Record.Unhealthy == "" {
		return ""
	}
	return "unhealthy: " + m.Node.Record.Unhealthy
}

// checkCordons refuses the leader only if a drain covers it.
func checkCordons(m *cluster.Member, in *Input) string {
	for _, c := range in.Cordons {
		if c.Matches(m.ID, m.Node.Record.Site) && (c.Drain || m.Name != in.Incumbent) {
			return c.Describe()
		}
	}
	return ""
}

// preferWarm refuses eligible members whose standby is not warm, if that of another one is. An incumbent that works
// stays, and the target of a forced move is what an operator wants.
func preferWarm(entries []Entry, in *Input) {
	keeps := func(m *cluster.Member) bool {
		return m.Node.Record.IsWarm() || m.Name == in.Incumbent && !in.Lapsed || in.Move != nil && in.Move.Force &&
			in.Move.Matches(m.ID, m.Node.Record.Site)
	}
	if !slices.ContainsFunc(entries, func(e Entry) bool { return e.Eligible() && e.Member.Node.Record.IsWarm() }) {
		return
	}
	for i := range entries {
		if e := &entries[i]; e.Eligible() && !keeps(e.Member) {
			e.Refusals = []Refusal{{WarmFilter, "its standby is " + e.Member.Node.Record.Standby.String()}}
		}
	}
}
