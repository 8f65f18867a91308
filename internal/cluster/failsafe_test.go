package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func boundFence() Fence {
	return Fence{
		Term: 7, Node: "n0", Incarnation: "n0-n_0", State: FenceReady, Kill: Duration(time.Second),
		Failsafe: &Failsafe{Key: "k0", Members: []FailsafeMember{{"n1", "n1-n_1", "k1"}, {"n2", "n2-n_2", "k2"}}},
	}
}

// A daemon that does not know what promises are must not acquire over such a fence.
func TestAFenceWithPromisesHasAVersionOfItsOwn(t *testing.T) {
	f := boundFence()
	if data := string(Encode(&f)); !strings.Contains(data, `"v":2`) {
		t.Error(data)
	}
	read := ReadStored[Fence]("/g/leader", Encode(&f), Stat{}, true)
	if !read.Readable() || read.Record.Failsafe.Members[1].Incarnation != "n2-n_2" {
		t.Errorf("%+v", read)
	}
	f.Failsafe.Members = f.Failsafe.Members[:1] // one that must promise is enough (S1)
	if version, newest := f.formats(); version != fenceVersion || newest != fenceVersion {
		t.Errorf("version %d of %d", version, newest)
	}
	for _, without := range []*Failsafe{nil, {Key: "k0"}} {
		f := boundFence()
		f.Failsafe = without
		if data := string(Encode(&f)); !strings.Contains(data, `"v":1`) {
			t.Error(data)
		}
	}
	var newer *NewerVersionError
	if err := ReadStored[Fence]("/g/leader", []byte(`{"v":3}`), Stat{}, true).Newer(); !errors.As(err, &newer) || newer.Known != 2 {
		t.Errorf("version 3: %v", err)
	}
	if err := ReadStored[Elected]("/g/leader/elected", []byte(`{"v":2}`), Stat{}, true).Newer(); err == nil {
		t.Error("a decision of version 2 is read")
	}
	if s := ReadStored[Fence]("/g/leader", []byte(`{"v":2,"failsafe":{"max":"999999h"}}`), Stat{}, true); s.Err == nil {
		t.Error("a limit that would overflow")
	}
}

// Neither the id nor the key alone makes a right (S1).
func TestSuccession(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*Fence)
		id, key string
		want    Succession
	}{
		"a member":                       {nil, "n1", "k1", SuccessionMember},
		"another host with its id":       {nil, "n1", "k9", SuccessionBarred},
		"a host without a key":           {func(f *Fence) { f.Failsafe.Members[0].Key = "" }, "n1", "", SuccessionBarred},
		"the holder's node":              {nil, "n0", "k0", SuccessionOwner},
		"another host with its id, too":  {nil, "n0", "k9", SuccessionBarred},
		"an outsider":                    {nil, "n3", "k3", SuccessionBarred},
		"one with the holder's key":      {nil, "n9", "k0", SuccessionBarred},
		"one with a member's key":        {nil, "n9", "k1", SuccessionBarred},
		"the holder, a member's key":     {nil, "n0", "k1", SuccessionBarred},
		"a member, the holder's key":     {nil, "n1", "k0", SuccessionBarred},
		"a member, another's key":        {nil, "n1", "k2", SuccessionBarred},
		"released":                       {func(f *Fence) { f.State = FenceReleased }, "n3", "k3", SuccessionFree},
		"unclean, as no RELEASE leaves":  {func(f *Fence) { f.State = FenceUnclean }, "n3", "k3", SuccessionBarred},
		"revoked":                        {func(f *Fence) { f.State = FenceRevoked }, "n3", "k3", SuccessionBarred},
		"never promised":                 {func(f *Fence) { f.Failsafe = nil }, "n3", "", SuccessionFree},
		"nobody has to promise":          {func(f *Fence) { f.Failsafe.Members = nil }, "n3", "", SuccessionFree},
		"vetoed by a member":             {func(f *Fence) { f.Failsafe.Veto = "n2" }, "n3", "", SuccessionFree},
		"vetoed by the holder's node":    {func(f *Fence) { f.Failsafe.Veto = "n0" }, "n3", "", SuccessionFree},
		"vetoed by somebody else":        {func(f *Fence) { f.Failsafe.Veto = "n3" }, "n3", "", SuccessionBarred},
		"vetoed, by a forged empty name": {func(f *Fence) { f.Node, f.Failsafe.Veto = "", "" }, "n3", "", SuccessionBarred},
	} {
		f := boundFence()
		if c.change != nil {
			c.change(&f)
		}
		if got := f.Succession(c.id, c.key); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
		if (f.CheckSuccession() == nil) != (f.Succession("n9", "") == SuccessionFree) {
			t.Errorf("%s: %v", name, f.CheckSuccession())
		}
	}
}

func TestCapWait(t *testing.T) {
	f := boundFence()
	if f.CapWait() != 0 {
		t.Error("a limit although there is none")
	}
	f.Failsafe.Max = Duration(time.Minute)
	if got := f.CapWait(); got < 61*time.Second*102/100 || got > 61*time.Second*103/100 {
		t.Errorf("%s", got)
	}
}

// ACQUIRE and whatever proves that the work is dead leave no promises behind; REVOKE does.
func TestWhichTransactionsKeepThePromises(t *testing.T) {
	p, snap, f := Paths{Root: "/c"}, Snapshot{Self: Incarnation{Name: "n0-n_0"}, Current: Stored[Current]{Exists: true}}, boundFence()
	snap.Fence = Stored[Fence]{Exists: true, Record: f}
	departure := Departure{ID: "n0", Self: "n0-n_0", Incarnations: []string{"n0-n_0"}, Slots: []DepartingSlot{{SlotState: snap.SlotState()}}}
	leave, _ := p.LeaveTx(departure)
	departure.Slots[0].Unproven = true
	unproven, _ := p.LeaveTx(departure)
	for name, c := range map[string]struct {
		ops  []Op
		keep bool
	}{
		"ACQUIRE":                {p.AcquireTx(snap, f, Current{}), false},
		"RELEASE":                {p.ReleaseTx(HeldVersions{}, f), false},
		"FINAL":                  {p.FinalTx(HeldVersions{}, f), false},
		"LEAVE":                  {leave, false},
		"LEAVE without a proof":  {unproven, true},
		"REVOKE":                 {p.RevokeTx(snap, f), true},
		"READY":                  {p.ReadyTx(HeldVersions{}, f, Current{}), true},
		"SETM":                   {p.SetMembersTx(HeldVersions{}, f), true},
		"VETO":                   {p.VetoTx(snap, "n1"), true},
		"a fence that is lost":   {fenceWrite(p, &LastKnown{Fence: f}, Snapshot{}), true},
		"a decision that is":     {fenceWrite(p, &LastKnown{}, snap), true},
		"a fence of no promises": {fenceWrite(p, &LastKnown{}, Snapshot{}), false},
	} {
		kept := false
		for _, op := range c.ops {
			kept = kept || op.Path == p.Leader() && strings.Contains(string(op.Data), `"n2-n_2"`)
		}
		if kept != c.keep {
			t.Errorf("%s: kept %t, want %t", name, kept, c.keep)
		}
	}
	if snap.Fence.Record.Failsafe.Veto != "" || f.Failsafe == nil || len(f.Failsafe.Members) != 2 {
		t.Errorf("a record was changed in place: %+v", f.Failsafe)
	}
}

func fenceWrite(p Paths, m *LastKnown, s Snapshot) []Op {
	f := m.ReplacementFence(&s, 9, time.Unix(0, 0))
	return p.writeFence(s.Fence, *f, 9)
}

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
