package store

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/store/storetest"
	"zkelectd/internal/zk"
)

// raceSource is an in-memory group in which something happens between two reads of a collector.
type raceSource struct {
	*storetest.Session // the session that reads
	server             *storetest.Server
	t                  *testing.T
	p                  cluster.Paths
	admin              *storetest.Session
	self               cluster.Incarnation
	before             map[string]func() // called once, before a read of the znode
}

func newRaceSource(t *testing.T) *raceSource { return newRaceSourceAt(t, cluster.Paths{Root: "/g"}) }

func newRaceSourceAt(t *testing.T, p cluster.Paths) *raceSource {
	server := storetest.NewServer()
	s := &raceSource{Session: server.Connect(), server: server, t: t, p: p, admin: server.Connect(), before: make(map[string]func())}
	for _, path := range s.p.Skeleton() {
		s.do(cluster.Op{Kind: cluster.OpCreate, Path: path})
	}
	if _, err := Register(t.Context(), s.admin, s.p, cluster.Node{ID: "elector", Instance: cluster.NewInstance(1)}); err != nil { // so that the collector reads more than once
		t.Fatal(err)
	}
	var err error
	if s.self, err = Register(t.Context(), s.Session, s.p, cluster.Node{ID: "a", Instance: cluster.NewInstance(1)}); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *raceSource) do(ops ...cluster.Op) {
	s.t.Helper()
	if _, err := s.admin.Do(s.t.Context(), ops...); err != nil {
		s.t.Fatal(err)
	}
}

func (s *raceSource) elect(kind cluster.OpKind, term int64, incarnation string) cluster.Op {
	return cluster.Op{Kind: kind, Path: s.p.Elected(), Version: cluster.AnyVersion, Data: cluster.Encode(&cluster.Elected{Term: term, Incarnation: incarnation})}
}

func (s *raceSource) fence(state cluster.FenceState, incarnation string) cluster.Op {
	f := cluster.Fence{Term: 5, Incarnation: incarnation, State: state}
	return cluster.Op{Kind: cluster.OpSet, Path: s.p.Leader(), Version: cluster.AnyVersion, Data: cluster.Encode(&f)}
}

// Read implements [Source]. It performs the reads one after the other.
func (s *raceSource) Read(ctx context.Context, reads []*Read) {
	for _, r := range reads {
		if f := s.before[r.Path]; f != nil {
			delete(s.before, r.Path)
			f()
		}
		if r.List {
			r.Names, r.Stat, r.Err = s.Children(ctx, r.Path, r.Watch)
		} else {
			r.Data, r.Stat, r.Err = s.Get(ctx, r.Path, r.Watch)
		}
	}
}

// collector returns a collector of the session that reads, over a source.
func (s *raceSource) collector(source Source) *Collector {
	return NewCollector(CollectorOptions{
		Source: source, Paths: s.p, Self: s.self, Session: s.SessionID(), Clock: func() time.Duration { return 1 },
		Log: slog.New(slog.DiscardHandler),
	})
}

func (s *raceSource) collect() cluster.Snapshot {
	s.t.Helper()
	c := s.collector(s)
	snap, complete := c.Collect(s.t.Context())
	if !complete {
		s.t.Fatal("incomplete")
	}
	if len(s.before) > 0 {
		s.t.Fatalf("not all of the changes were made: %v", s.before)
	}
	return snap
}

// The decision changes between the reads of elected and the fence. The versions of an elected that was deleted and created
// again start over, so a transaction based on the first read could be applied.
func TestSnapshotIsNotTorn(t *testing.T) {
	s := newRaceSource(t)
	s.do(s.elect(cluster.OpCreate, 6, s.self.Name), s.fence(cluster.FenceReleased, "x-0000000000000001-n_0000000009"))
	s.before[s.p.Current()] = func() {
		s.do(cluster.Op{Kind: cluster.OpDelete, Path: s.p.Elected(), Version: cluster.AnyVersion}, s.elect(cluster.OpCreate, 7, "b-0000000000000001-n_0000000008"))
	}
	snap := s.collect()
	if e := snap.Elected; e.Record.Term != 7 || e.Stat.Version != 0 {
		t.Errorf("the snapshot has the old decision of term %d (version %d)", e.Record.Term, e.Stat.Version)
	}
}

// A change that comes after elected, the fence and current were read, but before the rest is, is in the same snapshot.
func TestSnapshotHasLateChanges(t *testing.T) {
	for name, change := range map[string]func(*raceSource){
		"elected": func(s *raceSource) { s.do(s.elect(cluster.OpSet, 7, s.self.Name)) },
		"fence":   func(s *raceSource) { s.do(s.fence(cluster.FenceRevoked, "x-0000000000000001-n_0000000009")) },
		"current": func(s *raceSource) { s.do(cluster.Op{Kind: cluster.OpCreate, Path: s.p.Current(), Data: []byte("{}")}) },
	} {
		s := newRaceSource(t)
		s.do(s.elect(cluster.OpCreate, 6, s.self.Name), s.fence(cluster.FenceReleased, "x-0000000000000001-n_0000000009"))
		s.before[s.p.Election()] = func() { change(s) }
		snap := s.collect()
		if seen := map[string]bool{
			"elected": snap.Elected.Record.Term == 7, "fence": snap.Fence.Record.State == cluster.FenceRevoked, "current": snap.Current.Exists,
		}; !seen[name] {
			t.Errorf("the change of %s is not in the snapshot", name)
		}
	}
}

