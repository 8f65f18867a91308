package elector

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

func TestElectionsPublishTheHeir(t *testing.T) {
	h := newGroup("a", "b", "c").scenario(t)
	h.node("c").Ineligible = "maintenance"
	rec := h.leader("a", cluster.CauseFirst)
	if rec.Heir == nil || rec.Heir.Node != "b" || rec.Heir.Incarnation != "b" || rec.Heir.Site != "dc1" {
		t.Fatalf("heir to a: %+v", rec.Heir)
	}
	h.remove("a")
	if rec = h.leader("b", cluster.CauseFailure); rec.Heir == nil || *rec.Heir != (cluster.Heir{}) {
		t.Errorf("heir to b, without an eligible member: %+v", rec.Heir)
	}
}

// The forecast of a slot may have to decide for many others as well.
func TestManySlotsPublishTheHeirAfterTheElection(t *testing.T) {
	for others, published := range map[int]bool{3: true, 127: false} {
		g := newGroup("a", "b", "c").slot(others+1, others+1)
		g.Slot = "0"
		in := g.input(t)
		for i := range others {
			in.Others = append(in.Others, other(fmt.Sprint(i+1), "b"))
		}
		e := New(Options{Exclusion: time.Minute, ExclusionMax: time.Hour, Epoch: epoch})
		e.startup.over = true
		if d := e.Decide(in); d.Elect == nil || (d.Elect.Heir != nil) != published {
			t.Errorf("%d other slots: %+v", others, d)
		}
	}
}

// node returns the record of a member, to be changed.
func (h *scenario) node(id string) *cluster.Node { return h.group().node(id) }

// heir returns the heir as the elector sees it, and checks that looking changes nothing.
func (h *scenario) heir() string {
	h.t.Helper()
	h.e.opt.LastKnown = h.e.lastKnown // as in a daemon
	before, known := *h.e, *h.e.lastKnown
	stopping := len(h.e.stopping)
	heir := h.e.Heir(h.in)
	if !reflect.DeepEqual(before, *h.e) || !reflect.DeepEqual(known, *h.e.lastKnown) || len(h.e.stopping) != stopping {
		h.t.Error("the forecast has changed the elector")
	}
	if heir == nil {
		return "unknown"
	}
	return heir.Node
}

func TestTheHeirFollowsTheGroup(t *testing.T) {
	h := newGroup("a", "b", "c").scenario(t)
	h.leader("a", cluster.CauseFirst)
	check := func(what, want string) {
		t.Helper()
		if got := h.heir(); got != want {
			t.Errorf("%s: heir %q, want %q", what, got, want)
		}
	}
	check("calm", "b")
	h.control(cluster.Control{Cordons: []cluster.Cordon{{Node: "b"}}})
	check("b is cordoned", "c")
	h.control(cluster.Control{Pause: &cluster.Pause{Request: by(1), Hard: true}})
	check("a hard pause", "")
	h.control(cluster.Control{Pause: &cluster.Pause{Request: by(1)}})
	check("a pause", "b")
	h.control(cluster.Control{})
	h.in.Exclusions = []cluster.Exclusion{{Node: "b", Strikes: 1, Term: 2, For: cluster.Duration(time.Minute)}}
	h.in.Snapshot.Self = h.in.Snapshot.Members[2].Incarnation
	check("b has a strike", "c")
	// The leader's end would take the elector's measurements along, and then b's strike counts from its record: none.
	h.in.Snapshot.Self = h.in.Snapshot.Members[0].Incarnation
	check("the leader is the elector", "b")
	h.remove("b")
	check("b is gone", "c")
	h.in.Snapshot.Fence.Record.State = cluster.FenceReleased
	check("the attempt has ended", "unknown")
	h.remove("a")
	check("no leader", "unknown")
}

