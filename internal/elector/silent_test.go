package elector

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// silent makes a member silent, as the holder if it holds leadership.
func (h *scenario) silent(id string) *scenario {
	h.in.Silent, h.in.LeaseOver = map[string]string{id: "it has not renewed its lease for 4s"}, true
	return h
}

// watched gives the holder of the fence a lease znode.
func (h *scenario) watched() *scenario {
	f := &h.in.Snapshot.Fence.Record
	f.Site, f.Session, f.LeaseZnode = h.group().node(f.Node).Site, 1, "/c/.leases/"+f.Node+"-1"
	return h
}

// A holder without a lease znode, or one that nobody has found to be silent, is not taken from.
func TestOnlyASilentHolderIsTakenFrom(t *testing.T) {
	if d := newGroup("a", "b").leads("a", 7).scenario(t).watched().decide(); d.Elect != nil {
		t.Errorf("%+v", d.Elect)
	}
	if d := newGroup("a", "b").leads("a", 7).scenario(t).silent("a").decide(); d.Take {
		t.Errorf("without a lease znode: %+v", d)
	}
}

// The old holder falls silent after another member was elected, which waits for its release.
func TestASilentHolderIsTakenFromWhileAnotherIsElected(t *testing.T) {
	h := newGroup("a", "b", "c").sites("dc1", "dc2", "dc2").elected("b", 8).fence("a", 7, cluster.FenceReady).current("a").scenario(t).watched().silent("a")
	h.group().node("b").Priority = 200
	d := h.decide()
	if d.Elect == nil || !d.Take || d.Elect.Node != "b" || d.Elect.Term <= 8 || !strings.HasPrefix(d.Elect.Reason, "a, which still holds leadership, is silent") {
		t.Fatalf("%+v", d)
	}
	if c := d.Elect.Circumstances; c.Node != "a" || !slices.Equal(c.Failed, []string{"dc1"}) {
		t.Errorf("circumstances %+v", c)
	}
}

func TestASilentCandidateIsReplacedWithoutAStrike(t *testing.T) {
	h := newGroup("a", "b", "c").elected("b", 8).fence("a", 7, cluster.FenceReleased).scenario(t).silent("b")
	h.group().node("a").Ineligible = "full"
	d := h.decide()
	if d.Elect == nil || d.Take || d.Elect.Node != "c" || d.Elect.Cause != cluster.CauseSilent || len(d.Elect.Exclusions) != 0 {
		t.Fatalf("%+v", d)
	}
	h = newGroup("a", "b").elected("b", 8).fence("a", 7, cluster.FenceReleased).scenario(t).silent("b")
	h.group().node("a").Ineligible = "full"
	if d := h.decide(); d.Elect != nil || d.Note != "" {
		t.Errorf("the only candidate is not left to go on: %+v", d)
	}
	h = newGroup("a", "b").fence("b", 7, cluster.FenceReady).scenario(t).silent("b")
	h.group().node("a").Ineligible = "full"
	h.in.Snapshot.Elected = cluster.Stored[cluster.Elected]{Exists: true, Err: errors.New("the decision is damaged")}
	if d := h.decide(); d.Elect == nil || d.Take || d.Elect.Node != "b" {
		t.Errorf("the only member, which the fence names, is not elected: %+v", d)
	}
}

// A lost site must not cost the time of each of its members.
func TestOtherSitesComeFirstAfterTwoHaveFallenSilent(t *testing.T) {
	for _, only := range []bool{false, true} {
		h := newGroup("a", "b", "c", "d").sites("dc1", "dc1", "dc1", "dc2").elected("b", 8).fence("a", 7, cluster.FenceSilent).scenario(t).silent("b")
		h.in.Snapshot.Elected.Record.Silent = []string{"a"}
		want := "d"
		if only {
			h.remove("d")
			want = "c"
		}
		if d := h.decide(); d.Elect == nil || d.Elect.Node != want || !slices.Equal(d.Elect.Silent, []string{"a", "b"}) {
			t.Errorf("%+v, want %s", d.Elect, want)
		}
	}
}

// Nor must a group wait for work that starts slowly, while another member's waits to be promoted.
func TestALapsedLeaderWhoseStandbyIsColdGivesWayToAWarmOne(t *testing.T) {
	for _, c := range []struct{ a, b, want string }{
		{cluster.StandbyWarm, cluster.StandbyCold, "a"},
		{cluster.StandbyWarm, cluster.StandbyWarming, "a"},
		{cluster.StandbyWarm, cluster.StandbyWarm, "b"},
		{cluster.StandbyCold, cluster.StandbyCold, "b"},
	} {
		h := newGroup("a", "b").leads("b", 7).scenario(t)
		h.group().node("b").Priority = h.group().node("a").Priority
		h.group().node("a").Standby, h.group().node("b").Standby = &cluster.Standby{State: c.a}, &cluster.Standby{State: c.b}
		f := &h.in.Snapshot.Fence.Record
		f.State, f.Lapsed, f.Led = cluster.FenceReleased, true, true
		h.in.Snapshot.Current = cluster.Stored[cluster.Current]{}
		h.leader(c.want, cluster.CauseLapsed)
	}
}

func TestWhoAreTheDeputies(t *testing.T) {
	g := newGroup("a", "b", "c", "d", "e").sites("dc1", "dc1", "dc2", "dc3", "dc2").leads("c", 7)
	rec := g.Elected.Record
	for name, c := range map[string]struct {
		change func(*cluster.Snapshot, *cluster.Elected) *cluster.Heir
		want   []string
	}{
		"the elector, the heir, another site": {func(*cluster.Snapshot, *cluster.Elected) *cluster.Heir {
			return &cluster.Heir{Node: "b", Incarnation: "b"}
		}, []string{"a", "b", "d"}},
		"no heir": {func(*cluster.Snapshot, *cluster.Elected) *cluster.Heir { return nil }, []string{"a", "d", "b"}},
		"the leader is the elector": {func(s *cluster.Snapshot, e *cluster.Elected) *cluster.Heir {
			e.Node, e.Incarnation, e.Site = "a", "a", "dc1"
			return &cluster.Heir{Node: "b", Incarnation: "b"}
		}, []string{"b", "c", "d"}},
		"those that leave, or are silent, are none": {func(s *cluster.Snapshot, e *cluster.Elected) *cluster.Heir {
			s.Members[0].Node.Record.Leaving, s.Elected.Record.Silent = "an upgrade", []string{"d"}
			return nil
		}, []string{"b", "e"}},
	} {
		s, e := g.Snapshot, rec
		s.Members = slices.Clone(s.Members)
		heir := c.change(&s, &e)
		if got := deputies(&s, e, heir); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// A deputy that acts only elects where there is no leader: it knows too little for the rest.
func TestAnActingDeputyDoesNotPreempt(t *testing.T) {
	h := newGroup("a", "b").leads("b", 7).scenario(t)
	h.in.Snapshot.Acting = true
	if d := h.decide(); d.Elect != nil {
		t.Errorf("%+v", d.Elect)
	}
	h.in.Now += time.Hour
	h.in.Snapshot.Fence.Record.State, h.in.Snapshot.Fence.Record.Requested = cluster.FenceReleased, true
	if d := h.decide(); d.Elect == nil || d.Elect.Node != "a" {
		t.Errorf("%+v", d.Elect)
	}
}
