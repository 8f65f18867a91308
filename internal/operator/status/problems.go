package status

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

// driftGrace is how long after a change of the policy the files of the other hosts may differ from it without a
// problem. The alert ZkelectdPolicyDrift waits as long.
const driftGrace = 30 * time.Minute

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
		g.Problems = append(g.Problems, "the policy in force cannot be used, so each elector ranks by its own "+
			"configuration: "+err.Error())
		return
	}
	g.Problems = append(g.Problems, compiled.Problems(&s)...)
	var drifted []string
	for _, m := range g.Members {
		if m.Drift {
			drifted = append(drifted, m.Node)
		}
	}
	if len(drifted) > 0 {
		text := fmt.Sprintf("the policy in force, which %s has published, is not in the files of %s: %s prints it for them",
			rec.By, strings.Join(drifted, ", "), cluster.InGroup("'zkelectd policy'", g.Name))
		if time.Since(rec.Time) < driftGrace {
			g.drift = text
		} else {
			g.Problems = append(g.Problems, text)
		}
	}
}

// describeDamage adds the records that cannot be read, and the consequences, to the problems. That no leader has been
// elected yet is not a problem.
func (g *Group) describeDamage(s cluster.Snapshot) {
	add := func(err error, consequence string) {
		if err != nil {
			g.Problems = append(g.Problems, err.Error()+consequence)
		}
	}
	describe := func(err, newer error) {
		switch {
		case errors.Is(err, cluster.ErrNeverWritten):
		case newer != nil:
			add(err, ", or stop its daemon: until then it neither elects nor takes over")
		default:
			add(err, "")
		}
	}
	describe(s.Elected.Err, s.Elected.Newer())
	describe(s.Fence.Err, s.Fence.Newer())
	describe(s.Current.Err, s.Current.Newer())
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
	operators(s.Policy.Err, s.Policy.Newer(), ": the policy is damaged, so policy does not replace a healthy leader, "+
		"and each elector ranks by its own "+
		"configuration; "+cluster.InGroup("'zkelectd repair policy'", g.Name)+" repairs it")
	operators(s.Control.Err, s.Control.Newer(), ": the requests of operators are damaged, so policy does not replace "+
		"a healthy leader; "+
		cluster.InGroup("'zkelectd repair control'", g.Name)+" empties the record")
}

// addPassing adds a problem that passes by itself.
func (g *Group) addPassing(problem string) {
	g.Problems, g.Passing = append(g.Problems, problem), append(g.Passing, problem)
}

// describeHosts adds to the problems the members that could not start the work, not run a hook or a probe, or not write
// as the elector.
func (g *Group) describeHosts(s cluster.Snapshot) {
	for _, m := range s.Members {
		all := m.Node.Record.Problems
		for _, why := range all[:min(len(all), cluster.MaxProblems)] {
			g.Problems = append(g.Problems,
				fmt.Sprintf("%s is not ready to lead: %s ('zkelectd check --config /etc/zkelectd.yaml' on that host)", m.ID, why))
		}
	}
}

// describeOldSettings adds the members that run with an older configuration than their files to the problems.
func (g *Group) describeOldSettings(s cluster.Snapshot) {
	for _, m := range s.Members {
		if why := m.Node.Record.Refused; why != "" {
			g.Problems = append(g.Problems, fmt.Sprintf("%s runs with an older configuration, as its files "+
				"are refused: %s", m.ID, why))
		}
		if keys := m.Node.Record.Pending; keys != "" {
			g.Problems = append(g.Problems, fmt.Sprintf("%s runs with older settings than its files: restart "+
				"zkelectd there to apply %s", m.ID, keys))
		}
	}
}

