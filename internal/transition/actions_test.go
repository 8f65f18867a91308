package transition

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// exact drives a machine and compares every action in full.
type exact struct {
	*script
	snap cluster.Snapshot // what is read
}

func newExact(t *testing.T) *exact {
	e := &exact{script: newScript(t)}
	opt := e.m.opt
	opt.Self, opt.Host, opt.API = cluster.Incarnation{Name: "me-0000000000000001-n_0000000004", ID: "me"}, "host", "host:1"
	opt.Wall = func() time.Time { return time.Unix(0, 0).Add(e.now) }
	e.m = New(opt)
	e.snap = cluster.Snapshot{
		Self: opt.Self, Session: session, HolderRead: true,
		Elected: cluster.Stored[cluster.Elected]{Exists: true, Stat: cluster.Stat{Version: 3},
			Record: cluster.Elected{Node: "me", Incarnation: opt.Self.Name, Term: 7, Reason: "the best", Cause: cluster.CauseFailure}},
		Fence: cluster.Stored[cluster.Fence]{Exists: true, Stat: cluster.Stat{Version: 10},
			Record: cluster.Fence{Term: 6, Node: "old", Incarnation: "old", State: cluster.FenceRevoked, LeaseWait: cluster.Duration(5 * time.Second)}},
	}
	e.snap.Fence.Record.Unknown = map[string]jsonText{"kept": jsonText(`"x"`)}
	return e
}

// step applies an event and compares the actions, except what is entrusted, which other tests check.
func (e *exact) step(ev Event, want ...Action) {
	e.t.Helper()
	got := slices.DeleteFunc(e.m.Step(e.now, ev), func(a Action) bool { _, is := a.(Entrust); return is })
	if len(got) != len(want) {
		e.t.Fatalf("on %T%+v:\n got %+v\nwant %+v", ev, ev, got, want)
	}
	for i := range got {
		if !reflect.DeepEqual(got[i], want[i]) {
			e.t.Errorf("on %T, action %d:\n got %+v\nwant %+v", ev, i, got[i], want[i])
		}
	}
}

// read applies the current snapshot.
func (e *exact) read(want ...Action) {
	e.t.Helper()
	e.snap.At = e.now
	e.step(Saw{Snapshot: e.snap}, want...)
}

func (e *exact) send(tx Tx, deadline time.Duration, ops []cluster.Op) Send {
	return Send{Tx: tx, Ops: ops, Deadline: deadline}
}

func applied(tx Tx, fence, current int32) TxDone {
	return TxDone{Tx: tx, Results: []cluster.Result{{}, {}, {Version: fence}, {Version: current}}}
}

// records returns the records that the takeover of term 7 writes now.
func (e *exact) records() (cluster.Fence, cluster.Current) {
	opt, b := e.m.opt, e.b
	wall := opt.Wall()
	return cluster.Fence{
			Header: e.snap.Fence.Record.Header, Term: 7, Node: "me", Site: "dc1", Host: "host", API: "host:1", Incarnation: opt.Self.Name, State: cluster.FenceHeld, Session: session,
			Owed: cluster.Duration(5 * time.Second), Earlier: []cluster.EarlierHolder{{Node: "old", Term: 6, Wait: cluster.Duration(5 * time.Second)}}, LeaseWait: cluster.Duration(b.LeaseWait), Kill: cluster.Duration(b.Kill),
			RevokeTimeout: cluster.Duration(b.RevokeTimeout()), Wait: "5s because the lease of old, which did not release, may still be running", Time: wall,
		}, cluster.Current{
			Term: 7, Node: "me", Site: "dc1", Incarnation: opt.Self.Name, State: cluster.CurrentProgress, API: "host:1",
			Cause: cluster.CauseFailure, Reason: "the best", PreviousLeader: "old", PreviousClean: e.snap.Fence.Record.State == cluster.FenceReleased, Time: wall,
		}
}

type jsonText = json.RawMessage

