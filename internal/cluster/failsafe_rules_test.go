package cluster

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestWhichNodesCanPromise(t *testing.T) {
	for want, nodes := range map[bool][]*FailsafeNode{
		true:  {{Key: "k", Address: "a:7"}},
		false: {nil, {}, {Key: "k"}, {Address: "a:7"}},
	} {
		for _, n := range nodes {
			if n.CanPromise() != want {
				t.Errorf("%+v: %t", n, !want)
			}
		}
	}
}

// One member that must promise is enough for a version that older daemons leave alone (S1).
func TestTheVersionOfAFenceWithOnePromise(t *testing.T) {
	f := boundFence()
	f.Failsafe.Members = f.Failsafe.Members[:1]
	if version, newest := f.formats(); version != fenceVersion || newest != fenceVersion {
		t.Errorf("version %d of %d", version, newest)
	}
}

// Neither the id nor the key alone makes a right (S1).
func TestARightNeedsTheIDAndTheKey(t *testing.T) {
	f := boundFence()
	for _, c := range []struct{ id, key string }{{"n9", "k0"}, {"n9", "k1"}, {"n0", "k1"}, {"n1", "k0"}, {"n1", "k2"}} {
		if got := f.Succession(c.id, c.key); got != SuccessionBarred {
			t.Errorf("%s with %s: %d", c.id, c.key, got)
		}
	}
}

func TestWhomAFenceNames(t *testing.T) {
	f := boundFence()
	for id, want := range map[string]bool{"n0": true, "n1": true, "n2": true, "n3": false, "": false} {
		if f.Names(id) != want {
			t.Errorf("%q: %t", id, !want)
		}
	}
	f.Failsafe = nil
	if f.Names("n0") || f.CapWait() != 0 {
		t.Error("a fence without promises names the holder, or has a limit")
	}
}

func TestLimitsOfFailsafeMode(t *testing.T) {
	for limit, valid := range map[Duration]bool{-1: false, 0: true, 1: true, Duration(MaxFailsafe): true, Duration(MaxFailsafe) + 1: false} {
		if err := (&Failsafe{Max: limit}).validate(); (err == nil) != valid {
			t.Errorf("%s: %v", limit, err)
		}
	}
	if got := FailsafeGrace(3 * time.Second); got != time.Second {
		t.Errorf("grace %s", got)
	}
}

// A veto leaves the rest of the fence as it was, and says whose it is.
func TestAVetoIsRecorded(t *testing.T) {
	p, snap := Paths{Root: "/c"}, Snapshot{Fence: Stored[Fence]{Exists: true, Record: boundFence()}}
	got := ReadFence(p.Leader(), p.VetoTx(snap, "n2")[1].Data, Stat{Version: 1}, true).Record
	if got.Failsafe == nil || got.Failsafe.Veto != "n2" || len(got.Failsafe.Members) != 2 || got.Failsafe.Key != "k0" || got.State != FenceReady || got.Term != 7 {
		t.Errorf("%+v", got)
	}
	if snap.Fence.Record.Failsafe.Veto != "" {
		t.Error("changed in place")
	}
}

func TestKeysAreRotated(t *testing.T) {
	wall := time.Unix(1_800_000_000, 0).UTC()
	first := FailsafeKeys{}.Rotated("a", wall)
	second := first.Rotated("b", wall.Add(1))
	third := second.Rotated("c", wall.Add(2))
	for want, k := range map[int]FailsafeKeys{1: first, 2: second} {
		if len(k.Keys) != want || len(k.Secrets()) != want || k.validate(Stat{}) != nil {
			t.Errorf("%d keys, want %d: %v", len(k.Keys), want, k.validate(Stat{}))
		}
	}
	s := third.Secrets()
	if len(s) != 2 || third.By != "c" || !third.Keys[0].Time.Equal(wall.Add(2)) || !bytes.Equal(s[1], second.Secrets()[0]) || bytes.Equal(s[0], s[1]) || bytes.Equal(s[0], make([]byte, 32)) || len(s[0]) != 32 {
		t.Errorf("%+v", third)
	}
	if len(second.Keys) != 2 || !bytes.Equal(second.Secrets()[1], first.Secrets()[0]) {
		t.Error("changed in place")
	}
	for name, k := range map[string]FailsafeKeys{
		"none": {}, "three": {Keys: append(slices.Clone(third.Keys), first.Keys...)}, "a short one": {Keys: []FailsafeKey{{Secret: make([]byte, 31)}}},
	} {
		if k.validate(Stat{}) == nil {
			t.Errorf("%s: valid", name)
		}
	}
}

func TestActsOfFencing(t *testing.T) {
	wall := time.Unix(1_800_000_000, 0).UTC()
	var f Fencings
	act := FencingAct{Node: "n1", By: "ann", Time: wall}
	for _, a := range []FencingAct{act, {Node: "n2", By: "ann", Time: wall}, {Node: "n1", By: "bob", Time: wall}, {Node: "n1", By: "ann", Time: wall.Add(1)}} {
		f.Put(a)
	}
	act.Result = FencingSucceeded
	f.Put(act)
	if len(f.Acts) != 4 || f.Acts[0] != act || f.Acts[1].Result != "" || f.Acts[2].Result != "" || f.Acts[3].Result != "" {
		t.Errorf("%+v", f.Acts)
	}
	for i := range MaxFencings {
		f.Put(FencingAct{Node: fmt.Sprint(i), Time: wall})
	}
	if len(f.Acts) != MaxFencings || f.Acts[0].Node != "0" {
		t.Errorf("%d, from %+v", len(f.Acts), f.Acts[0])
	}
}

// A fence that replaces a lost one says where the last holder ran, and for whom else a successor waits.
func TestAReplacementFenceKeepsForWhomToWait(t *testing.T) {
	m := LastKnown{Term: 12, Fence: Fence{
		Term: 12, Node: "a", Host: "h1", API: "a:80", State: FenceReady, LeaseWait: Duration(4 * time.Second),
		Earlier: []EarlierHolder{{Node: "z", Term: 11, Wait: Duration(2 * time.Second)}},
	}}
	f := m.ReplacementFence(&Snapshot{}, 13, time.Unix(0, 0))
	if f.Host != "h1" || f.API != "a:80" {
		t.Errorf("%+v", f)
	}
	known := slices.ContainsFunc(f.Earlier, func(h EarlierHolder) bool { return h.Node == "z" })
	unknown := slices.ContainsFunc(f.Earlier, func(h EarlierHolder) bool { return h.Node == "" && h.Wait == Duration(4*time.Second) })
	if !known || !unknown {
		t.Errorf("%+v", f.Earlier)
	}
}

func TestWhomToSwitchOffInAStuckGroup(t *testing.T) {
	f := boundFence()
	f.Earlier = []EarlierHolder{{Node: "n1"}, {Node: ""}, {Node: "n7"}, {Node: "n0"}}
	if got := f.FailsafeNodes(); !slices.Equal(got, []string{"n0", "n1", "n2", "n7"}) {
		t.Error(got)
	}
	f.State, f.Led = FenceHeld, true
	if got := f.forced(Forced{By: "ann"}); !got.Led {
		t.Errorf("%+v", got)
	}
	f.Led = false
	if got := f.forced(Forced{By: "ann"}); got.Led {
		t.Errorf("%+v", got)
	}
}