// GroupFailsafe is the failsafe mode of a group as its records, and its leader, describe it.
type GroupFailsafe struct {
	// Members are the nodes that must promise before the leader works on without ZooKeeper. If there are none, it never
	// does.
	Members []string `json:"members"`
	// Outside are the members that take no part.
	Outside []string `json:"outside,omitempty"`
	// WaitsFor are the nodes of which one must agree before there is another leader; none if that is not needed. Stuck
	// is set if none of them is registered with the state directory that it had.
	WaitsFor []string `json:"waits_for,omitempty"`
	Stuck    bool     `json:"stuck,omitempty"`
	// Leader is what the leader's daemon has answered; nil if it was not asked, or has not answered.
	Leader *Failsafe `json:"leader,omitempty"`
}

// describeFailsafe describes failsafe mode, if the policy enables it or the last leader may be in it.
func (g *Group) describeFailsafe(s cluster.Snapshot) {
	f := &s.Fence.Record
	asked := s.Fence.Readable() && f.Failsafe != nil && len(f.Failsafe.Members) > 0
	enabled := s.Policy.Readable() && s.Policy.Record.Failsafe.Enabled
	if !asked && !enabled {
		return
	}
	view := &GroupFailsafe{Members: []string{}}
	g.Failsafe = view
	if asked {
		for _, m := range f.Failsafe.Members {
			view.Members = append(view.Members, m.ID)
		}
	}
	for _, m := range s.Members {
		if enabled && m.Node.Readable() && !m.Superseded && !m.Node.Record.Failsafe.CanPromise() {
			view.Outside = append(view.Outside, m.ID)
		}
	}
	if len(view.Outside) > 0 {
		g.Problems = append(g.Problems, fmt.Sprintf("failsafe mode is enabled, but %s takes no part in it "+
			"('zkelectd doctor' on that host says why)", strings.Join(view.Outside, ", ")))
	}
	if s.Current.Exists || f.CheckSuccession() == nil || !asked {
		return
	}
	view.WaitsFor = append([]string{f.Node}, view.Members...)
	if view.Stuck = s.CheckStuck() == nil; view.Stuck {
		g.Problems = append(g.Problems, fmt.Sprintf("%s may still work in failsafe mode (term %d), and none of the "+
			"nodes that can say otherwise is registered (%s): start one of them%s; "+
			"if all are lost for good, see %s", f.Node, f.Term, strings.Join(view.WaitsFor, ", "),
			stateless(s, view.WaitsFor), cluster.InGroup("'zkelectd force --dry-run'", g.Name)))
	}
}

// stateless says which of the nodes are registered, but cannot agree to a successor.
func stateless(s cluster.Snapshot, nodes []string) string {
	var found []string
	for _, m := range s.Members {
		if slices.Contains(nodes, m.ID) {
			found = append(found, m.ID)
		}
	}
	switch len(found) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf(" with the state directory that it had (%s is registered, but without the state directory "+
			"that it had: see docs/failsafe.md)", found[0])
	}
	return fmt.Sprintf(" with the state directory that it had (%s are registered, but without the state directories "+
		"that they had: see docs/failsafe.md)", strings.Join(found, ", "))
}

// text returns the line about failsafe mode.
func (f *GroupFailsafe) text() string {
	if f == nil {
		return ""
	}
	list := strings.Join(f.Members, ", ")
	switch {
	case f.Stuck:
		return "stuck: waits for " + strings.Join(f.WaitsFor, " or ")
	case len(f.WaitsFor) > 0:
		return "the last leader may still work, until " + strings.Join(f.WaitsFor, " or ") + " says otherwise"
	case len(f.Members) == 0:
		return "enabled, but without ZooKeeper the leader would stop: nobody could promise to let nobody else take over"
	case f.Leader == nil:
		return "works on without ZooKeeper if all of these promise to let nobody take over: " + list
	case f.Leader.Active:
		return "ACTIVE: ZooKeeper does not answer the leader, which works on because all of these promise to let " +
			"nobody take over: " + list
	case f.Leader.Ready:
		return "ready: would work on without ZooKeeper, by promises of " + list
	}
	return "not ready: without ZooKeeper the leader would stop"
}
