package elector

import (
	"reflect"
	"slices"
	"testing"

	"zkelectd/internal/cluster"
)

// before adds sites that have failed to the circumstances of the decision.
func (g *group) before(failed ...string) *group {
	g.Elected.Record.Circumstances = cluster.Circumstances{Cause: cluster.CauseFailure, Node: "x", Site: "dc0", Failed: failed}
	return g
}

func TestCircumstancesOfAnElection(t *testing.T) {
	two := func() *group { return newGroup("a", "b").sites("dc1", "dc2") }
	led := func(g *group) *group { g.Fence.Record.Led = true; return g }
	stopped := func(g *group) *group { g.Fence.Record.Requested = true; return g }
	unhealthy := two().leads("a", 7).before("dc0")
	unhealthy.node("a").Unhealthy = "sick"
	nowhere := newGroup("b").leads("a", 7)
	nowhere.Elected.Record.Site = ""
	drained := two().leads("a", 7).before("dc0").control(cluster.Control{Cordons: []cluster.Cordon{{Node: "a", Drain: true}}})
	for name, c := range map[string]struct {
		g       *group
		overdue string
		want    cluster.Circumstances
	}{
		"the first": {two(), "", cluster.Circumstances{Cause: cluster.CauseFirst}},
		"the leader has failed": {newGroup("b").leads("a", 7).before("dc0"), "",
			cluster.Circumstances{Cause: cluster.CauseFailure, Node: "a", Site: "dc1", Failed: []string{"dc1"}}},
		"and then the candidate": {newGroup("a").elected("b", 8).before("dc0").fence("a", 7, cluster.FenceReady), "",
			cluster.Circumstances{Cause: cluster.CauseFailure, Node: "b", Site: "dc1", Failed: []string{"dc0", "dc1"}}},
		"on the same site": {newGroup("a").elected("b", 8).before("dc1").fence("a", 7, cluster.FenceReady), "",
			cluster.Circumstances{Cause: cluster.CauseFailure, Node: "b", Site: "dc1", Failed: []string{"dc1"}}},
		"the candidate gave up": {two().elected("a", 7).before("dc0").fence("a", 7, cluster.FenceReleased), "",
			cluster.Circumstances{Cause: cluster.CauseGaveUp, Node: "a", Site: "dc1", Failed: []string{"dc0", "dc1"}}},
		"the leader gave up": {led(two().elected("a", 7).before("dc0").fence("a", 7, cluster.FenceReleased)), "",
			cluster.Circumstances{Cause: cluster.CauseGaveUp, Node: "a", Site: "dc1", Failed: []string{"dc1"}}},
		"the leader was revoked": {led(two().elected("a", 7).before("dc0").fence("a", 7, cluster.FenceRevoked)), "",
			cluster.Circumstances{Cause: cluster.CauseRevoked, Node: "a", Site: "dc1", Failed: []string{"dc1"}}},
		"the candidate is overdue": {two().elected("a", 7).before("dc0").fence("a", 7, cluster.FenceHeld).current("a"), "late",
			cluster.Circumstances{Cause: cluster.CauseOverdue, Node: "a", Site: "dc1", Failed: []string{"dc0", "dc1"}}},
		"the leader was stopped": {led(stopped(two().elected("a", 7).before("dc0").fence("a", 7, cluster.FenceReleased))), "",
			cluster.Circumstances{Cause: cluster.CauseStopped, Node: "a", Site: "dc1"}},
		"the candidate was stopped": {stopped(two().elected("a", 7).before("dc0").fence("a", 7, cluster.FenceReleased)), "",
			cluster.Circumstances{Cause: cluster.CauseStopped, Node: "a", Site: "dc1", Failed: []string{"dc0"}}},
		"the leader is unhealthy": {unhealthy, "", cluster.Circumstances{Cause: cluster.CauseUnhealthy, Node: "a", Site: "dc1", Failed: []string{"dc1"}}},
		"the leader is drained":   {drained, "", cluster.Circumstances{Cause: cluster.CauseDrain, Node: "a", Site: "dc1"}},
		"of no site":              {nowhere, "", cluster.Circumstances{Cause: cluster.CauseFailure, Node: "a"}},
		"the decision was lost: from the fence": {func() *group {
			g := two().fence("a", 7, cluster.FenceReady)
			g.Fence.Record.Site = "dc9"
			return g
		}(), "", cluster.Circumstances{Cause: cluster.CauseRepair, Node: "a", Site: "dc9"}},
	} {
		in := c.g.input(t)
		in.Overdue = c.overdue
		given := slices.Clone(in.Snapshot.Elected.Record.Circumstances.Failed)
		d := newElector().Decide(in)
		if d.Elect == nil {
			t.Errorf("%s: no member is elected: %s", name, d.Note)
			continue
		}
		if got := d.Elect.Circumstances; !reflect.DeepEqual(got, c.want) || !reflect.DeepEqual(d.Circumstances, c.want) {
			t.Errorf("%s: %+v, shown %+v, want %+v", name, got, d.Circumstances, c.want)
		}
		if !slices.Equal(given, in.Snapshot.Elected.Record.Circumstances.Failed) {
			t.Errorf("%s: changed its input", name)
		}
	}
}
