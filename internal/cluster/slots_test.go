package cluster_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/store/storetest"
)

func TestPathsOfASlot(t *testing.T) {
	p := cluster.Paths{Root: "/a/b"}.OfSlot(3)
	if p.Slot != "3" || p.Slots() != "/a/b/slots" {
		t.Errorf("%+v %s", p, p.Slots())
	}
	got := []string{p.Leader(), p.Elected(), p.Current(), p.History(), p.Node("n"), p.Incarnation("n-n_1"), p.Policy(), p.Control()}
	want := []string{
		"/a/b/slots/3", "/a/b/slots/3/elected", "/a/b/slots/3/current", "/a/b/slots/3/history",
		"/a/b/nodes/n", "/a/b/election/n-n_1", "/a/b/policy", "/a/b/control",
	}
	if !slices.Equal(got, want) {
		t.Errorf("paths %v, want %v", got, want)
	}
	if got, want := p.Skeleton(), []string{"/a", "/a/b", "/a/b/nodes", "/a/b/election", "/a/b/slots", "/a/b/slots/3"}; !slices.Equal(got, want) {
		t.Errorf("skeleton %v, want %v", got, want)
	}
	want = []string{"/a/b", "/a/b/nodes", "/a/b/election", "/a/b/slots", "/a/b/slots/3", "/a/b/slots/3/elected", "/a/b/policy", "/a/b/control", "/a/b/roster", "/a/b/slots/3/history", "/a/b/slots/3/heir"}
	if got := p.Persistent(); !slices.Equal(got, want) {
		t.Errorf("persistent znodes %v, want %v", got, want)
	}
}

func TestSlotNumber(t *testing.T) {
	for text, want := range map[string]int{"0": 0, "7": 7, "127": 127, "128": -1, "-1": -1, "": -1, "03": -1, "+1": -1, "x": -1} {
		if got := cluster.SlotNumber(text); got != want {
			t.Errorf("%q is slot %d, want %d", text, got, want)
		}
	}
}

func TestSlotsThatAreInvalid(t *testing.T) {
	read := func(text string, version int32) cluster.Stored[cluster.Slots] {
		return cluster.ReadSlots("/c/slots", []byte(text), cluster.Stat{Version: version}, true)
	}
	for _, text := range []string{
		`{"v":1,"count":1,"per_node":1,"epoch":1,"by":"n1"}`,
		`{"v":1,"count":128,"per_node":128,"epoch":1795375000,"by":"n1"}`,
	} {
		if s := read(text, 3); !s.Readable() {
			t.Errorf("%s: %v", text, s.Err)
		}
	}
	for text, want := range map[string]string{
		`{"v":1,"count":0,"per_node":1,"epoch":1}`:                   "count is 0",
		`{"v":1,"count":129,"per_node":1,"epoch":1}`:                 "count is 129",
		`{"v":1,"count":4,"per_node":0,"epoch":1}`:                   "per_node is 0",
		`{"v":1,"count":4,"per_node":5,"epoch":1}`:                   "per_node is 5",
		`{"v":1,"count":4,"per_node":4}`:                             "epoch is missing",
		`{"v":1,"count":4,"per_node":4,"epoch":-1}`:                  "term -1",
		`{"v":1,"count":4,"per_node":4,"epoch":9223372036854775807}`: "is not between",
		`{"v":1,"count":4,"per_node":"many","epoch":1}`:              "not a valid record",
		``: "is empty",
	} {
		if s := read(text, 3); s.Err == nil || !strings.Contains(s.Err.Error(), want) || !strings.Contains(s.Err.Error(), "/c/slots") {
			t.Errorf("%s: %v, want %q", text, s.Err, want)
		}
	}
	if s := read("", 0); !errors.Is(s.Err, cluster.ErrNoSlots) || !s.Exists {
		t.Errorf("a znode that was never written: %+v", s)
	}
	var newer *cluster.NewerVersionError
	if s := read(`{"v":2}`, 1); !errors.As(s.Newer(), &newer) {
		t.Errorf("a newer record: %v", s.Err)
	}
	if s := (cluster.Snapshot{Slots: read(`{"v":2}`, 1)}); s.Newer() == nil {
		t.Error("a snapshot with newer slots")
	}
}