// No member is the heir if a person must approve its election, or if the policy elects nobody.
func TestNoHeirWithoutAnElection(t *testing.T) {
	confirm := cluster.Rules{Type: "priority", Confirm: "member.site != previous.site"}
	for name, c := range map[string]struct {
		rules cluster.Rules
		sites []string
		want  string
	}{
		"a person must approve b and c": {confirm, []string{"dc1", "dc2", "dc2"}, ""},
		"a person must approve b":       {confirm, []string{"dc1", "dc2", "dc1"}, "c"},
		"nobody is elected":             {cluster.Rules{Type: "priority", Observe: true}, []string{"dc1", "dc1", "dc1"}, ""},
	} {
		h := newGroup("a", "b", "c").sites(c.sites...).leads("a", 7).scenario(t, c.rules)
		if got := h.heir(); got != c.want {
			t.Errorf("%s: heir %q, want %q", name, got, c.want)
		}
	}
}

// In a group with slots, what is decided for lower slots that are lost as well counts.
func TestTheHeirOfASlot(t *testing.T) {
	g := newGroup("a", "b", "c").slot(3, 1).leads("a", 7)
	g.Slot = "2"
	in := g.input(t)
	e := New(Options{Exclusion: time.Minute, ExclusionMax: time.Hour, Epoch: epoch})
	in.Others = []cluster.SlotState{other("0", "gone"), other("1", "c")}
	if heir := e.Heir(in); heir == nil || heir.Node != "b" {
		t.Errorf("b has room: %+v", heir)
	}
	in.Others = []cluster.SlotState{other("0", "a"), other("1", "c")}
	if heir := e.Heir(in); heir == nil || heir.Node != "" {
		t.Errorf("slot 0 takes the room on b: %+v", heir)
	}
}

// keep lets a keeper write what it wants to, and returns what it has written within a time.
func (h *scenario) keep(k *HeirKeeper, d time.Duration) (written []string, at []time.Duration) {
	s := &h.in.Snapshot
	for until := h.in.Now + d; h.in.Now <= until; h.pass(100 * time.Millisecond) {
		s.At = h.in.Now
		next, _ := k.Update(h.e, h.in)
		if next == nil {
			continue
		}
		if next.Term != s.Elected.Record.Term || next.By != s.Self.Name {
			h.t.Errorf("writes %+v", next)
		}
		replaced, _ := s.NextLeader()
		s.Heir = cluster.Stored[cluster.HeirRecord]{Exists: true, Record: *next, Stat: cluster.Stat{Modified: s.Heir.Stat.Modified + 1}}
		k.Wrote(replaced, next, h.in.Now)
		written, at = append(written, next.Node), append(at, h.in.Now)
	}
	return written, at
}

func TestTheKeeperWritesWhatHasChanged(t *testing.T) {
	h := newGroup("a", "b", "c").scenario(t)
	h.leader("a", cluster.CauseFirst)
	var k HeirKeeper
	expect := func(what string, want ...string) {
		t.Helper()
		if got, _ := h.keep(&k, 5*time.Second); !slices.Equal(got, want) {
			t.Errorf("%s: wrote %q, want %q", what, got, want)
		}
	}
	expect("calm")
	h.node("b").Ineligible = "maintenance"
	expect("b is not eligible", "c")
	h.remove("c")
	expect("nobody is eligible", "")
	h.node("b").Ineligible = ""
	expect("b is back", "b")
	h.in.Snapshot.Heir = cluster.Stored[cluster.HeirRecord]{}
	expect("the znode was deleted: elected names a deputy that is gone", "b")
	h.node("b").Ineligible = "maintenance"
	h.in.Snapshot.Heir = cluster.Stored[cluster.HeirRecord]{Exists: true, Err: &cluster.NewerVersionError{Path: "/c/heir", Version: 2}}
	expect("the record is of a newer version")
}

