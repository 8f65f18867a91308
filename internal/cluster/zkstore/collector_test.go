package zkstore

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/cluster/clustertest"
)

// scene is a group in memory in which something happens between two reads of a collector.
type scene struct {
	*clustertest.Session // that reads
	t                    *testing.T
	p                    cluster.Paths
	admin                *clustertest.Session
	self                 cluster.Incarnation
	before               map[string]func() // done once, before a znode is read
	late                 bool              // hints come after the collection
	hinting              bool
}

func newScene(t *testing.T) *scene {
	server := clustertest.NewServer()
	s := &scene{Session: server.Connect(), t: t, p: cluster.Paths{Root: "/g"}, admin: server.Connect(), before: make(map[string]func())}
	for _, path := range s.p.Skeleton() {
		s.do(cluster.Op{Kind: cluster.OpCreate, Path: path})
	}
	if _, err := Register(t.Context(), s.admin, s.p, cluster.Node{ID: "elector"}); err != nil { // who reads more than once
		t.Fatal(err)
	}
	var err error
	if s.self, err = Register(t.Context(), s.Session, s.p, cluster.Node{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *scene) do(ops ...cluster.Op) {
	s.t.Helper()
	if _, err := s.admin.Do(s.t.Context(), ops...); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) elect(kind cluster.OpKind, term int64, incarnation string) cluster.Op {
	return cluster.Op{Kind: kind, Path: s.p.Elected(), Version: cluster.AnyVersion, Data: cluster.Encode(&cluster.Elected{Term: term, Incarnation: incarnation})}
}

func (s *scene) fence(state cluster.FenceState, incarnation string) cluster.Op {
	f := cluster.Fence{Term: 5, Incarnation: incarnation, State: state}
	return cluster.Op{Kind: cluster.OpSet, Path: s.p.Leader(), Version: cluster.AnyVersion, Data: cluster.Encode(&f)}
}

// Read implements [Source], one read after the other.
func (s *scene) Read(ctx context.Context, reads []*Read) {
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

func (s *scene) TakeHints() cluster.Hints {
	if s.hinting = !s.hinting; s.late && !s.hinting {
		return cluster.Hints{}
	}
	return s.Session.TakeHints()
}

func (s *scene) collect() cluster.Snapshot {
	s.t.Helper()
	c := NewCollector(CollectorOptions{
		Source: s, Paths: s.p, Self: s.self, Session: s.SessionID(), Clock: func() time.Duration { return 1 }, Log: slog.New(slog.DiscardHandler),
	})
	snap, complete := c.Collect(s.t.Context())
	if !complete {
		s.t.Fatal("not all could be read")
	}
	if len(s.before) > 0 {
		s.t.Fatalf("not all of the scene was played: %v", s.before)
	}
	return snap
}

// The decision changes after it was read and before the fence is: the versions of an elected that was deleted and made
// anew begin again, so a transaction with what was read first could pass.
func TestASnapshotIsOfOneMoment(t *testing.T) {
	s := newScene(t)
	s.do(s.elect(cluster.OpCreate, 6, s.self.Name), s.fence(cluster.FenceReleased, "x-n_0000000009"))
	s.before[s.p.Current()] = func() {
		s.do(cluster.Op{Kind: cluster.OpDelete, Path: s.p.Elected(), Version: cluster.AnyVersion}, s.elect(cluster.OpCreate, 7, "b-n_0000000008"))
	}
	snap := s.collect()
	if e := snap.Elected; e.Record.Term != 7 || e.Stat.Version != 0 {
		t.Errorf("the decision of term %d (version %d) was taken for the present one", e.Record.Term, e.Stat.Version)
	}
}

// Nor is a change that comes when all three were read, but not yet the rest, left for later.
func TestASnapshotIsOfItsLastMoment(t *testing.T) {
	for name, change := range map[string]func(*scene){
		"elected": func(s *scene) { s.do(s.elect(cluster.OpSet, 7, s.self.Name)) },
		"fence":   func(s *scene) { s.do(s.fence(cluster.FenceRevoked, "x-n_0000000009")) },
		"current": func(s *scene) { s.do(cluster.Op{Kind: cluster.OpCreate, Path: s.p.Current(), Data: []byte("{}")}) },
	} {
		s := newScene(t)
		s.do(s.elect(cluster.OpCreate, 6, s.self.Name), s.fence(cluster.FenceReleased, "x-n_0000000009"))
		s.before[s.p.Election()] = func() { change(s) }
		snap := s.collect()
		if seen := map[string]bool{
			"elected": snap.Elected.Record.Term == 7, "fence": snap.Fence.Record.State == cluster.FenceRevoked, "current": snap.Current.Exists,
		}; !seen[name] {
			t.Errorf("the change of %s is not seen", name)
		}
	}
}

// What was known of a leadership that was none of this daemon's business meanwhile is read again.
func TestLeadershipIsReadAgainOnceItIsInScope(t *testing.T) {
	s := newScene(t)
	c := NewCollector(CollectorOptions{
		Source: s, Paths: s.p, Self: s.self, Session: s.SessionID(), Clock: func() time.Duration { return 1 }, Log: slog.New(slog.DiscardHandler),
	})
	s.do(s.elect(cluster.OpCreate, 6, s.self.Name), s.fence(cluster.FenceReady, "x-n_0000000009"), cluster.Op{Kind: cluster.OpCreate, Path: s.p.Current(), Data: []byte("{}")})
	for i, who := range []string{s.self.Name, "x-n_0000000009", s.self.Name} {
		s.do(s.elect(cluster.OpSet, int64(7+i), who))
		snap, complete := c.Collect(t.Context())
		mine := who == s.self.Name
		if !complete || snap.Leadership != mine || snap.Current.Exists != mine || snap.Fence.Exists != mine {
			t.Errorf("%d: complete %v, in scope %v, current %v, fence %v", i, complete, snap.Leadership, snap.Current.Exists, snap.Fence.Exists)
		}
	}
}

// Whoever is missing from the list is lost, and no elector, although its own znode was there a moment ago.
func TestWhoIsMissingFromTheListIsLost(t *testing.T) {
	s := newScene(t)
	s.before[s.p.Election()] = func() {
		s.do(cluster.Op{Kind: cluster.OpDelete, Path: s.p.Incarnation(s.self.Name), Version: cluster.AnyVersion})
	}
	if snap := s.collect(); !snap.SelfLost || snap.Elector {
		t.Errorf("lost: %v, elector: %v", snap.SelfLost, snap.Elector)
	}
}

// A RELEASE between the reading of the fence and that of current makes a holder of which current is not there.
func TestAHolderIsJudgedByAFenceReadAfterwards(t *testing.T) {
	s := newScene(t)
	holder := s.self.Name
	s.do(s.elect(cluster.OpCreate, 5, holder), s.fence(cluster.FenceReady, holder), cluster.Op{Kind: cluster.OpCreate, Path: s.p.Current()})
	s.late = true
	s.before[s.p.Current()] = func() {
		s.do(s.fence(cluster.FenceReleased, holder), cluster.Op{Kind: cluster.OpDelete, Path: s.p.Current(), Version: cluster.AnyVersion})
	}
	snap := s.collect()
	if snap.Fence.Record.State != cluster.FenceReleased || snap.FenceAlive {
		t.Errorf("the fence is %s, its holder alive: %v; it had been released before current was read", snap.Fence.Record.State, snap.FenceAlive)
	}
}

// An ACQUIRE between the second reading of the fence and that of current: current is there again.
func TestAHolderThatIsThereIsNotLookedFor(t *testing.T) {
	s := newScene(t)
	s.do(s.elect(cluster.OpCreate, 5, s.self.Name), s.fence(cluster.FenceReady, s.self.Name))
	s.late = true
	s.before[s.p.Current()] = func() {
		s.before[s.p.Current()] = func() { s.do(cluster.Op{Kind: cluster.OpCreate, Path: s.p.Current()}) }
	}
	if snap := s.collect(); !snap.Current.Exists || snap.FenceAlive {
		t.Errorf("current: %+v, alive: %v", snap.Current, snap.FenceAlive)
	}
}

// The lease of a holder whose incarnation exists may still run, that of one whose session has ended does not.
func TestAHolderWithoutCurrentIsLookedFor(t *testing.T) {
	for _, state := range []cluster.FenceState{cluster.FenceHeld, cluster.FenceReady} {
		for holder, alive := range map[string]bool{"": true, "gone-n_0000000009": false} {
			s := newScene(t)
			if holder == "" {
				holder = s.self.Name
			}
			s.do(s.elect(cluster.OpCreate, 5, s.self.Name), s.fence(state, holder))
			if snap := s.collect(); snap.FenceAlive != alive {
				t.Errorf("%s by %s: alive %v", state, holder, snap.FenceAlive)
			}
		}
	}
}

// With everything below the root the list of incarnations is gone: that must not keep the loss from being seen.
func TestTheLossOfTheWholeTreeIsSeen(t *testing.T) {
	for _, elector := range []bool{false, true} {
		s := newScene(t)
		if elector {
			s.do(cluster.Op{Kind: cluster.OpDelete, Path: s.p.Incarnation("elector-n_0000000000"), Version: cluster.AnyVersion})
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
		s.before[s.p.Election()] = wipe // between the own incarnation and the list
		if snap := s.collect(); !snap.SelfLost {
			t.Errorf("elector %v: the loss is not seen", elector)
		}
		if snap := s.collect(); !snap.SelfLost { // and where it has happened before
			t.Errorf("elector %v: the earlier loss is not seen", elector)
		}
	}
}

// counted counts what is read.
type counted struct {
	*scene
	calls, reads, lists int
}

func (c *counted) Read(ctx context.Context, reads []*Read) {
	c.calls++
	c.reads += len(reads)
	for _, r := range reads {
		if r.List {
			c.lists++
		}
	}
	c.scene.Read(ctx, reads)
}

// 5,000 incarnations that no session holds, older than all by sequences that are negative, as after a wrap: the cost grows with
// their number, not with its square, and the oldest that is real elects.
func TestThousandsOfForgedIncarnationsArePassedOver(t *testing.T) {
	const forged = 5000
	s := newScene(t)
	s.Session, s.admin = s.admin, s.Session
	var err error
	if s.self, err = Register(t.Context(), s.Session, s.p, cluster.Node{ID: "elector"}); err != nil {
		t.Fatal(err)
	}
	for i := range forged {
		s.do(cluster.Op{Kind: cluster.OpCreate, Path: fmt.Sprintf("%s/evil-n_%010d", s.p.Election(), -1-i)})
	}
	source := &counted{scene: s}
	c := NewCollector(CollectorOptions{
		Source: source, Paths: s.p, Self: s.self, Session: s.SessionID(), Clock: func() time.Duration { return 1 }, Log: slog.New(slog.DiscardHandler),
	})
	if snap, complete := c.Collect(t.Context()); !complete || !snap.Elector || len(snap.Members) != 2 {
		t.Errorf("complete: %v, the elector: %v, %d members", complete, snap.Elector, len(snap.Members))
	}
	if source.reads > forged+100 || source.lists > 2 || source.calls > forged/maxReads+30 {
		t.Errorf("%d reads in %d turns, %d of them of the whole list", source.reads, source.calls, source.lists)
	}
}
