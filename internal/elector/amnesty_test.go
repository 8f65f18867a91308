package elector

import (
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// L3 without using up terms: members that fail are tried again, but with growing pauses.
func TestAmnestyRetriesWithGrowingPauses(t *testing.T) {
	e := newElector()
	g := newGroup("a").elected("a", 7).fence("a", 7, cluster.FenceReleased)
	in := g.input(t)
	var waits []time.Duration
	for range 6 {
		began := in.Now
		d := e.Decide(in)
		for d.Elect == nil {
			if d.Wake <= in.Now {
				t.Fatalf("no leader, and no time to retry: %q", d.Note)
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
	d := newElector().Decide(in)
	if d.Elect == nil || d.Elect.Node != "a" {
		t.Fatalf("elected %+v (%s)", d.Elect, d.Note)
	}
	for _, x := range d.Elect.Exclusions {
		if x.Expired != (x.Node == "a") {
			t.Errorf("%s: expired %v", x.Node, x.Expired)
		}
	}
}

// The amnesty that lets one node in does not shorten the pause of another.
func TestAmnestyOfOneNodeKeepsThePauseOfAnother(t *testing.T) {
	e := newElector()
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
		t.Errorf("%s is preempted at once by %s during its pause: %s", d.Elect.Node, again.Elect.Node, again.Elect.Reason)
	}
}

// The node with the last strike stays excluded wherever it is in the list, unlike a node that only has to wait.
func TestAmnestySparesTheLastFailureWhereverItIsListed(t *testing.T) {
	in := newGroup("a", "b").elected("b", 9).fence("b", 9, cluster.FenceReleased).input(t)
	in.Exclusions = []cluster.Exclusion{
		{Node: "b", Strikes: 2, For: cluster.Duration(time.Minute), Term: 5, Reason: "x"},
		{Node: "a", Strikes: 1, For: cluster.Duration(time.Minute), Term: 8, Reason: "y"},
	}
	in.Age = []time.Duration{time.Second, time.Second}
	d := newElector().Decide(in)
	if d.Elect == nil || d.Elect.Node != "a" {
		t.Fatalf("elected %+v (%s)", d.Elect, d.Note)
	}
	for _, entry := range d.Ranking.Entries {
		if entry.Member.ID == "b" && !strings.HasPrefix(entry.RefusalReason(), "excluded for ") {
			t.Errorf("b is refused: %s", entry.RefusalReason())
		}
	}
}

// The pause before a retry counts from the failure, however long the leader had led.
func TestThePauseCountsFromTheFailure(t *testing.T) {
	e := newElector()
	in := newGroup("a").leads("a", 7).input(t)
	in.Exclusions = []cluster.Exclusion{{Node: "a", Strikes: 1, For: cluster.Duration(time.Minute), Term: 5, Reason: "x", Expired: true}}
	in.Age = []time.Duration{time.Hour}
	e.Decide(in)
	in.Now += time.Hour
	in.Snapshot.Fence.Record.State = cluster.FenceReleased
	if d := e.Decide(in); d.Elect != nil || d.Wake != in.Now+retryDelay(2) {
		t.Errorf("elected %+v, wakes after %s", d.Elect, d.Wake-in.Now)
	}
}

// While one node leads by amnesty, the pause of another one ends without an event.
func TestTheEndOfAPauseWakes(t *testing.T) {
	in := newGroup("a", "b").leads("b", 9).input(t)
	in.Exclusions = []cluster.Exclusion{
		{Node: "a", Strikes: 3, For: cluster.Duration(time.Minute), Term: 7, Reason: "x"},
		{Node: "b", Strikes: 1, For: cluster.Duration(time.Minute), Term: 8, Reason: "y"},
	}
	in.Age = []time.Duration{100 * time.Millisecond, 0}
	if d := newElector().Decide(in); d.Elect != nil || d.Wake != in.Now+900*time.Millisecond {
		t.Errorf("elected %+v, wakes after %s", d.Elect, d.Wake-in.Now)
	}
}
