package cluster

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"
)

// maxVersion is the highest version of a fence that these tests begin with: several cycles of cleanStep.
const maxVersion = 5 * cleanStep

// fenceAt is a fence that was read in a version.
func fenceAt(version int32, state FenceState) Stored[Fence] {
	return Stored[Fence]{Exists: true, Stat: Stat{Version: version}, Record: Fence{
		Term: 7, Node: "a", Incarnation: "a-n_1", State: state, LeaseWait: Duration(4 * time.Second),
		Failsafe: &Failsafe{Key: "k", Members: []FailsafeMember{{"b", "b-n_2", "k2"}}},
	}}
}

// led is what the candidate b reads while a leads.
func led(version int32) Snapshot {
	return Snapshot{
		Self: Incarnation{Name: "b-n_2", ID: "b"}, Leadership: true, Slot: "",
		Elected: Stored[Elected]{Exists: true, Record: Elected{Term: 8, Node: "b", Incarnation: "b-n_2"}},
		Fence:   fenceAt(version, FenceReady),
		Current: Stored[Current]{Exists: true, Stat: Stat{Version: 1}, Record: Current{Term: 7, Incarnation: "a-n_1", State: CurrentReady}},
	}
}

// leaves returns the version and the data that a transaction gives to a fence of a version. Each write must match the version before it.
func leaves(t *testing.T, p Paths, version int32, ops []Op) (after int32, data []byte) {
	t.Helper()
	after = version
	for _, op := range ops {
		switch {
		case op.Path != p.Leader() || op.Kind == OpCheck:
		case op.Kind == OpCreate:
			after, data = 0, op.Data
		case op.Kind != OpSet || op.Version != after:
			t.Errorf("%s over version %d", plain(op), after)
		default:
			after, data = after+1, op.Data
		}
	}
	return after, data
}

// writers returns every transaction that writes a fence of a version. The name says whether it is a release that is clean.
func writers(t *testing.T, p Paths, version int32) (clean, others map[string][]Op) {
	t.Helper()
	snap := led(version)
	snap.Self.Name = "a-n_1"
	h := HeldVersions{Self: "a-n_1", Elected: 3, Fence: version, Current: 1}
	released, held, unclean, revoked := snap.Fence.Record, snap.Fence.Record, snap.Fence.Record, snap.Fence.Record
	released.State, held.State, unclean.State, revoked.State = FenceReleased, FenceHeld, FenceUnclean, FenceRevoked
	unclean.Owed = Duration(time.Second)
	ready := snap.Fence.Record
	damaged := snap
	damaged.Fence = ReadFence(p.Leader(), []byte("x"), Stat{Version: version}, true)
	unelected := snap
	unelected.Elected = Stored[Elected]{}
	leave := func(owed time.Duration, unproven bool) []Op {
		f := snap.Fence
		f.Record.State = FenceHeld
		ops, err := Paths{Root: p.Root}.LeaveTx(Departure{ID: "a", Self: "a-n_1", Leaderships: []Leadership{{Slot: p.Slot, Fence: f, Owed: owed, Unproven: unproven}}})
		if err != nil {
			t.Fatal(err)
		}
		return ops
	}
	clean = map[string][]Op{"RELEASE": p.ReleaseTx(h, released), "FINAL": p.FinalTx(h, released), "LEAVE": leave(0, false)}
	others = map[string][]Op{
		"ACQUIRE":              p.AcquireTx(snap, held, Current{}),
		"READY":                p.ReadyTx(h, ready, Current{}),
		"SETM":                 p.SetMembersTx(h, ready),
		"VETO":                 p.VetoTx(snap, "b"),
		"an unclean RELEASE":   p.ReleaseTx(h, unclean),
		"an unclean FINAL":     p.FinalTx(h, unclean),
		"an unclean LEAVE":     leave(time.Second, false),
		"LEAVE without proof":  leave(0, true),
		"REVOKE":               p.RevokeTx(snap, revoked),
		"the end by a person":  p.ForceTx(snap, Forced{By: "ann"}, nil),
		"ELECT":                p.ElectTx(unelected, Elected{Term: 8}, &ready),
		"ELECT over RELEASED":  p.ElectTx(unelected, Elected{Term: 8}, &released),
		"ELECT over a damaged": p.ElectTx(damaged, Elected{Term: 8}, &revoked),
		"INIT":                 p.InitTx(fenceAt(version, FenceReleased), "ann", time.Unix(0, 0)),
	}
	return clean, others
}

