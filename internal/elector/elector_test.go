package elector

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

var wall = time.Unix(1_800_000_000, 0)

// group builds a snapshot: members a, b, c … with equal sites and falling priorities.
type group struct{ cluster.Snapshot }

func newGroup(ids ...string) *group {
	g := &group{cluster.Snapshot{Elector: true, HolderRead: true}}
	for i, id := range ids {
		g.Members = append(g.Members, cluster.Member{
			Incarnation: cluster.Incarnation{Name: id, ID: id, Seq: int32(i)},
			Node:        cluster.Stored[cluster.Node]{Exists: true, Record: cluster.Node{ID: id, Site: "dc1", Priority: 100 - i}},
		})
	}
	if len(ids) > 0 {
		g.Self = g.Members[0].Incarnation
	}
	return g
}

// node returns the record of a member, to be changed.
func (g *group) node(id string) *cluster.Node {
	for i := range g.Members {
		if g.Members[i].ID == id {
			return &g.Members[i].Node.Record
		}
	}
	panic("no member " + id)
}

// sites sets the sites of the members, in order.
func (g *group) sites(sites ...string) *group {
	for i, site := range sites {
		g.Members[i].Node.Record.Site = site
	}
	return g
}

func (g *group) elected(id string, term int64) *group {
	g.Elected = cluster.Stored[cluster.Elected]{Exists: true, Record: cluster.Elected{Node: id, Site: "dc1", Incarnation: id, Term: term}}
	if m, ok := g.Member(id); ok {
		g.Elected.Record.Site = m.Node.Record.Site
	}
	return g
}

func (g *group) fence(id string, term int64, state cluster.FenceState) *group {
	g.Fence = cluster.Stored[cluster.Fence]{Exists: true, Record: cluster.Fence{Node: id, Incarnation: id, Term: term, State: state}}
	return g
}

func (g *group) current(id string) *group {
	g.Current = cluster.Stored[cluster.Current]{Exists: true, Record: cluster.Current{Node: id, Incarnation: id}}
	return g
}

// leads makes a member a healthy leader.
func (g *group) leads(id string, term int64) *group {
	return g.elected(id, term).fence(id, term, cluster.FenceReady).current(id)
}

func (g *group) control(c cluster.Control) *group {
	g.Control = cluster.Stored[cluster.Control]{Exists: true, Record: c}
	return g
}

func (g *group) input(t rapid.TB, rules ...cluster.Rules) Input {
	t.Helper()
	rec := cluster.Policy{Revision: 3, Rules: cluster.Rules{Type: "priority"}}
	for _, r := range rules {
		rec.Rules = r
	}
	p, err := policy.New(rec)
	if err != nil {
		t.Fatal(err)
	}
	return Input{Snapshot: g.Snapshot, Policy: p, Now: time.Hour, Wall: wall}
}

func newElector() *Elector {
	return New(Options{Exclusion: time.Minute, ExclusionMax: time.Hour})
}