func TestChangedSlots(t *testing.T) {
	wall := time.Unix(1000, 0).UTC()
	first := cluster.NewSlots(cluster.SlotSize{Count: 8, PerNode: 8}, "n1", wall)
	if first.Epoch != 1000 || first.String() != "8 slots" {
		t.Errorf("%+v", first)
	}
	for at, want := range map[int64]int64{900: 1001, 2000: 1001 + 16*64} {
		next := first.Changed(cluster.SlotSize{Count: 4, PerNode: 2}, "ann@h", "less work", time.Unix(at, 0).UTC())
		again := cluster.ReadSlots("/c/slots", cluster.Encode(&next), cluster.Stat{Time: wall}, true)
		if again.Err != nil || !reflect.DeepEqual(again.Record, next) || next.Epoch != want || next.String() != "4 slots, at most 2 per node" {
			t.Errorf("%v\n%+v\n%+v", again.Err, again.Record, next)
		}
	}
	if got := (cluster.SlotSize{Count: 1, PerNode: 1}).String(); got != "1 slot" {
		t.Error(got)
	}
}

// in returns the operations in words.
func in(ops []cluster.Op) string {
	return strings.Join(cluster.Brief(ops, func(op cluster.Op) string {
		text := fmt.Sprintf("%s %s@%d", op.Kind, strings.TrimPrefix(op.Path, "/c/"), op.Version)
		if op.Kind == cluster.OpCreate && len(op.Data) == 0 {
			text += " empty"
		}
		return text
	}), ", ")
}

func TestTransactionsOfASlot(t *testing.T) {
	p := cluster.Paths{Root: "/c"}.OfSlot(3)
	s := cluster.Snapshot{Self: cluster.Incarnation{Name: "n1-n_1"}, Slot: "3"}
	s.Slots = cluster.Stored[cluster.Slots]{Exists: true, Stat: cluster.Stat{Version: 6}}
	s.Elected.Exists, s.Elected.Stat.Version = true, 4
	s.Fence, s.Current.Exists, s.Current.Stat.Version = fenceOf(cluster.Fence{}), true, 1
	s.Fence.Stat.Version = 5
	others := []cluster.SlotState{{Slot: "0"}, {Slot: "1", Fence: fenceOf(cluster.Fence{})}, {Slot: "2"}}
	others[2].Elected.Exists, others[2].Elected.Stat.Version = true, 9
	held := cluster.HeldVersions{Self: "n1-n_1", Elected: 4, Fence: 5, Current: 1}
	for want, ops := range map[string][]cluster.Op{
		"check election/n1-n_1@-1, check election/n2-n_2@-1, check slots/3@5, set slots/3/elected@4, " +
			"create slots/0@0 empty, delete slots/0@0, create slots/1/elected@0 empty, delete slots/1/elected@0, check slots/2/elected@9, check slots@6": p.ElectTx(s, cluster.Elected{Incarnation: "n2-n_2"}, nil, others...),
		"check election/n1-n_1@-1, check slots/3/elected@4, set slots/3@5, create slots/3/current@0, check slots@6": p.AcquireTx(s, cluster.Fence{}, cluster.Current{}),
		"check election/n1-n_1@-1, set slots/3@5, delete slots/3/current@1":                                         p.FinalTx(held, cluster.Fence{}),
		"delete election/n1-n_1@-1, set leader@5, delete leader/current@1":                                          group.FinalTx(held, cluster.Fence{}),
		"check election/n1-n_1@-1, check slots/3/elected@4, set slots/3@5, delete slots/3/current@1":                p.RevokeTx(s, cluster.Fence{}),
		"check slots@6, create nodes/n1@0, create election/n1-0000000000000001-n_@0 empty":                          p.RegisterTx(cluster.Node{ID: "n1", Instance: cluster.NewInstance(1)}, p.CheckSlots(s.Slots)...),
		"set slots@6":                                p.SlotsTx("", s.Slots, cluster.Slots{}),
		"create slots@0 empty, set slots@0":          p.SlotsTx("", cluster.Stored[cluster.Slots]{}, cluster.Slots{}),
		"check election/n1-n_1@-1, set slots@6" + "": p.SlotsTx("n1-n_1", s.Slots, cluster.Slots{}),
		"check election/n1-n_1@-1, check leader/elected@4, check leader@5, check leader/current@1": group.RenewTx(held),
	} {
		if got := in(ops); got != want {
			t.Errorf("\n got %s\nwant %s", got, want)
		}
	}
}