// The version says that a term has ended clean, and nothing else does (S1): a candidate relies on it before it has read the fence.
func TestOnlyACleanReleaseLeavesItsVersion(t *testing.T) {
	for _, p := range []Paths{{Root: "/c"}, {Root: "/c", Slot: "3"}} {
		for version := range int32(maxVersion) {
			clean, others := writers(t, p, version)
			for name, ops := range clean {
				after, data := leaves(t, p, version, ops)
				if f := ReadFence(p.Leader(), data, Stat{Version: after}, true); !f.Readable() || f.Record.State != FenceReleased {
					t.Errorf("%s: %s over version %d leaves %s, %v", p.Leader(), name, version, data, f.Err)
				}
				if after%cleanStep != 0 || after != CleanVersion(version) || after < version+cleanDistance {
					t.Errorf("%s: %s leaves version %d after %d", p.Leader(), name, after, version)
				}
			}
			for name, ops := range others {
				after, data := leaves(t, p, version, ops)
				if after <= version || after%cleanStep == 0 {
					t.Errorf("%s: %s leaves version %d after %d", p.Leader(), name, after, version)
				}
				if f := ReadFence(p.Leader(), data, Stat{Version: after}, true); !f.Readable() {
					t.Errorf("%s: %s over version %d leaves %q: %v", p.Leader(), name, version, data, f.Err)
				}
			}
		}
	}
}

