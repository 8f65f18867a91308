package cluster

import (
	"errors"
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
	departure := Departure{ID: "n0", Self: "n0-n_0", Incarnations: []string{"n0-n_0"}, Leaderships: []Leadership{{SlotState: snap.SlotState()}}}
	leave, _ := p.LeaveTx(departure)
	departure.Leaderships[0].Unproven = true
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