// If everything below the root is deleted, so is the election list. The daemon must still detect that its registration is lost.
func TestLossOfTheWholeTreeIsDetected(t *testing.T) {
	for _, elector := range []bool{false, true} {
		s := newRaceSource(t)
		if elector {
			s.do(cluster.Op{Kind: cluster.OpDelete, Path: s.p.Incarnation("elector-0000000000000001-n_0000000000"), Version: cluster.AnyVersion})
		}
		wipe := func() {
			names, _, err := s.admin.Children(t.Context(), s.p.Election(), false)
			if err != nil {
				t.Fatal(err)
			}
			var ops []cluster.Op
			for _, name := range names {
				ops = append(ops, cluster.Op{Kind: cluster.OpDelete, Path: s.p.Incarnation(name), Version: cluster.AnyVersion})
			}
			s.do(append(ops, cluster.Op{Kind: cluster.OpDelete, Path: s.p.Election(), Version: cluster.AnyVersion})...)
		}
		s.before[s.p.Election()] = wipe // between the reads of its incarnation and the list
		if snap := s.collect(); !snap.SelfLost {
			t.Errorf("elector %v: the loss is not detected", elector)
		}
		if snap := s.collect(); !snap.SelfLost { // and if it happened before
			t.Errorf("elector %v: the earlier loss is not detected", elector)
		}
	}
}

// countingSource counts the reads.
type countingSource struct {
	*raceSource
	calls, reads, lists int
}

func (c *countingSource) Read(ctx context.Context, reads []*Read) {
	c.calls++
	c.reads += len(reads)
	for _, r := range reads {
		if r.List {
			c.lists++
		}
	}
	c.raceSource.Read(ctx, reads)
}

// There are 5,000 incarnations that no session owns, with negative sequence numbers, as after an overflow, so that they come
// first. The cost grows linearly with their number, and the first real incarnation becomes the elector.
func TestThousandsOfForgedIncarnationsAreIgnored(t *testing.T) {
	const forged = 5000
	s := newRaceSource(t)
	s.Session, s.admin = s.admin, s.Session
	var err error
	if s.self, err = Register(t.Context(), s.Session, s.p, cluster.Node{ID: "elector", Instance: cluster.NewInstance(1)}); err != nil {
		t.Fatal(err)
	}
	for i := range forged {
		s.do(cluster.Op{Kind: cluster.OpCreate, Path: fmt.Sprintf("%s/%04d-0000000000000001-n_0000000000", s.p.Election(), i)})
	}
	source := &countingSource{raceSource: s}
	c := s.collector(source)
	if snap, complete := c.Collect(t.Context()); !complete || !snap.Elector || len(snap.Members) != 2 {
		t.Errorf("complete: %v, the elector: %v, %d members", complete, snap.Elector, len(snap.Members))
	}
	if source.reads > forged+100 || source.lists > 2 || source.calls > forged/maxReads+30 {
		t.Errorf("%d reads in %d calls, %d of them of the whole list", source.reads, source.calls, source.lists)
	}
}

// Groups without a leader, and those that this daemon leads, are read before others.
func TestReadPriority(t *testing.T) {
	self := cluster.Incarnation{ID: "a", Name: "a-0000000000000001-n_0000000001"}
	elected := cluster.Stored[cluster.Elected]{Exists: true, Record: cluster.Elected{Term: 7, Incarnation: self.Name}}
	fence := cluster.Stored[cluster.Fence]{Exists: true, Record: cluster.Fence{Term: 7, Incarnation: self.Name, State: cluster.FenceReady}}
	current := cluster.Stored[cluster.Current]{Exists: true, Stat: cluster.Stat{Owner: 2}}
	for name, c := range map[string]struct {
		snap cluster.Snapshot
		want zk.Priority
	}{
		"nothing was read":  {cluster.Snapshot{}, zk.PriorityNormal},
		"a candidate":       {cluster.Snapshot{Elected: elected}, zk.PriorityRecovery},
		"no leader":         {cluster.Snapshot{Elector: true, HolderRead: true, Elected: elected, Fence: fence}, zk.PriorityRecovery},
		"another leads":     {cluster.Snapshot{Session: 1, Elector: true, HolderRead: true, Elected: elected, Fence: fence, Current: current}, zk.PriorityNormal},
		"this daemon leads": {cluster.Snapshot{Session: 2, HolderRead: true, Elected: elected, Fence: fence, Current: current}, zk.PriorityRecovery},
		"a follower":        {cluster.Snapshot{Session: 1, Elected: cluster.Stored[cluster.Elected]{Exists: true}}, zk.PriorityNormal},
	} {
		collector := NewCollector(CollectorOptions{Self: self})
		c.snap.Self = self
		collector.snap = c.snap
		if got := zk.PriorityOf(collector.prioritize(t.Context())); got != c.want {
			t.Errorf("%s: priority %d, want %d", name, got, c.want)
		}
	}
}