// A new leader znode has no version of a clean release either. That of a new slot is lower than any.
func TestANewFenceIsNoCleanRelease(t *testing.T) {
	p := Paths{Root: "/c"}
	for name, read := range map[string]Stored[Fence]{"deleted": {}, "never written": ReadFence(p.Leader(), nil, Stat{}, true)} {
		for term := range int64(2 * termCycle) {
			for writer, ops := range map[string][]Op{
				"ELECT": p.ElectTx(Snapshot{Fence: read}, Elected{Term: term + 1}, &Fence{Term: term, State: FenceRevoked}),
				"INIT":  p.InitTx(read, "ann", time.Unix(term, 0)),
			} {
				if after, _ := leaves(t, p, 0, ops); after%cleanStep == 0 {
					t.Errorf("%s of a leader that was %s leaves version %d in term %d", writer, name, after, term)
				}
			}
		}
	}
	next := Slots{SlotSize: SlotSize{Count: 1, PerNode: 1}}
	ops, _, err := p.SetSlotsTx(Stored[Slots]{Exists: true}, next, []SlotState{{Slot: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	if after, data := leaves(t, p.OfSlot(0), 0, ops); after != 0 || len(data) == 0 || CleanVersion(0) <= after {
		t.Errorf("a new slot has version %d, and %q", after, data)
	}
}

// What an ACQUIRE is made from before a release is what that leaves behind: the version, and nothing to wait for.
func TestAfterRelease(t *testing.T) {
	for _, p := range []Paths{{Root: "/c"}, {Root: "/c", Slot: "3"}} {
		for version := range int32(maxVersion) {
			snap := led(version)
			before := fmt.Sprintf("%+v", snap)
			after, ok := snap.AfterRelease()
			if !ok || after.Current.Exists || after.Fence.Record.State != FenceReleased || !reflect.DeepEqual(after.Elected, snap.Elected) || after.Self != snap.Self {
				t.Fatalf("%v: %+v", ok, after)
			}
			if wait, why := after.Owed(time.Minute); wait != 0 || len(after.Earlier(time.Minute)) > 0 {
				t.Errorf("it waits for %s: %s", wait, why)
			}
			if f := after.Fence.Record; f.Succession("c", "") != SuccessionFree || f.Owed != 0 || f.Earlier != nil || f.Term != 7 || f.Node != "a" {
				t.Errorf("%+v", f)
			}
			if fmt.Sprintf("%+v", snap) != before {
				t.Errorf("the snapshot has changed: %+v", snap)
			}
			clean, _ := writers(t, p, version)
			for name, ops := range clean {
				if left, _ := leaves(t, p, version, ops); left != after.Fence.Stat.Version {
					t.Errorf("%s over version %d leaves %d, not %d", name, version, left, after.Fence.Stat.Version)
				}
			}
			held := after.Fence.Record
			held.State = FenceHeld
			leaves(t, p, after.Fence.Stat.Version, p.AcquireTx(after, held, Current{}))
		}
	}
}

// Only a leader that is READY is about to release. Of any other fence a candidate knows only what it has read.
func TestAfterReleaseOfALeaderOnly(t *testing.T) {
	for name, change := range map[string]func(*Snapshot){
		"HELD":                     func(s *Snapshot) { s.Fence.Record.State = FenceHeld },
		"REVOKED":                  func(s *Snapshot) { s.Fence.Record.State = FenceRevoked },
		"UNCLEAN":                  func(s *Snapshot) { s.Fence.Record.State = FenceUnclean },
		"RELEASED":                 func(s *Snapshot) { s.Fence.Record.State = FenceReleased },
		"damaged":                  func(s *Snapshot) { s.Fence.Err = ErrInvalid },
		"no fence":                 func(s *Snapshot) { s.Fence.Exists = false },
		"no current":               func(s *Snapshot) { s.Current.Exists = false },
		"a damaged current":        func(s *Snapshot) { s.Current.Err = ErrInvalid },
		"current is PROGRESS":      func(s *Snapshot) { s.Current.Record.State = CurrentProgress },
		"current of another":       func(s *Snapshot) { s.Current.Record.Incarnation = "c-n_3" },
		"a fence of another":       func(s *Snapshot) { s.Fence.Record.Incarnation = "c-n_3" },
		"a fence of an older life": func(s *Snapshot) { s.Fence.Record.Incarnation = "a-n_0" },
	} {
		snap := led(9)
		change(&snap)
		if after, ok := snap.AfterRelease(); ok || after.Fence.Stat.Version != 9 || after.Current.Exists != snap.Current.Exists {
			t.Errorf("%s: %v %+v", name, ok, after)
		}
	}
}

// An elected that is new may have the version of the old one. So its ELECT leaves a version that no ACQUIRE matches which was made from
// what was read before, neither then nor after the next releases (S2).
func TestELECTOverAFencePassesEarlierACQUIREs(t *testing.T) {
	p := Paths{Root: "/c"}
	for read := range int32(maxVersion) {
		after, _ := led(read).AfterRelease()
		ahead := after.Fence.Stat.Version
		for version := read; version < maxVersion; version++ { // others may have written since
			snap := led(version)
			snap.Elected = Stored[Elected]{}
			now, _ := leaves(t, p, version, p.ElectTx(snap, Elected{Term: 8}, &snap.Fence.Record))
			if now <= ahead {
				t.Errorf("an ACQUIRE that was made from version %d matches version %d, an ELECT after it leaves %d", read, ahead, now)
			}
		}
	}
}

// A few writes by hand, or by a daemon that does not know of clean versions, are not taken for a release.
func TestAFewWritesAreNoCleanRelease(t *testing.T) {
	for version := range int32(maxVersion) {
		if got := CleanVersion(version); got < version+cleanDistance || got > version+cleanDistance+cleanStep {
			t.Errorf("version %d after %d", got, version)
		}
	}
}

// Only the last write of a transaction is ever read, so the others have no content, and all else of it stays as it was.
func TestLastFenceWrite(t *testing.T) {
	p := Paths{Root: "/c"}
	h := HeldVersions{Self: "a-n_1", Fence: 9, Current: 1}
	ops := p.ReleaseTx(h, Fence{Term: 7, State: FenceReleased})
	last := p.LastFenceWrite(ops)
	if got, want := Brief(ops, plain), []string{"check /c/election/a-n_1@-1", "set /c/leader@9..15", "delete /c/leader/current@1"}; !slices.Equal(got, want) || last != 7 {
		t.Errorf("%q, the last is %d", got, last)
	}
	for i, op := range ops[1:last] {
		if len(op.Data) > 0 {
			t.Errorf("write %d has content: %s", i, op.Data)
		}
	}
	ready := p.ReadyTx(HeldVersions{Self: "a-n_1", Elected: 3, Fence: 7, Current: 1}, Fence{Term: 7, State: FenceReady}, Current{})
	if last := p.LastFenceWrite(ready); last != len(ready)-1 || ready[ResultFence].Version != 7 || ready[last].Version != 8 || string(ready[last].Data) != string(ready[ResultFence].Data) {
		t.Errorf("%q, the last is %d", Brief(ready, plain), last)
	}
	for _, none := range [][]Op{nil, p.RenewTx(h), {{Kind: OpCreate, Path: p.Leader()}}, p.OfSlot(1).ReleaseTx(h, Fence{})} {
		if got := p.LastFenceWrite(none); got != -1 {
			t.Errorf("%q: %d", Brief(none, plain), got)
		}
	}
}
