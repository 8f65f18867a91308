package status

import (
	"errors"
	"fmt"
	"strings"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

// describePolicy describes the policy in force, and what is wrong with it.
func (g *Group) describePolicy(s cluster.Snapshot, policies *policy.Cache) {
	if !s.Policy.Readable() {
		return
	}
	rec := s.Policy.Record
	what := rec.Type
	switch {
	case len(rec.Strategies) > 0:
		what = fmt.Sprintf("%d strategies, else %s", len(rec.Strategies), rec.Type)
	case len(rec.Rank) > 0:
		what = "rank " + strings.Join(rec.Rank, ", ")
	}
	g.Policy = fmt.Sprintf("%s, revision %d, published by %s", what, rec.Revision, rec.By)
	compiled, err := policies.Compile(rec)
	if err != nil {
		g.Problems = append(g.Problems, "the policy in force cannot be used, so each elector ranks by its own configuration: "+err.Error())
		return
	}
	g.Problems = append(g.Problems, compiled.Problems(s.Members)...)
	var drifted []string
	for _, m := range g.Members {
		if m.Drift {
			drifted = append(drifted, m.Node)
		}
	}
	if len(drifted) > 0 {
		g.Problems = append(g.Problems, fmt.Sprintf("the policy in the configuration of %s is not the one in force (there, %s shows the difference)",
			strings.Join(drifted, ", "), cluster.InGroup("'zkelectd policy --apply --dry-run --config /etc/zkelectd.yaml'", g.Name)))
	}
}

// describeDamage adds the records that cannot be read, and the consequences, to the problems. That no leader has been elected yet
// is not a problem.
func (g *Group) describeDamage(s cluster.Snapshot) {
	add := func(err error, consequence string) {
		if err != nil {
			g.Problems = append(g.Problems, err.Error()+consequence)
		}
	}
	leadership := func(err, newer error) {
		switch {
		case errors.Is(err, cluster.ErrNeverWritten):
		case newer != nil:
			add(err, ", or stop its daemon: until then it neither elects nor takes over")
		default:
			add(err, "")
		}
	}
	leadership(s.Elected.Err, s.Elected.Newer())
	leadership(s.Fence.Err, s.Fence.Newer())
	leadership(s.Current.Err, s.Current.Newer())
	g.Obstructed = s.ForeignCurrent()
	operators := func(err, newer error, damaged string) {
		if newer != nil {
			damaged = ": until then policy does not replace a healthy leader"
		}
		add(err, damaged)
	}
	if newer := s.Roster.Newer(); newer != nil {
		add(newer, ": members that are lost are not shown")
	} else if s.Roster.Err != nil {
		g.addPassing(s.Roster.Err.Error() + ": members that are lost are not shown; the elector writes it anew")
	}
	operators(s.Policy.Err, s.Policy.Newer(), ": the policy is damaged, so policy does not replace a healthy leader, and each elector ranks by its own "+
		"configuration; "+cluster.InGroup("'zkelectd repair policy'", g.Name)+" repairs it")
	operators(s.Control.Err, s.Control.Newer(), ": the requests of operators are damaged, so policy does not replace a healthy leader; "+
		cluster.InGroup("'zkelectd repair control'", g.Name)+" empties the record")
}

// addPassing adds a problem that passes by itself.
func (g *Group) addPassing(problem string) {
	g.Problems, g.Passing = append(g.Problems, problem), append(g.Passing, problem)
}

// describeDroppedSchedules adds the scheduled moves that were dropped to the problems, until an operator has acknowledged them.
func (g *Group) describeDroppedSchedules(s cluster.Snapshot) {
	for _, e := range s.Control.Record.EndedSchedules {
		if e.Outcome != cluster.ScheduleDropped || e.Acknowledged || s.Slot != "" && e.Slot != s.Slot {
			continue
		}
		slot, name := "", cluster.SlotName(g.Name, e.Slot)
		if e.Slot != "" {
			slot = "slot " + e.Slot + ": "
		}
		g.Problems = append(g.Problems, fmt.Sprintf("%s%s; order it again with %s, or acknowledge this with %s",
			slot, e.Describe(e.Time), cluster.InGroup("'zkelectd move'", name), cluster.InGroup("'zkelectd move --cancel'", name)))
	}
}

// describeHosts adds to the problems the members that could not start the work, not run a hook or a probe, or not write as the elector.
func (g *Group) describeHosts(s cluster.Snapshot) {
	for _, m := range s.Members {
		all := m.Node.Record.Problems
		for _, why := range all[:min(len(all), cluster.MaxProblems)] {
			g.Problems = append(g.Problems, fmt.Sprintf("%s is not ready to lead: %s ('zkelectd check --config /etc/zkelectd.yaml' on that host)", m.ID, why))
		}
	}
}

// describeOldSettings adds the members that run with an older configuration than their files to the problems.
func (g *Group) describeOldSettings(s cluster.Snapshot) {
	for _, m := range s.Members {
		if why := m.Node.Record.Refused; why != "" {
			g.Problems = append(g.Problems, fmt.Sprintf("%s runs with an older configuration, as its files are refused: %s", m.ID, why))
		}
		if keys := m.Node.Record.Pending; keys != "" {
			g.Problems = append(g.Problems, fmt.Sprintf("%s runs with older settings than its files: restart zkelectd there to apply %s", m.ID, keys))
		}
	}
}