// setting returns what SETSLOTS is made from: three slots, of which the first two were released by their leaders.
func setting() (read cluster.Stored[cluster.Slots], table []cluster.SlotState) {
	released := func(slot string) cluster.SlotState {
		return cluster.SlotState{Slot: slot, Fence: fenceOf(cluster.Fence{Term: 7, Node: "n" + slot, State: cluster.FenceReleased, LeaseWait: cluster.Duration(4 * time.Second)})}
	}
	read = cluster.Stored[cluster.Slots]{Exists: true, Stat: cluster.Stat{Version: 6}, Record: cluster.Slots{SlotSize: cluster.SlotSize{Count: 3, PerNode: 3}, Epoch: 9}}
	return read, []cluster.SlotState{released("0"), released("1"), released("2")}
}

// parents are the operations that are refused while a member is registered.
const parents = "delete nodes@-1, create nodes@0 empty, delete election@-1, create election@0 empty, "

func TestSetSlots(t *testing.T) {
	p := cluster.Paths{Root: "/c"}
	read, table := setting()
	grow := read.Record.Changed(cluster.SlotSize{Count: 5, PerNode: 5}, "ann", "", time.Time{})
	more := append(slices.Clone(table), cluster.SlotState{Slot: "3"}, cluster.SlotState{Slot: "4", Fence: table[0].Fence})
	ops, wait, err := p.SetSlotsTx(read, grow, more)
	want := parents + "check slots/0@4, check slots/1@4, check slots/2@4, create slots/3@0, check slots/4@4, set slots@6"
	if got := in(ops); err != nil || wait != 0 || got != want {
		t.Errorf("%v, waits %s\n got %s\nwant %s", err, wait, got, want)
	}
	if f := cluster.ReadFence("/c/slots/3", ops[7].Data, cluster.Stat{}, true); f.Err != nil || f.Record.State != cluster.FenceReleased || f.Record.Term != 0 {
		t.Errorf("the fence of a new slot: %+v", f)
	}
	shrink := read.Record.Changed(cluster.SlotSize{Count: 2, PerNode: 1}, "ann", "", time.Time{})
	want = parents + "check slots/0@4, check slots/1@4, check slots/2@4, set slots@6"
	if ops, wait, err = p.SetSlotsTx(read, shrink, table); err != nil || wait != 0 || in(ops) != want {
		t.Errorf("%v, waits %s\n got %s\nwant %s", err, wait, in(ops), want)
	}
}

// If one slot may still have a leader, every slot of the next epoch may have its work: all first leaders wait for the longest lease.
func TestSetSlotsThatWereNotReleased(t *testing.T) {
	p := cluster.Paths{Root: "/c"}
	for name, change := range map[string]func(s *cluster.SlotState){
		"ready":   func(s *cluster.SlotState) { s.Fence.Record.State = cluster.FenceReady },
		"held":    func(s *cluster.SlotState) { s.Fence.Record.State = cluster.FenceHeld },
		"unclean": func(s *cluster.SlotState) { s.Fence.Record.State = cluster.FenceUnclean },
		"revoked": func(s *cluster.SlotState) { s.Fence.Record.State = cluster.FenceRevoked },
		"absent":  func(s *cluster.SlotState) { s.Fence = cluster.Stored[cluster.Fence]{} },
		"current": func(s *cluster.SlotState) { s.Current.Exists = true },
		"damaged": func(s *cluster.SlotState) { s.Fence.Err, s.Fence.Record = cluster.ErrNoNode, cluster.Fence{} },
	} {
		for _, count := range []int{2, 4} {
			read, table := setting()
			table[1].Fence.Record.LeaseWait = cluster.Duration(9 * time.Second)
			change(&table[2])
			if count == 4 {
				table = append(table, cluster.SlotState{Slot: "3"})
			}
			next := read.Record.Changed(cluster.SlotSize{Count: count, PerNode: 1}, "ann", "", time.Time{})
			ops, wait, err := p.SetSlotsTx(read, next, table)
			if name == "current" && in(ops[4:5]) == "delete slots/2/current@0" {
				ops = slices.Delete(ops, 4, 5)
			}
			if err != nil || wait != 9*time.Second || !strings.HasPrefix(in(ops), parents+"set slots/0@4, set slots/1@4, ") {
				t.Fatalf("%s: %v, waits %s: %s", name, err, wait, in(ops))
			}
			for i := range count {
				at := slices.IndexFunc(ops, func(op cluster.Op) bool { return op.Path == p.OfSlot(i).Leader() && op.Kind != cluster.OpCheck })
				s := cluster.Snapshot{Fence: cluster.ReadFence("", ops[at].Data, cluster.Stat{}, true)}
				owed, _ := s.Owed(time.Second)
				earlier := s.Earlier(time.Second)
				unknown := slices.ContainsFunc(earlier, func(h cluster.EarlierHolder) bool { return h.Node == "" && h.Wait == cluster.Duration(wait) })
				if f := s.Fence.Record; owed != wait || !unknown || f.State != cluster.FenceRevoked || !f.Requested || i < 2 && f.Term != 7 || (i < 2 || name == "unclean") && f.Node != "" {
					t.Errorf("%s: slot %d waits %s for %+v: %+v", name, i, owed, earlier, f)
				}
			}
		}
	}
}

