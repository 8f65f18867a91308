package request

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/policy"
)

var wall = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func member(id, site string, seq int32, priority int) cluster.Member {
	name := fmt.Sprintf("%s-0000000000000001-n_%010d", id, seq)
	return cluster.Member{
		Incarnation: cluster.Incarnation{Name: name, ID: id, Seq: seq},
		Node:        cluster.Stored[cluster.Node]{Exists: true, Record: cluster.Node{ID: id, Site: site, Priority: priority}},
	}
}

func exists[T any](rec T) cluster.Stored[T] { return cluster.Stored[T]{Exists: true, Record: rec} }

// testGroup is a group for which requests are planned.
type testGroup struct {
	t rapid.TB
	q whatif.Question
}

// group returns a group of a1 and a2 at dc1, b1 and b2 at dc2, best first, without a leader.
func group(t rapid.TB, rules ...cluster.Rules) *testGroup {
	t.Helper()
	r := append(rules, cluster.Rules{})[0]
	if r.Type == "" {
		r.Type = "priority"
	}
	p, err := policy.New(cluster.Policy{Revision: 1, Rules: r})
	if err != nil {
		t.Fatal(err)
	}
	members := []cluster.Member{member("a1", "dc1", 1, 40), member("a2", "dc1", 2, 30), member("b1", "dc2", 3, 20), member("b2", "dc2", 4, 10)}
	return &testGroup{t: t, q: whatif.Question{
		Snapshot: cluster.Snapshot{Members: members, Elector: true, HolderRead: true, Self: members[0].Incarnation},
		Policy:   p, Wall: wall, Options: elector.Options{Exclusion: time.Minute, ExclusionMax: time.Hour},
	}}
}

func (h *testGroup) node(id string) *cluster.Node {
	s := &h.q.Snapshot
	return &s.Members[slices.IndexFunc(s.Members, func(m cluster.Member) bool { return m.ID == id })].Node.Record
}

// elects makes a member the elected one of term 7; leads makes it the leader as well.
func (h *testGroup) elects(id string) *testGroup {
	s := &h.q.Snapshot
	for _, m := range s.Members {
		if m.ID == id {
			s.Elected = exists(cluster.Elected{Term: 7, Node: m.ID, Site: m.Node.Record.Site, Incarnation: m.Name, Cause: cluster.CauseFirst})
		}
	}
	return h
}

func (h *testGroup) leads(id string) *testGroup {
	s := &h.elects(id).q.Snapshot
	e := s.Elected.Record
	s.Fence = exists(cluster.Fence{Term: e.Term, Node: e.Node, Site: e.Site, Incarnation: e.Incarnation, State: cluster.FenceReady})
	s.Current = exists(cluster.Current{Term: e.Term, Node: e.Node, Site: e.Site, Incarnation: e.Incarnation, State: cluster.CurrentReady})
	return h
}

func (h *testGroup) control() *cluster.Control {
	h.q.Snapshot.Control.Exists = true
	return &h.q.Snapshot.Control.Record
}

func ann(number int64) cluster.Request {
	return cluster.Request{ID: number, By: "ann@host", Reason: "new kernel", Time: wall}
}

func bob() Options { return Options{By: "bob@host", Reason: "test"} }

// cloneSnapshot returns a copy that shares no slice with s.
func cloneSnapshot(s cluster.Snapshot) cluster.Snapshot {
	s.Members = slices.Clone(s.Members)
	s.Control.Record = s.Control.Record.Clone()
	s.Elected.Record.Exclusions = slices.Clone(s.Elected.Record.Exclusions)
	return s
}

// planFor plans a request, and checks what is true for all of them.
func (h *testGroup) planFor(plans command) (Plan, error) {
	h.t.Helper()
	before := cloneSnapshot(h.q.Snapshot)
	plan, err := plans(h.q)
	if !reflect.DeepEqual(before, h.q.Snapshot) {
		h.t.Fatalf("changed its input:\n%+v\nwas\n%+v", h.q.Snapshot, before)
	}
	if err != nil {
		if !reflect.DeepEqual(plan, Plan{}) {
			h.t.Fatalf("refused (%v), but planned %+v", err, plan)
		}
		return plan, err
	}
	last := before.Control.Record.Last
	if plan.ID != last+1 || plan.Control.Last != last+1 || len(plan.Messages) == 0 {
		h.t.Fatalf("request %d after %d, the last is %d, messages %q", plan.ID, last, plan.Control.Last, plan.Messages)
	}
	if !strings.HasSuffix(plan.Control.LastRequest, " by bob@host") {
		h.t.Fatalf("the last request is %q", plan.Control.LastRequest)
	}
	return plan, nil
}

// after returns the group once the real elector has acted on a plan.
func (h *testGroup) after(plan Plan) whatif.Outcome {
	q := h.q
	q.Snapshot.Control = exists(plan.Control)
	return whatif.Run(q)
}

// command plans a request.
type command = func(whatif.Question) (Plan, error)

func move(o Options, node, site string) command {
	return Request{Kind: KindMove, Node: node, Site: site, Options: o}.Plan
}

func moveAway(o Options) command { return Request{Kind: KindMove, Best: true, Options: o}.Plan }

func cordon(o Options, node, site string, drain bool) command {
	kind := KindCordon
	if drain {
		kind = KindDrain
	}
	return Request{Kind: kind, Node: node, Site: site, Options: o}.Plan
}

func uncordon(o Options, node, site string, all bool) command {
	return Request{Kind: KindUncordon, Node: node, Site: site, All: all, Options: o}.Plan
}

func pause(o Options, hard bool) command {
	return Request{Kind: KindPause, Hard: hard, Options: o}.Plan
}

func resume(o Options) command { return Request{Kind: KindResume, Options: o}.Plan }

func reelect(o Options) command { return Request{Kind: KindReelect, Options: o}.Plan }

// clearStrikes is for a node, or for all if node is empty.
func clearStrikes(o Options, node string) command {
	return Request{Kind: KindClearStrikes, Node: node, All: node == "", Options: o}.Plan
}
