package store

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// The elector of a large group reads each record once, at the start and after a reconnect, and what has changed after any other event.
func TestElectorReadsEachRecordOnce(t *testing.T) {
	const others = 2000
	s := newRaceSource(t)
	s.Session, s.admin = s.admin, s.Session
	var err error
	if s.self, err = Register(t.Context(), s.Session, s.p, cluster.Node{ID: "elector", Instance: cluster.NewInstance(1)}); err != nil {
		t.Fatal(err)
	}
	join := func(id string) (in cluster.Incarnation) {
		t.Helper()
		if in, err = Register(t.Context(), s.admin, s.p, cluster.Node{ID: id, Instance: cluster.NewInstance(1)}); err != nil {
			t.Fatal(err)
		}
		return in
	}
	for i := range others {
		join(fmt.Sprintf("n%04d", i))
	}
	source := &countingSource{raceSource: s}
	c := NewCollector(CollectorOptions{
		Source: source, Paths: s.p, Self: s.self, Session: s.SessionID(), Clock: func() time.Duration { return 1 }, Log: slog.New(slog.DiscardHandler),
	})
	const rest = 20 // what does not belong to one member
	var late cluster.Incarnation
	remove := func(path string) { s.do(cluster.Op{Kind: cluster.OpDelete, Path: path, Version: cluster.AnyVersion}) }
	for _, event := range []struct {
		name    string
		happens func()
		reads   int // at most
		members int
	}{
		{"the first time", func() {}, others + rest, others + 2},
		{"nothing", func() {}, 0, others + 2},
		{"a record changes", func() {
			s.do(cluster.Op{Kind: cluster.OpSet, Path: s.p.Node("n0005"), Version: cluster.AnyVersion, Data: cluster.Encode(&cluster.Node{ID: "n0005"})})
		}, 2, others + 2},
		{"a member joins", func() { late = join("late") }, 2, others + 3},
		{"it leaves", func() { remove(s.p.Incarnation(late.Name)); remove(s.p.Node("late")) }, 2, others + 2},
		{"a reconnect", c.InvalidateAll, others + rest, others + 2},
	} {
		event.happens()
		source.reads = 0
		if snap, complete := c.Collect(t.Context()); !complete || !snap.Elector || len(snap.Members) != event.members {
			t.Errorf("%s: complete: %v, the elector: %v, %d members", event.name, complete, snap.Elector, len(snap.Members))
		}
		if source.reads > event.reads {
			t.Errorf("%s: %d reads, at most %d are needed", event.name, source.reads, event.reads)
		}
	}
}