// A slot's holder may owe more to an earlier one than its own lease wait. And if the record of slots is damaged, a fence
// that is not there may have been deleted.
func TestSetSlotsThatWereNotReleasedForOtherReasons(t *testing.T) {
	p := cluster.Paths{Root: "/c"}
	for name, c := range map[string]struct {
		change func(read *cluster.Stored[cluster.Slots], table []cluster.SlotState)
		want   time.Duration
	}{
		"owes more": {func(_ *cluster.Stored[cluster.Slots], table []cluster.SlotState) {
			f := &table[1].Fence.Record
			f.State, f.Owed = cluster.FenceHeld, cluster.Duration(36*time.Second)
		}, 36 * time.Second},
		"a damaged record": {func(read *cluster.Stored[cluster.Slots], table []cluster.SlotState) {
			read.Err, read.Record = errors.New("damaged"), cluster.Slots{}
			table[2].Fence = cluster.Stored[cluster.Fence]{}
		}, 4 * time.Second},
	} {
		read, table := setting()
		next := read.Record.Changed(cluster.SlotSize{Count: 3, PerNode: 1}, "ann", "", time.Time{})
		c.change(&read, table)
		if _, wait, err := p.SetSlotsTx(read, next, table); err != nil || wait != c.want {
			t.Errorf("%s: %v, waits %s", name, err, wait)
		}
	}
}

// The fence of a slot that was damaged begins the next epoch with the term of the decision. With an older one it would look as if that term
// had never been acquired, and it would come again if the decision were lost as well.
func TestSetSlotsKeepsTheTermOfADamagedFence(t *testing.T) {
	p := cluster.Paths{Root: "/c"}
	for name, c := range map[string]struct {
		change func(s *cluster.SlotState)
		want   int64
	}{
		"damaged":      {func(s *cluster.SlotState) { s.Fence.Err, s.Fence.Record = cluster.ErrInvalid, cluster.Fence{} }, 9},
		"not acquired": {func(s *cluster.SlotState) { s.Fence.Record.State = cluster.FenceUnclean }, 7},
		"damaged, and the decision": {func(s *cluster.SlotState) {
			s.Fence.Err, s.Fence.Record, s.Elected.Err = cluster.ErrInvalid, cluster.Fence{}, cluster.ErrInvalid
		}, 0},
	} {
		read, table := setting()
		table[1].Elected = cluster.Stored[cluster.Elected]{Exists: true, Record: cluster.Elected{Term: 9}}
		c.change(&table[1])
		ops, _, err := p.SetSlotsTx(read, read.Record.Changed(cluster.SlotSize{Count: 2, PerNode: 1}, "ann", "", time.Time{}), table)
		if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(ops, func(op cluster.Op) bool { return op.Path == p.OfSlot(1).Leader() })
		if f := cluster.ReadFence("", ops[at].Data, cluster.Stat{Time: time.Now()}, true); f.Record.Term != c.want {
			t.Errorf("%s: term %d, want %d (%v)", name, f.Record.Term, c.want, f.Err)
		}
	}
}

