package whatif

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"pgregory.net/rapid"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
	"zkelectd/internal/policy"
)

var wall = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// member returns a member of a group.
func member(id, site string, seq int32, priority int) cluster.Member {
	name := fmt.Sprintf("%s-0000000000000001-n_%010d", id, seq)
	return cluster.Member{
		Incarnation: cluster.Incarnation{Name: name, ID: id, Seq: seq},
		Node:        cluster.Stored[cluster.Node]{Exists: true, Record: cluster.Node{ID: id, Site: site, Priority: priority}},
	}
}

func exists[T any](rec T) cluster.Stored[T] { return cluster.Stored[T]{Exists: true, Record: rec} }

// four returns a group of a1 and a2 on dc1, b1 and b2 on dc2, best first.
func four() cluster.Snapshot {
	return cluster.Snapshot{Members: []cluster.Member{
		member("a1", "dc1", 1, 40), member("a2", "dc1", 2, 30), member("b1", "dc2", 3, 20), member("b2", "dc2", 4, 10),
	}}
}

// led returns the snapshot with a member as the leader of term 7.
func led(s cluster.Snapshot, id string) cluster.Snapshot {
	i := slices.IndexFunc(s.Members, func(m cluster.Member) bool { return m.ID == id })
	m := s.Members[i]
	return s.AfterElection(cluster.Elected{Term: 7, Node: m.ID, Site: m.Node.Record.Site, Incarnation: m.Name, Cause: cluster.CauseFirst})
}

func compiled(t rapid.TB, rules cluster.Rules) *policy.Policy {
	t.Helper()
	if rules.Type == "" {
		rules.Type = "priority"
	}
	p, err := policy.New(cluster.Policy{Revision: 1, Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func question(t rapid.TB, s cluster.Snapshot, rules ...cluster.Rules) Question {
	t.Helper()
	return Question{
		Snapshot: s, Policy: compiled(t, append(rules, cluster.Rules{})[0]), Wall: wall,
		Options: elector.Options{Exclusion: time.Minute, ExclusionMax: time.Hour},
	}
}

// cloneSnapshot returns a copy that shares no slice with s.
func cloneSnapshot(s cluster.Snapshot) cluster.Snapshot {
	s.Members = slices.Clone(s.Members)
	s.Control.Record = s.Control.Record.Clone()
	e := &s.Elected.Record
	e.Exclusions, e.Preemptions, e.Ranking = slices.Clone(e.Exclusions), slices.Clone(e.Preemptions), slices.Clone(e.Ranking)
	e.Circumstances.Failed = slices.Clone(e.Circumstances.Failed)
	return s
}

// forecast runs a forecast and checks that it leaves the question alone.
func forecast(t rapid.TB, q Question) Outcome {
	t.Helper()
	before, change := cloneSnapshot(q.Snapshot), Change{slices.Clone(q.Change.Without), slices.Clone(q.Change.WithoutSites), slices.Clone(q.Change.Cordon), slices.Clone(q.Change.Drain)}
	out := Run(q)
	if !reflect.DeepEqual(before, q.Snapshot) || !reflect.DeepEqual(change, q.Change) {
		t.Fatalf("modified its input:\n%+v\nwas\n%+v", q.Snapshot, before)
	}
	return out
}

func causes(out Outcome) []cluster.Cause {
	var all []cluster.Cause
	for _, s := range out.Steps {
		all = append(all, s.Cause)
	}
	return all
}