func TestRules(t *testing.T) {
	released := func(requested bool) *group {
		g := newGroup("a", "b").elected("a", 7).fence("a", 7, cluster.FenceReleased)
		g.Fence.Record.Requested = requested
		if requested {
			g.Fence.Record.Stopping = "a"
		}
		return g
	}
	lost := newGroup("b", "c").elected("a", 7).fence("a", 7, cluster.FenceReleased)
	lost.Fence.Record.Lost = true
	lostUnclean := newGroup("b", "c").elected("a", 7).fence("a", 7, cluster.FenceUnclean)
	lostUnclean.Fence.Record.Lost = true
	lapsed := released(false)
	lapsed.Fence.Record.Lapsed = true
	silent := newGroup("a", "b").leads("a", 7)
	silent.Elected.Record.Silent = []string{"a"}
	unreadable := newGroup("a", "b")
	unreadable.Elected = cluster.Stored[cluster.Elected]{Exists: true, Err: errors.New("znode /c/leader/elected is empty")}
	wiped := newGroup("a", "b").leads("a", 7)
	wiped.Fence = cluster.Stored[cluster.Fence]{Exists: true, Err: errors.New("znode /c/leader is empty"), Stat: cluster.Stat{Modified: 5}}
	sick := newGroup("a", "b").leads("a", 7)
	sick.node("a").Ineligible = "its disk is full"
	unhealthy := newGroup("a", "b").leads("a", 7)
	unhealthy.node("a").Unhealthy = "no route"
	for name, c := range map[string]struct {
		g       *group
		overdue string
		leader  string // "" for no new decision
		cause   cluster.Cause
		strikes int
	}{
		"nothing yet":                              {newGroup("a", "b"), "", "a", cluster.CauseFirst, 0},
		"all is well":                              {newGroup("a", "b").leads("a", 7), "", "", "", 0},
		"taking over":                              {newGroup("a", "b").elected("a", 7).fence("a", 7, cluster.FenceHeld).current("a"), "", "", "", 0},
		"not taken over yet":                       {newGroup("a", "b").elected("a", 7).fence("b", 6, cluster.FenceReleased), "", "", "", 0},
		"(a) decision deleted":                     {newGroup("a", "b").fence("b", 7, cluster.FenceReady).current("b"), "", "a", cluster.CauseRepair, 0},
		"(a) decision damaged":                     {unreadable, "", "a", cluster.CauseRepair, 0},
		"(a) the elected is gone":                  {newGroup("b", "c").leads("a", 7), "", "b", cluster.CauseFailure, 0},
		"(a) decision older than the last term":    {newGroup("a", "b").elected("a", 7).fence("b", 9, cluster.FenceReady).current("b"), "", "a", cluster.CauseRepair, 0},
		"(a) term held by another":                 {newGroup("a", "b").elected("a", 7).fence("b", 7, cluster.FenceReady).current("b"), "", "a", cluster.CauseRepair, 0},
		"(a) the fence was damaged since":          {wiped, "", "a", cluster.CauseRepair, 0},
		"(b) gave up: a strike":                    {released(false), "", "b", cluster.CauseGaveUp, 1},
		"(b) stopped on request: none":             {released(true), "", "b", cluster.CauseStopped, 0},
		"(b) released for it as it was lost: none": {lost, "", "b", cluster.CauseFailure, 0},
		"(b) the same, wait left":                  {lostUnclean, "", "b", cluster.CauseFailure, 0},
		"(b) ZooKeeper had not answered it: none":  {lapsed, "", "a", cluster.CauseLapsed, 0},
		"(b) silent: none":                         {silent, "", "b", cluster.CauseSilent, 0},
		"(b) unclean end":                          {newGroup("a", "b").elected("a", 7).fence("a", 7, cluster.FenceUnclean), "", "b", cluster.CauseGaveUp, 1},
		"(b) revoked":                              {newGroup("a", "b").elected("a", 7).fence("a", 7, cluster.FenceRevoked), "", "b", cluster.CauseRevoked, 1},
		"(b) current deleted by hand: no strike":   {newGroup("a", "b").elected("a", 7).fence("a", 7, cluster.FenceReady), "", "a", cluster.CauseRepair, 0},
		"(c) overdue":                              {newGroup("a", "b").elected("a", 7).fence("a", 7, cluster.FenceHeld).current("a"), "late", "b", cluster.CauseOverdue, 1},
		"(d) a better one":                         {newGroup("a", "b").leads("b", 7), "", "a", cluster.CausePreempt, 0},
		"(d) is no longer eligible":                {sick, "", "b", cluster.CauseIneligible, 0},
		"(d) its host is unhealthy":                {unhealthy, "", "b", cluster.CauseUnhealthy, 0},
		"alone and overdue: amnesty":               {newGroup("a").elected("a", 7).fence("a", 7, cluster.FenceHeld).current("a"), "late", "a", cluster.CauseOverdue, 1},
		"no members":                               {newGroup().leads("a", 7), "", "", "", 0},
	} {
		in := c.g.input(t)
		in.Overdue = c.overdue
		d := newElector().Decide(in)
		switch {
		case d.Elect == nil && c.leader == "":
		case d.Elect == nil || c.leader == "" || d.Elect.Node != c.leader || d.Elect.Cause != c.cause:
			t.Errorf("%s: elected %+v, want %s by %s (note %q)", name, d.Elect, c.leader, c.cause, d.Note)
		default:
			strikes := 0
			for _, x := range d.Elect.Exclusions {
				strikes += x.Strikes
			}
			if strikes != c.strikes {
				t.Errorf("%s: %d strikes, want %d", name, strikes, c.strikes)
			}
			if e, f := c.g.Terms(); d.Elect.Term <= max(e, f) {
				t.Errorf("%s: term %d after %d and %d", name, d.Elect.Term, e, f)
			}
			if len(d.Elect.Ranking) != len(c.g.Members) || d.Elect.Reason == "" || d.Elect.PolicyRevision != 3 {
				t.Errorf("%s: has no explanation: %+v", name, d.Elect)
			}
		}
	}
}

// Terms grow even if all records were lost within one second.
func TestTermsGrowAfterAWipe(t *testing.T) {
	e := newElector()
	first := e.Decide(newGroup("a").input(t))
	second := e.Decide(newGroup("a").input(t))
	if first.Elect == nil || second.Elect == nil || second.Elect.Term <= first.Elect.Term {
		t.Errorf("%+v, then %+v", first.Elect, second.Elect)
	}
}
