package store

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// fakeSource is a collector over a scene that records the reads and can make them fail.
type fakeSource struct {
	*raceSource
	collector *Collector
	log       strings.Builder
	reads     []string
	rounds    int
	watched   map[string]bool // by the last reads
	failing   map[string]error
	lost      bool // all hints are lost
}

func newFollower(t *testing.T) *fakeSource {
	f := &fakeSource{raceSource: newRaceSource(t), failing: make(map[string]error), watched: make(map[string]bool)}
	f.collector = NewCollector(CollectorOptions{
		Source: f, Paths: f.p, Self: f.self, Session: f.SessionID(), Clock: func() time.Duration { return 1 },
		Log: slog.New(slog.NewTextHandler(&f.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	return f
}

// newElector returns a follower whose predecessor is gone.
func newElector(t *testing.T) *fakeSource {
	f := newFollower(t)
	f.leave("elector-0000000000000001-n_0000000000")
	return f
}

func (f *fakeSource) Read(ctx context.Context, reads []*Read) {
	f.rounds++
	for _, r := range reads {
		f.reads = append(f.reads, strings.TrimPrefix(r.Path, f.p.Root+"/"))
		f.watched[r.Path] = r.Watch
		if err := f.failing[r.Path]; err != nil {
			r.Err = err
			continue
		}
		f.raceSource.Read(ctx, []*Read{r})
	}
}

func (f *fakeSource) TakeHints() cluster.Hints {
	if f.lost {
		f.lost = false
		f.raceSource.TakeHints()
		return cluster.Hints{All: true}
	}
	return f.raceSource.TakeHints()
}

// join registers another daemon; leave deletes a daemon's node and incarnation.
func (f *fakeSource) join(id string) cluster.Incarnation {
	f.t.Helper()
	in, err := Register(f.t.Context(), f.admin, f.p, cluster.Node{ID: id, Instance: cluster.NewInstance(1)})
	if err != nil {
		f.t.Fatal(err)
	}
	return in
}

func (f *fakeSource) leave(incarnation string) {
	f.t.Helper()
	in, err := cluster.ParseIncarnation(incarnation)
	if err != nil {
		f.t.Fatal(err)
	}
	f.do(cluster.Op{Kind: cluster.OpDelete, Path: f.p.Incarnation(in.Name), Version: cluster.AnyVersion},
		cluster.Op{Kind: cluster.OpDelete, Path: f.p.Node(in.ID), Version: cluster.AnyVersion})
}

func (f *fakeSource) set(path string, data string) {
	f.t.Helper()
	f.do(cluster.Op{Kind: cluster.OpSet, Path: path, Version: cluster.AnyVersion, Data: []byte(data)})
}

func (f *fakeSource) create(path string) {
	f.t.Helper()
	f.do(cluster.Op{Kind: cluster.OpCreate, Path: path, Data: []byte("{}")})
}

// collects updates the snapshot, which must succeed, and checks which paths were read.
func (f *fakeSource) collects(what string, want ...string) cluster.Snapshot {
	f.t.Helper()
	f.reads = nil
	snap, complete := f.collector.Collect(f.t.Context())
	if !complete {
		f.t.Errorf("%s: incomplete", what)
	}
	slices.Sort(f.reads)
	slices.Sort(want)
	if !slices.Equal(f.reads, want) {
		f.t.Errorf("%s: read %q, not %q", what, f.reads, want)
	}
	return snap
}

// A daemon that is neither elected nor the elector reads and watches its own registration, its predecessor and elected.
func TestFollowerReads(t *testing.T) {
	f := newFollower(t)
	f.do(f.elect(cluster.OpCreate, 6, "x-0000000000000001-n_0000000009"))
	own := []string{"election/" + f.self.Name, "leader/elected", "nodes/a", "heir"}
	first := append(slices.Clone(own), "election", "election/elector-0000000000000001-n_0000000000", "election/elector-0000000000000001-n_0000000000") // the second time with a watch
	if snap := f.collects("at first", first...); snap.Elector || snap.HolderRead || snap.SelfLost || snap.Elected.Record.Term != 6 {
		t.Errorf("%+v", snap)
	}
	for _, path := range []string{f.p.Elected(), f.p.Node("a"), f.p.Incarnation(f.self.Name), f.p.Incarnation("elector-0000000000000001-n_0000000000")} {
		if !f.watched[path] {
			t.Errorf("%s is not watched", path)
		}
	}
	if f.watched[f.p.Election()] {
		t.Error("the whole group is watched")
	}
	f.collects("nothing new")
	f.do(f.fence(cluster.FenceHeld, "x-0000000000000001-n_0000000009"), cluster.Op{Kind: cluster.OpCreate, Path: f.p.Current()})
	b := f.join("b")
	f.collects("what does not concern it")
	f.do(f.elect(cluster.OpSet, 7, b.Name))
	f.collects("another decision", "leader/elected")
	f.create(f.p.Heir())
	if snap := f.collects("another heir", "heir"); !snap.Heir.Exists {
		t.Errorf("%+v", snap.Heir)
	}
	f.collector.InvalidateHolder()
	f.collects("leadership was forgotten", "election/"+f.self.Name, "leader/elected")
	f.collector.InvalidateAll()
	f.collects("all was forgotten", append(own, "election/elector-0000000000000001-n_0000000000")...)
	f.lost = true
	f.collects("hints were lost", append(own, "election/elector-0000000000000001-n_0000000000")...)
	f.do(f.elect(cluster.OpSet, 8, f.self.Name))
	if snap := f.collects("its own election", "leader", "leader/current", "leader/elected"); !snap.HolderRead || !snap.Current.Exists {
		t.Errorf("%+v", snap)
	}
	f.collector.InvalidateHolder()
	f.collects("leadership was forgotten", "election/"+f.self.Name, "leader/elected", "leader", "leader/current")
	f.set(f.p.Leader(), "{}")
	f.collects("the fence", "leader", "leader/current")
	f.set(f.p.Current(), "{}")
	f.collects("current", "leader", "leader/current")
	f.do(f.elect(cluster.OpSet, 9, b.Name))
	if snap := f.collects("the election of another", "leader/elected"); snap.HolderRead || snap.Current.Exists || snap.Fence.Exists {
		t.Errorf("%+v", snap)
	}
	f.set(f.p.Leader(), "{}")
	f.collects("a former watch")
	f.do(f.elect(cluster.OpSet, 10, f.self.Name))
	f.collects("elected again", "leader", "leader/current", "leader/elected")
	f.do(f.elect(cluster.OpSet, 11, b.Name))
	f.collects("the election of another", "leader/elected")
	f.leave("elector-0000000000000001-n_0000000000")
	if snap := f.collects("its predecessor has gone", "control", "election", "election/elector-0000000000000001-n_0000000000",
		"leader", "leader/current", "leader/elected", "nodes/b", "policy", "roster"); !snap.Elector || len(snap.Members) != 2 {
		t.Errorf("%+v", snap)
	}
	if f.log.Len() != 0 {
		t.Errorf("nothing is wrong, but the log is %s", f.log.String())
	}
}

// In a group that uses roll calls, every member reads and watches them; in others nobody does.
func TestRollCallsAreRead(t *testing.T) {
	f := newFollower(t)
	f.collector.opt.RollCalls = true
	own := []string{"election/" + f.self.Name, "leader/elected", "nodes/a", "heir", "rollcall"}
	f.collects("at first", append(own, "election", "election/elector-0000000000000001-n_0000000000", "election/elector-0000000000000001-n_0000000000")...)
	if !f.watched[f.p.RollCall()] {
		t.Error("roll calls are not watched")
	}
	call := cluster.RollCall{Number: cluster.NewInstance(1)}
	f.do(cluster.Op{Kind: cluster.OpCreate, Path: f.p.RollCall(), Data: cluster.Encode(&call)})
	if snap := f.collects("a roll call", "rollcall"); snap.RollCall.Record.Number != call.Number {
		t.Errorf("%+v", snap.RollCall)
	}
	f.set(f.p.RollCall(), "{")
	if snap := f.collects("a damaged one", "rollcall"); snap.RollCall.Err == nil {
		t.Errorf("%+v", snap.RollCall)
	}
	f.failing[f.p.RollCall()] = cluster.ErrNoAuth
	f.set(f.p.RollCall(), "{}")
	if snap := f.collects("one that may not be read", "rollcall"); snap.RollCall.Exists || snap.RollCall.Err == nil {
		t.Errorf("%+v", snap.RollCall)
	}
}

// The policy in force asks for roll calls, but not the configuration of the elector.
func TestElectorReadsRollCallsByThePolicy(t *testing.T) {
	f := newElector(t)
	f.collector.Collect(t.Context())
	f.create(f.p.Policy())
	f.collects("a policy without them", "policy")
	f.set(f.p.Policy(), `{"v":1,"revision":2,"type":"score","roll_call":{"enabled":true}}`)
	f.collects("a policy with them", "policy", "rollcall")
}

// When the elector goes, the next in line reads what it needs in one round, and the records of members that it does not know in
// another one.
func TestNextElectorReadsInOneRound(t *testing.T) {
	f := newFollower(t)
	f.do(f.elect(cluster.OpCreate, 6, "elector-0000000000000001-n_0000000000"), f.fence(cluster.FenceReleased, "elector-0000000000000001-n_0000000000"))
	f.join("b")
	f.collector.Collect(t.Context())
	f.leave("elector-0000000000000001-n_0000000000")
	f.rounds = 0
	snap, complete := f.collector.Collect(t.Context())
	if !complete || !snap.Elector || !snap.HolderRead || len(snap.Members) != 2 || snap.Fence.Record.State != cluster.FenceReleased || snap.Elected.Record.Term != 6 {
		t.Errorf("complete: %t, %+v", complete, snap)
	}
	if f.rounds != 2 {
		t.Errorf("%d rounds of reads", f.rounds)
	}
	for _, path := range []string{f.p.Election(), f.p.Elected(), f.p.Leader(), f.p.Current(), f.p.Policy(), f.p.Control(), f.p.Node("b")} {
		if !f.watched[path] {
			t.Errorf("%s is not watched", path)
		}
	}
}

// The reads of that round come in any order, so a change of any of them while they are under way means that they are not of one state.
func TestNextElectorsReadsAreNotTorn(t *testing.T) {
	f := newFollower(t)
	f.do(f.elect(cluster.OpCreate, 6, "elector-0000000000000001-n_0000000000"))
	f.do(cluster.Op{Kind: cluster.OpCreate, Path: f.p.Policy(), Data: cluster.Encode(&cluster.Policy{Revision: 1})})
	f.collector.Collect(t.Context())
	f.leave("elector-0000000000000001-n_0000000000")
	f.before[f.p.Elected()] = func() { // the policy was read before
		f.do(cluster.Op{Kind: cluster.OpSet, Path: f.p.Policy(), Version: cluster.AnyVersion, Data: cluster.Encode(&cluster.Policy{Revision: 2})},
			f.fence(cluster.FenceReleased, "elector-0000000000000001-n_0000000000"))
	}
	snap, complete := f.collector.Collect(t.Context())
	if !complete || snap.Fence.Record.State != cluster.FenceReleased || snap.Policy.Record.Revision != 2 {
		t.Errorf("complete: %t, the fence is %q, with revision %d of the policy", complete, snap.Fence.Record.State, snap.Policy.Record.Revision)
	}
}

// A failure in that round does not make it forget that its predecessor is gone: nobody would elect.
func TestNextElectorAfterAFailedRound(t *testing.T) {
	for _, path := range []string{"election", "leader/elected", "policy", "leader"} {
		f := newFollower(t)
		f.do(f.elect(cluster.OpCreate, 6, "elector-0000000000000001-n_0000000000"))
		f.collector.Collect(t.Context())
		f.leave("elector-0000000000000001-n_0000000000")
		f.failing[f.p.Root+"/"+path] = cluster.ErrUnknown
		if snap, complete := f.collector.Collect(t.Context()); complete {
			t.Errorf("%s: %+v", path, snap)
		}
		clear(f.failing)
		if snap, complete := f.collector.Collect(t.Context()); !complete || !snap.Elector || len(snap.Members) != 1 || snap.Elected.Record.Term != 6 {
			t.Errorf("%s: complete: %t, %+v", path, complete, snap)
		}
	}
}

// The published heir, which is probably elected next, reads the fence and current in one round with a new decision. If another member
// is elected, it forgets them.
func TestHeirReadsInOneRound(t *testing.T) {
	for _, elected := range []bool{true, false} {
		f := newFollower(t)
		decide := func(kind cluster.OpKind, term int64, incarnation string, heir string) {
			e := cluster.Elected{Term: term, Incarnation: incarnation, Heir: &cluster.Heir{Incarnation: heir}}
			f.do(cluster.Op{Kind: kind, Path: f.p.Elected(), Version: cluster.AnyVersion, Data: cluster.Encode(&e)})
		}
		decide(cluster.OpCreate, 6, "elector-0000000000000001-n_0000000000", f.self.Name)
		f.do(f.fence(cluster.FenceReady, "elector-0000000000000001-n_0000000000"), cluster.Op{Kind: cluster.OpCreate, Path: f.p.Current(), Data: []byte("{}")})
		if snap, _ := f.collector.Collect(t.Context()); snap.HolderRead || !snap.SelfIsHeir() {
			t.Fatalf("%+v", snap)
		}
		if f.collects("nothing is new"); f.watched[f.p.Leader()] {
			t.Error("an heir reads the fence")
		}
		f.rounds = 0
		if !elected {
			decide(cluster.OpSet, 7, "b-0000000000000001-n_0000000008", f.self.Name)
			if snap := f.collects("another is elected", "leader/elected", "leader", "leader/current"); snap.HolderRead || snap.Fence.Exists || f.rounds != 1 {
				t.Errorf("%d rounds: %+v", f.rounds, snap)
			}
			continue
		}
		decide(cluster.OpSet, 7, f.self.Name, "")
		if snap := f.collects("it is elected", "leader/elected", "leader", "leader/current"); !snap.HolderRead || !snap.Current.Exists || f.rounds != 1 {
			t.Errorf("%d rounds: %+v", f.rounds, snap)
		}
		f.do(cluster.Op{Kind: cluster.OpDelete, Path: f.p.Current(), Version: cluster.AnyVersion})
		if snap := f.collects("current is gone", "leader", "leader/current"); snap.Current.Exists {
			t.Errorf("%+v", snap)
		}
	}
}

// The holder of current needs the fence and current until current is gone, even if another member is elected.
func TestHolderReads(t *testing.T) {
	f := newFollower(t)
	current := cluster.Op{Kind: cluster.OpCreate, Path: f.p.Current(), Data: []byte("{}"), Ephemeral: true}
	f.do(f.elect(cluster.OpCreate, 6, f.self.Name), f.fence(cluster.FenceHeld, f.self.Name))
	if snap, _ := f.collector.Collect(t.Context()); snap.HoldsCurrent() {
		t.Errorf("%+v", snap)
	}
	if _, err := f.Session.Do(t.Context(), current); err != nil {
		t.Fatal(err)
	}
	if snap, _ := f.collector.Collect(t.Context()); !snap.HoldsCurrent() {
		t.Errorf("%+v", snap)
	}
	f.do(f.elect(cluster.OpSet, 7, "x-0000000000000001-n_0000000009"))
	if snap := f.collects("another is elected", "leader/elected"); !snap.HoldsCurrent() {
		t.Errorf("%+v", snap)
	}
	f.do(cluster.Op{Kind: cluster.OpDelete, Path: f.p.Current(), Version: cluster.AnyVersion})
	f.collector.Collect(t.Context())
	if snap := f.collects("current is gone"); snap.HolderRead {
		t.Errorf("%+v", snap)
	}
}

// The elector watches all members, and reads only what has changed.
func TestElectorReads(t *testing.T) {
	f := newElector(t)
	b := f.join("b")
	f.do(f.elect(cluster.OpCreate, 6, b.Name))
	snap := f.collects("at first", "control", "election", "election", "election/"+f.self.Name, "leader", "leader/current", "leader/elected", "leader/elected",
		"nodes/a", "nodes/b", "policy", "roster", "heir")
	if !snap.Elector || !snap.HolderRead || len(snap.Members) != 2 || snap.Members[0].Name != f.self.Name || snap.Members[1].Node.Record.ID != "b" || snap.Policy.Exists {
		t.Errorf("%+v", snap)
	}
	for _, path := range []string{f.p.Election(), f.p.Node("b"), f.p.Policy(), f.p.Control(), f.p.Leader(), f.p.Current()} {
		if !f.watched[path] {
			t.Errorf("%s is not watched", path)
		}
	}
	f.collects("nothing new")
	f.create(f.p.Policy())
	if snap := f.collects("a policy", "policy"); !snap.Policy.Exists || snap.Control.Exists {
		t.Errorf("%+v", snap)
	}
	f.create(f.p.Control())
	if snap := f.collects("control", "control"); !snap.Control.Exists {
		t.Errorf("%+v", snap)
	}
	f.set(f.p.Node("b"), `{"v":1,"id":"b","site":"north"}`)
	if snap := f.collects("a member has changed", "election", "nodes/b"); snap.Members[1].Node.Record.Site != "north" {
		t.Errorf("%+v", snap.Members)
	}
	c := f.join("c")
	f.collects("a newcomer", "election", "nodes/c")
	f.leave(c.Name)
	if snap := f.collects("it has gone", "election"); len(snap.Members) != 2 || len(f.collector.nodes) != 2 {
		t.Errorf("%+v", snap.Members)
	}
	f.join("c")
	if snap := f.collects("it is back", "election", "nodes/c"); len(snap.Members) != 3 || !snap.Members[2].Node.Readable() {
		t.Errorf("%+v", snap.Members)
	}
	second := cluster.Op{Kind: cluster.OpCreate, Path: f.p.Incarnation("b-0000000000000002-n_0000000099"), Ephemeral: true}
	f.set(f.p.Node("b"), `{"v":1,"id":"b","instance":"0000000000000002"}`)
	f.do(second)
	snap = f.collects("a second incarnation of one", "election", "nodes/b")
	for _, m := range snap.Members {
		if m.Superseded != (m.Name == b.Name) || !m.Node.Readable() {
			t.Errorf("%+v", m)
		}
	}
	f.do(cluster.Op{Kind: cluster.OpDelete, Path: f.p.Incarnation(b.Name), Version: cluster.AnyVersion},
		cluster.Op{Kind: cluster.OpDelete, Path: second.Path, Version: cluster.AnyVersion})
	f.collects("both are gone, its node is not", "election")
	f.do(second)
	if snap := f.collects("it is back", "election", "nodes/b"); len(snap.Members) != 3 || !snap.Members[2].Node.Readable() {
		t.Errorf("%+v", snap.Members)
	}
	f.collector.InvalidateAll()
	f.collects("all was forgotten", "control", "election", "election/"+f.self.Name, "leader", "leader/current", "leader/elected", "nodes/a", "nodes/b", "nodes/c", "policy", "roster", "heir")
}

// A permission error is logged as an error once, until a read succeeds. Transient failures and the end of the session are not.
func TestFailedReadsAreRetried(t *testing.T) {
	f := newFollower(t)
	failed := func(what string, err error, level string) {
		t.Helper()
		f.log.Reset()
		f.failing[f.p.Elected()] = err
		f.collector.InvalidateHolder()
		if _, complete := f.collector.Collect(t.Context()); complete {
			t.Errorf("%s: complete", what)
		}
		if text := f.log.String(); strings.Count(text, "level=") != min(1, len(level)) || !strings.Contains(text, level) || level != "" && !strings.Contains(text, f.p.Elected()) {
			t.Errorf("%s: the log is %q, not at level %q", what, text, level)
		}
	}
	failed("no connection", cluster.ErrNotSent, "DEBUG")
	failed("the end", cluster.ErrSessionEnded, "")
	failed("a refusal", cluster.ErrNoAuth, "ERROR")
	failed("it again", cluster.ErrNoAuth, "DEBUG")
	f.failing = map[string]error{}
	f.collects("that alone is read again", "leader/elected", "election", "election/elector-0000000000000001-n_0000000000", "election/elector-0000000000000001-n_0000000000", "heir")
	failed("a new refusal", cluster.ErrNoAuth, "ERROR")
	f.failing = map[string]error{}
	f.collector.Collect(t.Context())
	f.collector.InvalidateAll()
	f.reads, f.failing[f.p.Incarnation(f.self.Name)] = nil, cluster.ErrNotSent
	f.before[f.p.Node("a")] = func() { f.do(f.elect(cluster.OpCreate, 6, "x-0000000000000001-n_0000000009")) }
	if _, complete := f.collector.Collect(t.Context()); complete || len(f.reads) != 3 || len(f.before) != 0 {
		t.Errorf("reads went on after a failure: %t, %q", complete, f.reads) // though elected has changed
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f.log.Reset()
	f.failing[f.p.Elected()] = cluster.ErrNotSent
	if _, complete := f.collector.Collect(ctx); complete || f.log.Len() != 0 {
		t.Errorf("nothing waits for it any more: %t, %s", complete, f.log.String())
	}
}

// An elector that cannot read something gets no complete snapshot, and so does not decide. A single unreadable member is the
// exception: it must not block the others.
func TestElectorWithFailedReads(t *testing.T) {
	f := newElector(t)
	f.join("b")
	f.do(f.elect(cluster.OpCreate, 6, "x-0000000000000001-n_0000000009"), f.fence(cluster.FenceReady, "x-0000000000000001-n_0000000009"))
	for _, path := range []string{
		f.p.Elected(), f.p.Leader(), f.p.Current(), f.p.Election(), f.p.Policy(), f.p.Control(), f.p.Node("a"), f.p.Node("b"),
		f.p.Incarnation(f.self.Name),
	} {
		for _, err := range []error{cluster.ErrNotSent, context.Canceled, cluster.ErrNoAuth} {
			f.collector = NewCollector(f.collector.opt)
			f.failing = map[string]error{path: err}
			snap, complete := f.collector.Collect(t.Context())
			if before := []string{f.p.Leader(), f.p.Current()}; snap.Elector && slices.Contains(before, path) {
				t.Errorf("%s, %v: it became the elector without reading that", path, err)
			}
			if complete != (path == f.p.Node("b") && errors.Is(err, cluster.ErrNoAuth)) {
				t.Errorf("%s, %v: complete: %t: %+v", path, err, complete, snap)
			}
			f.failing = nil
			if snap, complete := f.collector.Collect(t.Context()); !complete || !snap.Elector || len(snap.Members) != 2 {
				t.Errorf("after %s, %v: %t, %+v", path, err, complete, snap)
			}
		}
	}
	f.failing = map[string]error{f.p.Node("b"): cluster.ErrNoAuth}
	f.set(f.p.Node("b"), "{}")
	f.collector.Collect(t.Context())
	f.do(f.fence(cluster.FenceReleased, "x-0000000000000001-n_0000000009"))
	f.collector.Collect(t.Context())
	snap := f.collects("a member that may not be read", "nodes/b")
	if m := snap.Members[1]; m.Node.Readable() || !m.Node.Exists || !errors.Is(m.Node.Err, cluster.ErrNoAuth) || !strings.Contains(m.Node.Err.Error(), f.p.Node("b")) {
		t.Errorf("%+v", m)
	}
	// Of two failures, the one that is not a consequence of the other is logged.
	f.collector = NewCollector(f.collector.opt)
	f.failing = map[string]error{f.p.Elected(): context.Canceled, f.p.Node("a"): cluster.ErrNotSent, f.p.Incarnation(f.self.Name): cluster.ErrUnknown}
	f.log.Reset()
	f.collector.Collect(t.Context())
	if text := f.log.String(); !strings.Contains(text, "cannot read znode "+f.p.Incarnation(f.self.Name)) {
		t.Errorf("the log is %s", text)
	}
}
