package elector

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

var wall = time.Unix(1_800_000_000, 0)

// group is a snapshot in the making: members a, b, c … with equal site and falling priority.
type group struct{ cluster.Snapshot }

func newGroup(ids ...string) *group {
	g := &group{cluster.Snapshot{Elector: true, Leadership: true}}
	for i, id := range ids {
		g.Members = append(g.Members, cluster.Member{
			Incarnation: cluster.Incarnation{Name: id, ID: id, Seq: int32(i)},
			Node:        cluster.Slot[cluster.Node]{Exists: true, Record: cluster.Node{ID: id, Site: "dc1", Priority: 100 - i}},
		})
	}
	if len(ids) > 0 {
		g.Self = g.Members[0].Incarnation
	}
	return g
}

func (g *group) elected(id string, term int64) *group {
	g.Elected = cluster.Slot[cluster.Elected]{Exists: true, Record: cluster.Elected{Node: id, Incarnation: id, Term: term}}
	return g
}

func (g *group) fence(id string, term int64, state cluster.FenceState) *group {
	g.Fence = cluster.Slot[cluster.Fence]{Exists: true, Record: cluster.Fence{Node: id, Incarnation: id, Term: term, State: state}}
	return g
}

func (g *group) current(id string) *group {
	g.Current = cluster.Slot[cluster.Current]{Exists: true, Record: cluster.Current{Node: id, Incarnation: id}}
	return g
}

// leads is a healthy leadership.
func (g *group) leads(id string, term int64) *group {
	return g.elected(id, term).fence(id, term, cluster.FenceReady).current(id)
}

func (g *group) input(t testing.TB) Input {
	t.Helper()
	p, err := policy.New(cluster.Policy{Type: "priority"})
	if err != nil {
		t.Fatal(err)
	}
	return Input{Snapshot: g.Snapshot, Policy: p, Now: time.Hour, Wall: wall}
}

func immediate() *Elector {
	return New(Options{Failback: FailbackImmediate, Exclusion: time.Minute, ExclusionMax: time.Hour})
}

func TestRules(t *testing.T) {
	released := func(requested bool) *group {
		g := newGroup("a", "b").elected("a", 7).fence("a", 7, cluster.FenceReleased)
		g.Fence.Record.Requested = requested
		return g
	}
	unreadable := newGroup("a", "b")
	unreadable.Elected = cluster.Slot[cluster.Elected]{Exists: true, Err: errors.New("znode /c/leader/elected is empty")}
	wiped := newGroup("a", "b").leads("a", 7)
	wiped.Fence = cluster.Slot[cluster.Fence]{Exists: true, Err: errors.New("znode /c/leader is empty"), Stat: cluster.Stat{Modified: 5}}
	sick := newGroup("a", "b").leads("a", 7)
	sick.Members[0].Node.Record.Ineligible = "its disk is full"
	for name, c := range map[string]struct {
		g       *group
		overdue string
		leader  string // "" for no new decision
		cause   cluster.Cause
		strikes int
	}{
		"nothing yet":                                 {newGroup("a", "b"), "", "a", cluster.CauseFirst, 0},
		"all is well":                                 {newGroup("a", "b").leads("a", 7), "", "", "", 0},
		"taking over":                                 {newGroup("a", "b").elected("a", 7).fence("a", 7, cluster.FenceHeld).current("a"), "", "", "", 0},
		"not taken over yet":                          {newGroup("a", "b").elected("a", 7).fence("b", 6, cluster.FenceReleased), "", "", "", 0},
		"(a) decision deleted":                        {newGroup("a", "b").fence("b", 7, cluster.FenceReady).current("b"), "", "a", cluster.CauseRepair, 0},
		"(a) decision damaged":                        {unreadable, "", "a", cluster.CauseRepair, 0},
		"(a) the elected is gone":                     {newGroup("b", "c").leads("a", 7), "", "b", cluster.CauseFailure, 0},
		"(a) decision older than the last term":       {newGroup("a", "b").elected("a", 7).fence("b", 9, cluster.FenceReady).current("b"), "", "a", cluster.CauseRepair, 0},
		"(a) term held by another":                    {newGroup("a", "b").elected("a", 7).fence("b", 7, cluster.FenceReady).current("b"), "", "a", cluster.CauseRepair, 0},
		"(a) the fence was damaged since":             {wiped, "", "a", cluster.CauseRepair, 0},
		"(b) gave up: a strike":                       {released(false), "", "b", cluster.CauseGaveUp, 1},
		"(b) stopped on request: none":                {released(true), "", "b", cluster.CauseStopped, 0},
		"(b) unclean end":                             {newGroup("a", "b").elected("a", 7).fence("a", 7, cluster.FenceUnclean), "", "b", cluster.CauseGaveUp, 1},
		"(b) revoked":                                 {newGroup("a", "b").elected("a", 7).fence("a", 7, cluster.FenceRevoked), "", "b", cluster.CauseRevoked, 1},
		"(b) current deleted by hand: nobody's fault": {newGroup("a", "b").elected("a", 7).fence("a", 7, cluster.FenceReady), "", "a", cluster.CauseRepair, 0},
		"(c) overdue":                                 {newGroup("a", "b").elected("a", 7).fence("a", 7, cluster.FenceHeld).current("a"), "late", "b", cluster.CauseOverdue, 1},
		"(d) a better one":                            {newGroup("a", "b").leads("b", 7), "", "a", cluster.CausePreempt, 0},
		"(d) may no longer lead":                      {sick, "", "b", cluster.CauseIneligible, 0},
		"alone and overdue: amnesty":                  {newGroup("a").elected("a", 7).fence("a", 7, cluster.FenceHeld).current("a"), "late", "a", cluster.CauseOverdue, 1},
		"nobody is there":                             {newGroup().leads("a", 7), "", "", "", 0},
	} {
		in := c.g.input(t)
		in.Overdue = c.overdue
		d := immediate().Decide(in)
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
			if len(d.Elect.Ranking) != len(c.g.Members) || d.Elect.Reason == "" {
				t.Errorf("%s: not explained: %+v", name, d.Elect)
			}
		}
	}
}