// A request or another policy is not damped, whatever has alternated before: people look at the heir after a cordon.
func TestTheKeeperFollowsRequestsAtOnce(t *testing.T) {
	for name, act := range map[string]func(h *scenario){
		"a cordon": func(h *scenario) {
			h.in.Snapshot.Control.Exists, h.in.Snapshot.Control.Record.Cordons = true, []cluster.Cordon{{Node: "b"}}
			h.in.Snapshot.Control.Stat.Modified++
		},
		"another policy": func(h *scenario) {
			p, err := policy.New(cluster.Policy{Revision: 9, Rules: cluster.Rules{Type: "priority", Filter: []string{`member.id != "b"`}}})
			if err != nil {
				t.Fatal(err)
			}
			h.in.Policy = p
		},
	} {
		h := newGroup("a", "b", "c").scenario(t)
		h.leader("a", cluster.CauseFirst)
		var k HeirKeeper
		for i := range 8 { // the heir is b in the end
			h.node("b").Priority, h.node("c").Priority = 10+i%2, 11-i%2
			h.keep(&k, 40*time.Second)
		}
		h.node("b").Priority, h.node("c").Priority = 10, 11
		h.keep(&k, 5*time.Second)
		h.node("b").Priority, h.node("c").Priority = 12, 11
		h.keep(&k, 40*time.Second)
		if k.next < h.in.Now+heirInterval {
			t.Fatalf("%s: nothing holds back a write", name)
		}
		began := h.in.Now
		act(h)
		written, at := h.keep(&k, 5*time.Second)
		if !slices.Equal(written, []string{"c"}) || at[0]-began > heirInterval+200*time.Millisecond {
			t.Errorf("%s: wrote %q at %s, after %s", name, written, at, began)
		}
	}
}

// A change to a member that was not the heir for long, or never, is published soon, whatever has alternated before.
func TestTheKeeperForgetsDamping(t *testing.T) {
	heir := func(node string) cluster.Heir { return cluster.Heir{Node: node} }
	var k HeirKeeper
	now, before := time.Hour, heir("a")
	write := func(node string) time.Duration {
		k.Wrote(before, &cluster.HeirRecord{Heir: heir(node)}, now)
		before = heir(node)
		return k.next - now
	}
	for _, node := range []string{"b", "a", "b", "a"} {
		write(node)
	}
	if pause := write("b"); pause != 16*time.Second {
		t.Errorf("it alternates: %s", pause)
	}
	if pause := write("c"); pause != time.Second {
		t.Errorf("a new heir: %s", pause)
	}
	now += heirMemory + 1
	if pause := write("a"); pause != time.Second {
		t.Errorf("an old one: %s", pause)
	}
}

// Only a strike ends by itself.
func TestWhichDecisionAwaitsARetry(t *testing.T) {
	struck, other := policy.Refusal{Filter: policy.ExcludedFilter}, policy.Refusal{Filter: policy.ExcludedFilter + "x"}
	elected := cluster.Snapshot{Elected: cluster.Stored[cluster.Elected]{Exists: true}}
	for name, c := range map[string]struct {
		refusals [][]policy.Refusal
		s        cluster.Snapshot
		want     bool
	}{
		"a strike":                  {[][]policy.Refusal{{struck}}, elected, true},
		"a strike, and a cordon":    {[][]policy.Refusal{{struck, other}}, elected, false},
		"a cordon":                  {[][]policy.Refusal{{other}}, elected, false},
		"one of two has a strike":   {[][]policy.Refusal{{other}, {struck}}, elected, true},
		"another one is eligible":   {[][]policy.Refusal{{}, {struck}}, elected, false},
		"nobody":                    {nil, elected, false},
		"a strike, but no decision": {[][]policy.Refusal{{struck}}, cluster.Snapshot{}, false},
	} {
		var d Decision
		for _, r := range c.refusals {
			d.Ranking.Entries = append(d.Ranking.Entries, policy.Entry{Refusals: r})
		}
		if got := d.AwaitsRetry(c.s); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
