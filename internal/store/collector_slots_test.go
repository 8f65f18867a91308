package store

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/store/storetest"
)

// orderedSource records the order of the reads.
type orderedSource struct {
	*storetest.Session
	paths []string
}

func (s *orderedSource) Read(ctx context.Context, reads []*Read) {
	for _, r := range reads {
		s.paths = append(s.paths, r.Path)
		if r.List {
			r.Names, r.Stat, r.Err = s.Children(ctx, r.Path, r.Watch)
		} else {
			r.Data, r.Stat, r.Err = s.Get(ctx, r.Path, r.Watch)
		}
	}
}

// A collector of a slot reads slots, with a watch, and before the decision.
func TestCollectorOfASlot(t *testing.T) {
	server := storetest.NewServer()
	admin, p := server.Connect(), cluster.Paths{Root: "/g"}.OfSlot(2)
	do := func(ops ...cluster.Op) {
		t.Helper()
		if _, err := admin.Do(t.Context(), ops...); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range p.Skeleton() {
		do(cluster.Op{Kind: cluster.OpCreate, Path: path})
	}
	source := &orderedSource{Session: server.Connect()}
	self, err := Register(t.Context(), source.Session, p, cluster.Node{ID: "a", Instance: cluster.NewInstance(1)})
	if err != nil {
		t.Fatal(err)
	}
	c := NewCollector(CollectorOptions{
		Source: source, Paths: p, Self: self, Session: source.SessionID(), Clock: func() time.Duration { return 0 }, Log: slog.New(slog.DiscardHandler),
	})
	if s, ok := c.Collect(t.Context()); !ok || s.Slot != "2" || s.Slots.Readable() || !s.Slots.Exists {
		t.Errorf("%+v %v", s.Slots, ok)
	}
	if slots, elected := slices.Index(source.paths, p.Slots()), slices.Index(source.paths, p.Elected()); slots < 0 || slots > elected {
		t.Errorf("slots is not read before the decision: %v", source.paths)
	}
	rec := cluster.NewSlots(cluster.SlotSize{Count: 3, PerNode: 1}, "a", time.Unix(1000, 0))
	do(p.SlotsTx("", cluster.Stored[cluster.Slots]{Exists: true}, rec)...)
	if s, ok := c.Collect(t.Context()); !ok || s.Slots.Record.Count != 3 || s.Slots.Stat.Version != 1 {
		t.Errorf("%+v %v", s.Slots, ok)
	}
	if s, err := ReadAll(t.Context(), source, p, false); err != nil || s.Slot != "2" || s.Slots.Record.Count != 3 {
		t.Errorf("%+v %v", s.Slots, err)
	}
}