func TestFailback(t *testing.T) {
	in := newGroup("a", "b").leads("b", 7).input(t)
	manual := New(Options{Failback: FailbackManual})
	if d := manual.Decide(in); d.Elect != nil {
		t.Errorf("manual failback moved by itself: %+v", d.Elect)
	}
	gone := newGroup("a", "b").leads("x", 7).input(t)
	if d := manual.Decide(gone); d.Elect == nil || d.Elect.Node != "a" {
		t.Errorf("manual failback leaves the group without a leader: %+v", d.Elect)
	}

	delayed := New(Options{Failback: FailbackDelayed, Delay: 30 * time.Second})
	if d := delayed.Decide(in); d.Elect != nil || d.Wake != in.Now+30*time.Second {
		t.Errorf("at once: %+v, wake %s", d.Elect, d.Wake)
	}
	in.Now += 20 * time.Second
	in.Snapshot.Members[0].Node.Record.Ineligible = "sick"
	delayed.Decide(in)
	in.Snapshot.Members[0].Node.Record.Ineligible = ""
	in.Now += 20 * time.Second
	if d := delayed.Decide(in); d.Elect != nil {
		t.Errorf("moved although the better one was not eligible without a break")
	}
	in.Now += 30 * time.Second
	if d := delayed.Decide(in); d.Elect == nil || d.Elect.Node != "a" {
		t.Errorf("not moved after the delay: %+v", d.Elect)
	}
}

func TestStoppingDaemonIsNotChosenAgain(t *testing.T) {
	g := newGroup("a").elected("a", 7).fence("a", 7, cluster.FenceReleased)
	g.Fence.Record.Requested = true
	if d := immediate().Decide(g.input(t)); d.Elect != nil || !strings.Contains(d.Note, "stopping on request") {
		t.Errorf("elected %+v, note %q", d.Elect, d.Note)
	}
}

// L3, and no burning of terms: all that can't lead are tried again, but ever more slowly.
func TestAmnestyTriesAgainEverMoreSlowly(t *testing.T) {
	e := immediate()
	g := newGroup("a").elected("a", 7).fence("a", 7, cluster.FenceReleased)
	in := g.input(t)
	var waits []time.Duration
	for range 6 {
		began := in.Now
		d := e.Decide(in)
		for d.Elect == nil {
			if d.Wake <= in.Now {
				t.Fatalf("no leader, and no time to look again: %q", d.Note)
			}
			in.Now = d.Wake
			d = e.Decide(in)
		}
		waits = append(waits, in.Now-began)
		in.Snapshot.Elected.Record = *d.Elect
		in.Snapshot.Fence.Record.Term = d.Elect.Term
		in.Exclusions = d.Elect.Exclusions
		in.Age = make([]time.Duration, len(in.Exclusions))
	}
	for i, want := range []time.Duration{0, 500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second} {
		if waits[i] != want {
			t.Errorf("waits %v, want %s at %d", waits, want, i)
		}
	}
}

func TestAmnestySparesTheLastFailure(t *testing.T) {
	in := newGroup("a", "b").elected("b", 9).fence("b", 9, cluster.FenceReleased).input(t)
	in.Exclusions = []cluster.Exclusion{{Node: "a", Strikes: 1, For: cluster.Duration(time.Minute), Term: 8, Reason: "x"}}
	in.Age = []time.Duration{time.Second}
	d := immediate().Decide(in)
	if d.Elect == nil || d.Elect.Node != "a" {
		t.Fatalf("elected %+v (%s)", d.Elect, d.Note)
	}
	for _, x := range d.Elect.Exclusions {
		if x.Served != (x.Node == "a") {
			t.Errorf("%s: served %v", x.Node, x.Served)
		}
	}
}