func TestSetSlotsIsRefused(t *testing.T) {
	p := cluster.Paths{Root: "/c"}
	for want, change := range map[string]func(s *cluster.SlotState){
		"members have promised": func(s *cluster.SlotState) {
			s.Fence.Record.State = cluster.FenceReady
			s.Fence.Record.Failsafe = &cluster.Failsafe{Members: []cluster.FailsafeMember{{ID: "n2"}}}
		},
		"upgrade this host": func(s *cluster.SlotState) { s.Fence = unreadable(`{"v":3}`, 4) },
	} {
		read, table := setting()
		change(&table[1])
		if ops, _, err := p.SetSlotsTx(read, read.Record, table); err == nil || len(ops) > 0 || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// An elector writes the record again that its REGISTER has checked. After a deletion it begins a new epoch.
func TestRepairSlots(t *testing.T) {
	p, wall := cluster.Paths{Root: "/c"}, time.Unix(1000, 0)
	known, _ := setting()
	known.Stat.Created = 5
	damaged := func(created int64) cluster.Stored[cluster.Slots] {
		return cluster.ReadSlots("/c/slots", []byte("garbage"), cluster.Stat{Version: 8, Created: created}, true)
	}
	written := func(ops []cluster.Op) cluster.Slots {
		return cluster.ReadSlots("/c/slots", ops[len(ops)-1].Data, cluster.Stat{Time: wall}, true).Record
	}
	ops, err := p.RepairSlotsTx("n1-n_1", damaged(5), known, wall)
	if got := in(ops); err != nil || got != "check election/n1-n_1@-1, set slots@8" || written(ops).Epoch != 9 || written(ops).Count != 3 {
		t.Errorf("%v %s", err, got)
	}
	for _, gone := range []cluster.Stored[cluster.Slots]{{}, cluster.ReadSlots("/c/slots", nil, cluster.Stat{Created: 7}, true)} {
		ops, err = p.RepairSlotsTx("n1-n_1", gone, known, wall)
		if next := written(ops); err != nil || ops[0].Path != p.Incarnation("n1-n_1") || next.Epoch != 10+16*64 || next.Count != 3 || next.PerNode != 3 {
			t.Errorf("%v %+v", err, next)
		}
	}
	if ops, err = p.RepairSlotsTx("n1-n_1", damaged(7), known, wall); err == nil || len(ops) > 0 {
		t.Errorf("an elector repairs a record that it does not know: %s", in(ops))
	}
}

func TestHostsThatDisagreeAboutSlotsAreRefused(t *testing.T) {
	read := func(kind cluster.GroupKind) cluster.Stored[cluster.Identity] {
		data := cluster.Encode(&cluster.Identity{Root: "/c/g", Kind: kind})
		return cluster.ReadIdentity("/c/g", data, cluster.Stat{}, true)
	}
	for _, c := range []struct {
		recorded, own cluster.GroupKind
		want          string
	}{
		{cluster.KindSingle, cluster.KindSingle, ""},
		{cluster.KindSlots, cluster.KindSlots, ""},
		{cluster.KindSlots, cluster.KindSingle, "set slots.count on this host"},
		{cluster.KindSingle, cluster.KindSlots, "remove slots on this host"},
		{"ring", cluster.KindSlots, "upgrade this host"},
		{"ring", "ring", "upgrade this host"},
	} {
		err := cluster.CheckIdentity("/c/g", "/c/g", c.own, read(c.recorded))
		if (err == nil) != (c.want == "") || (err != nil && (!strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "/c/g"))) {
			t.Errorf("%s, recorded %s: %v", c.own, c.recorded, err)
		}
	}
}

// The versions of a new record differ from those of the epochs before it, from which a late ACQUIRE may still be on its way.
func TestANewRecordOfSlotsHasNewVersions(t *testing.T) {
	p := cluster.Paths{Root: "/c"}
	last := int32(0)
	for epoch := range int64(60) {
		ops := p.SlotsTx("", cluster.Stored[cluster.Slots]{}, cluster.Slots{Epoch: epoch + 1})
		version := ops[len(ops)-1].Version + 1
		if version < last+3 { // the first write, and repairs
			t.Errorf("epoch %d begins at version %d, the one before at %d", epoch+1, version, last)
		}
		last = version
	}
}

// slotTree is a group of two slots on the model of ZooKeeper.
type slotTree struct {
	tree    *storetest.Tree
	session int64
}

func (s slotTree) apply(ops ...cluster.Op) error {
	_, _, err := s.tree.Apply(s.session, ops)
	return err
}

func (s slotTree) get(path string) (data []byte, stat cluster.Stat, exists bool) {
	data, stat, err := s.tree.Get(s.session, path, false)
	return data, stat, err == nil
}

func (s slotTree) read(p cluster.Paths) cluster.Snapshot {
	snap := cluster.Snapshot{Slot: p.Slot, Self: cluster.Incarnation{Name: own}}
	data, stat, exists := s.get(p.Slots())
	snap.Slots = cluster.ReadSlots(p.Slots(), data, stat, exists)
	data, stat, exists = s.get(p.Elected())
	snap.Elected = cluster.ReadStored[cluster.Elected](p.Elected(), data, stat, exists)
	data, stat, exists = s.get(p.Leader())
	snap.Fence = cluster.ReadFence(p.Leader(), data, stat, exists)
	return snap
}

// elect returns ELECT of the only member for a slot, whose other slot is known.
func (s slotTree) elect(p, other cluster.Paths, term int64) []cluster.Op {
	known := s.read(other)
	return p.ElectTx(s.read(p), cluster.Elected{Term: term, Incarnation: own}, nil, known.SlotState())
}

// Each check of what the slots were is needed: without it, a transaction takes effect that was made before that changed. ACQUIRE would
// take over for an epoch that has ended (S1), and two electors would elect one node for more slots than it may have.
func TestTheChecksOfSlotsAreNeeded(t *testing.T) {
	p := cluster.Paths{Root: "/c"}
	first, second := p.OfSlot(0), p.OfSlot(1)
	for name, c := range map[string]struct {
		made, meanwhile func(s slotTree) []cluster.Op
		check           string // the znode whose check is left out
	}{
		"ACQUIRE": {
			made: func(s slotTree) []cluster.Op {
				return second.AcquireTx(s.read(second), cluster.Fence{Term: 1}, cluster.Current{Term: 1})
			},
			meanwhile: func(s slotTree) []cluster.Op {
				slots := s.read(second).Slots
				slots.Record.Epoch++
				return p.SlotsTx("", slots, slots.Record)
			},
			check: p.Slots(),
		},
		"ELECT": {
			made:      func(s slotTree) []cluster.Op { return s.elect(first, second, 1) },
			meanwhile: func(s slotTree) []cluster.Op { return s.elect(second, first, 2) },
			check:     second.Elected(),
		},
	} {
		for _, checked := range []bool{true, false} {
			s := slotTree{tree: storetest.NewTree()}
			s.session = s.tree.Open()
			slots := cluster.NewSlots(cluster.SlotSize{Count: 2, PerNode: 1}, "n1", time.Unix(1000, 0))
			fence := cluster.Encode(&cluster.Fence{State: cluster.FenceReleased})
			create := func(path string, data []byte) cluster.Op {
				return cluster.Op{Kind: cluster.OpCreate, Path: path, Data: data}
			}
			err := s.apply(create(p.Root, nil), create(p.Election(), nil), create(p.Incarnation(own), nil),
				create(p.Slots(), cluster.Encode(&slots)), create(first.Leader(), fence), create(second.Leader(), fence))
			if err == nil {
				err = s.apply(s.elect(second, first, 1)...)
			}
			if err != nil {
				t.Fatal(err)
			}
			ops := c.made(s)
			if !checked {
				ops = slices.DeleteFunc(ops, func(op cluster.Op) bool { return op.Kind == cluster.OpCheck && op.Path == c.check })
			}
			if err := s.apply(c.meanwhile(s)...); err != nil {
				t.Fatal(err)
			}
			if err := s.apply(ops...); (err != nil) != checked {
				t.Errorf("%s: checked %t: %v", name, checked, err)
			}
		}
	}
}