// TestEveryActionOfATerm covers a term from the election to the release, with all records, versions, deadlines and phases.
func TestEveryActionOfATerm(t *testing.T) {
	e := newExact(t)
	paths, b := e.m.opt.Paths, e.b
	began := e.now
	fence, current := e.records()
	e.read(e.send(TxAcquire, began+b.Lease, paths.AcquireTx(e.snap, fence, current)))

	e.after(100 * time.Millisecond)
	holding, granted := cluster.HeldVersions{Self: e.m.opt.Self.Name, Elected: 3, Fence: 11}, began
	renew := func() Renew { // the next one
		return Renew{Term: 7, Held: holding, Ops: paths.RenewTx(holding), Due: granted + b.Renew, Deadline: granted + b.Lease}
	}
	e.step(applied(TxAcquire, 11, 0), Reread{}, Lease{Deadline: began + b.Lease},
		Announce{Phase: LeaseWait, Term: 7, Reason: "the best; waiting " + fence.Wait}, renew())
	acquired := e.now
	renewed := func() {
		t.Helper()
		done := RenewDone{Term: 7, Held: holding, Sent: e.now}
		granted = e.now
		e.after(10 * time.Millisecond)
		e.step(done, Lease{Deadline: granted + b.Lease}, renew())
	}
	for granted+b.Renew < acquired+5*time.Second {
		e.now = granted + b.Renew
		renewed()
	}
	e.now = acquired + 5*time.Second - 1
	if wake := e.m.Wake(); wake != e.now+1 {
		t.Errorf("wakes at %s, the wait is over at %s", wake, e.now+1)
	}
	e.step(Tick{})
	e.now++
	e.step(Tick{}, RunPreStart{Term: 7})
	e.step(HookDone{}, StartChild{Term: 7})
	e.step(ChildStarted{})
	fence.Owed, fence.Earlier, fence.State, current.State = 0, nil, cluster.FenceReady, cluster.CurrentReady
	fence.Time = e.m.opt.Wall()
	current.Time = fence.Time
	e.step(ChildReady{}, Renew{}, e.send(TxReady, granted+b.Lease, paths.ReadyTx(holding, fence, current)))
	holding.Fence, holding.Current = 12, 1
	e.step(applied(TxReady, 12, 1), Reread{}, Announce{Phase: Leading, Term: 7, Reason: "the takeover is complete"}, renew())
	e.now = granted + b.Renew
	renewed()

	e.step(ChildDead{Status: "exited"}, Note{Text: "the child exited: restarting it in 1s (1 of 2 within 1m0s)"})
	e.now += time.Second
	e.step(Tick{}, StartChild{Term: 7})
	renewed()
	e.step(ChildStarted{})

	e.step(Quit{Reason: "stopped by systemd"}, StopTask{Grace: b.Stop})
	e.step(ChildDead{}, RunPostStop{Term: 7})
	fence.State, fence.Reason, fence.Requested, fence.Led = cluster.FenceReleased, "stopped by systemd", true, true
	fence.Stopping = fence.Incarnation
	fence.Idle = &cluster.Gap{}
	fence.Time = e.m.opt.Wall()
	e.step(HookDone{}, Renew{}, e.send(TxRelease, e.now+b.Lease, paths.ReleaseTx(holding, fence)))
	e.step(applied(TxRelease, 13, 0), Reread{}, Lease{}, Announce{Phase: Standby, Term: 7, Reason: "stopped by systemd"},
		End{Reason: "stopped by systemd"})
	e.step(Tick{})
}

// Without a lease wait none is announced.
func TestATakeoverWithoutALeaseWaitIsAnnouncedAsPreparing(t *testing.T) {
	e := newExact(t)
	e.snap.Fence.Record.State = cluster.FenceReleased
	fence, current := e.records()
	fence.Owed, fence.Earlier, fence.Wait = 0, nil, ""
	e.read(e.send(TxAcquire, e.now+e.b.Lease, e.m.opt.Paths.AcquireTx(e.snap, fence, current)))
	lease := Lease{Deadline: e.now + e.b.Lease}
	holding := cluster.HeldVersions{Self: e.m.opt.Self.Name, Elected: 3, Fence: 11}
	e.step(applied(TxAcquire, 11, 0), Reread{}, lease, Announce{Phase: Preparing, Term: 7, Reason: "the best"}, RunPreStart{Term: 7},
		Renew{Term: 7, Held: holding, Ops: e.m.opt.Paths.RenewTx(holding), Due: e.now + e.b.Renew, Deadline: lease.Deadline})
}

// An ACQUIRE that took effect too late is released with its own term, lease wait and versions, and not renewed.
func TestALeftoverAcquireIsReleasedUnchanged(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*cluster.Snapshot)
		want   cluster.Fence
	}{
		"as it was": {func(*cluster.Snapshot) {}, cluster.Fence{Term: 7, Owed: cluster.Duration(5 * time.Second), Kill: 1, State: cluster.FenceUnclean}},
		"the fence is damaged": {func(s *cluster.Snapshot) {
			s.Fence.Record, s.Fence.Err = cluster.Fence{}, cluster.ErrInvalid
		}, cluster.Fence{Term: 7, State: cluster.FenceReleased}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newExact(t)
			e.snap.Fence.Record = cluster.Fence{Term: 7, Incarnation: e.m.opt.Self.Name, State: cluster.FenceHeld, Owed: cluster.Duration(5 * time.Second), Kill: 1}
			e.snap.Current = cluster.Stored[cluster.Current]{Exists: true, Stat: cluster.Stat{Owner: session, Version: 5}, Record: cluster.Current{Term: 7}}
			c.change(&e.snap)
			f := c.want
			f.Node, f.Site, f.Incarnation, f.Reason, f.Requested, f.Time = "me", "dc1", e.m.opt.Self.Name, "an ACQUIRE took effect too late", true, e.m.opt.Wall()
			holding := cluster.HeldVersions{Self: e.m.opt.Self.Name, Fence: 10, Current: 5}
			candidate := e.snap.Elected
			e.snap.Elected.Record = cluster.Elected{Node: "other", Incarnation: "other", Term: 8}
			e.read(e.send(TxRelease, e.now+e.b.Lease, e.m.opt.Paths.ReleaseTx(holding, f)))
			e.step(applied(TxRelease, 11, 0), Reread{}, Lease{}, Announce{Phase: Standby, Term: 7, Reason: f.Reason})
			// The term was acquired, if only briefly: it is not used again, even if the fence forgets it.
			e.after(time.Second)
			e.snap.Elected = candidate
			e.snap.Current = cluster.Stored[cluster.Current]{}
			e.snap.Fence = cluster.Stored[cluster.Fence]{Exists: true, Stat: cluster.Stat{Version: 12}, Record: cluster.Fence{Term: 6, State: cluster.FenceRevoked}}
			e.read()
		})
	}
}