func TestRevokeKeepsTheFiguresOfTheHolder(t *testing.T) {
	g := newGroup("a", "b").elected("a", 8).fence("b", 7, cluster.FenceReady).current("b")
	g.Fence.Record.WaitOut = cluster.Duration(4 * time.Second)
	in := g.input(t)
	in.Revoke = "too slow"
	d := immediate().Decide(in)
	if d.Revoke == nil || d.Revoke.State != cluster.FenceRevoked || d.Revoke.Term != 7 || d.Revoke.WaitOut == 0 {
		t.Errorf("revoked %+v", d.Revoke)
	}
}

// Terms keep growing when the fence is damaged and elected is lost later: REVOKE writes down what current tells.
func TestRevokeUnderADamagedFenceKeepsTheTerm(t *testing.T) {
	g := newGroup("a", "b").elected("a", 9).current("b")
	g.Fence = cluster.Slot[cluster.Fence]{Exists: true, Err: errors.New("damaged")}
	g.Current.Record.Term = 7
	in := g.input(t)
	in.Revoke = "too slow"
	d := immediate().Decide(in)
	if d.Revoke == nil || d.Revoke.Term != 8 || d.Revoke.Incarnation != "b" {
		t.Errorf("revoked %+v", d.Revoke)
	}
}

// Terms grow although all records were lost within one second.
func TestTermsGrowWhenAllIsWiped(t *testing.T) {
	e := immediate()
	first := e.Decide(newGroup("a").input(t))
	second := e.Decide(newGroup("a").input(t))
	if first.Elect == nil || second.Elect == nil || second.Elect.Term <= first.Elect.Term {
		t.Errorf("%+v, then %+v", first.Elect, second.Elect)
	}
}

// S3: once its decision is written, an elector has nothing more to decide.
func TestDecidingAgainChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := []string{"a", "b", "c", "d"}[:rapid.IntRange(1, 4).Draw(t, "members")]
		g := newGroup(ids...)
		all := append([]string{"gone"}, ids...)
		if rapid.Bool().Draw(t, "decided") {
			g.elected(rapid.SampledFrom(all).Draw(t, "elected"), rapid.Int64Range(1, 9).Draw(t, "term"))
		}
		if rapid.Bool().Draw(t, "fenced") {
			g.fence(rapid.SampledFrom(all).Draw(t, "holder"), rapid.Int64Range(1, 9).Draw(t, "fence term"), rapid.SampledFrom([]cluster.FenceState{
				cluster.FenceHeld, cluster.FenceReady, cluster.FenceReleased, cluster.FenceUnclean, cluster.FenceRevoked}).Draw(t, "state"))
		}
		if rapid.Bool().Draw(t, "current") {
			g.current(rapid.SampledFrom(all).Draw(t, "current of"))
		}
		e := immediate()
		p, err := policy.New(cluster.Policy{Type: "priority"})
		if err != nil {
			t.Fatal(err)
		}
		in := Input{Snapshot: g.Snapshot, Policy: p, Now: time.Hour, Wall: wall}
		d := e.Decide(in)
		if d.Elect == nil {
			return
		}
		in.Snapshot.Elected = cluster.Slot[cluster.Elected]{Exists: true, Record: *d.Elect, Stat: cluster.Stat{Modified: 9}}
		in.Exclusions, in.Age = d.Elect.Exclusions, make([]time.Duration, len(d.Elect.Exclusions))
		if again := e.Decide(in); again.Elect != nil {
			t.Fatalf("after %+v again %+v", d.Elect, again.Elect)
		}
	})
}

// A pause of one node is not cut short by the amnesty that lets another one in.
func TestAmnestyOfOneKeepsThePauseOfAnother(t *testing.T) {
	e := immediate()
	in := newGroup("a", "b").elected("b", 9).fence("b", 9, cluster.FenceReleased).input(t)
	in.Exclusions = []cluster.Exclusion{{Node: "a", Strikes: 3, For: cluster.Duration(time.Minute), Term: 8, Reason: "x"}}
	in.Age = []time.Duration{100 * time.Millisecond}
	d := e.Decide(in)
	if d.Elect == nil || d.Elect.Node != "b" {
		t.Fatalf("elected %+v (%s)", d.Elect, d.Note)
	}
	in.Snapshot.Elected.Record = *d.Elect
	in.Exclusions = d.Elect.Exclusions
	in.Age = make([]time.Duration, len(in.Exclusions))
	if again := e.Decide(in); again.Elect != nil {
		t.Errorf("%s is preempted at once by %s, whose pause is not over: %s", d.Elect.Node, again.Elect.Node, again.Elect.Reason)
	}
}
