package cluster

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func anyEarlier(t *rapid.T, most int) []EarlierHolder {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) EarlierHolder {
		return EarlierHolder{
			Node: rapid.SampledFrom([]string{"", "a", "b", "c", fmt.Sprint("n", rapid.IntRange(0, 40).Draw(t, "number"))}).Draw(t, "node"), Term: rapid.Int64Range(1, 9).Draw(t, "term"),
			Wait: Duration(rapid.Int64Range(0, 9).Draw(t, "wait")) * Duration(time.Second), Fenced: rapid.Bool().Draw(t, "fenced"),
		}
	}), 0, most).Draw(t, "earlier")
}

// Whatever the fence says, the candidate waits for all that it may have to wait for: the list never promises less than the wait.
func TestEarlierHoldersCoverTheWait(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := Fence{
			Node: rapid.SampledFrom([]string{"a", "b", ""}).Draw(t, "node"), Term: 10,
			State:     rapid.SampledFrom([]FenceState{FenceHeld, FenceReady, FenceReleased, FenceUnclean, FenceRevoked, "NEW"}).Draw(t, "state"),
			LeaseWait: Duration(rapid.Int64Range(0, 9).Draw(t, "lease wait")) * Duration(time.Second), Earlier: anyEarlier(t, MaxEarlier),
		}
		f.Owed = max(LongestWait(f.Earlier), Duration(rapid.Int64Range(0, 9).Draw(t, "owed"))*Duration(time.Second))
		s := Snapshot{Fence: Stored[Fence]{Exists: rapid.IntRange(0, 9).Draw(t, "exists") > 0, Record: f}}
		owed, _ := s.Owed(4 * time.Second)
		list := s.Earlier(4 * time.Second)
		if time.Duration(LongestWait(list)) != owed {
			t.Fatalf("%+v owes %s, listed are %+v", f, owed, list)
		}
		if len(list) > MaxEarlier {
			t.Fatalf("%d holders", len(list))
		}
		if owed == 0 || !s.Fence.Readable() {
			return
		}
		// A holder that the fence does not say was fenced is still listed as such, by its name unless there are too many.
		for _, h := range f.Earlier {
			ok := slices.ContainsFunc(list, func(l EarlierHolder) bool {
				return l.Wait >= h.Wait && (l.Node == h.Node && (!l.Fenced || h.Fenced) || l.Node == "")
			})
			if !ok {
				t.Fatalf("%+v was forgotten: %+v", h, list)
			}
		}
	})
}

func TestEarlierHoldersOfEachFence(t *testing.T) {
	const own = 5 * time.Second
	seven, three := Duration(7*time.Second), Duration(3*time.Second)
	base := Fence{Node: "n1", Site: "dc1", Host: "host1", API: "n1:80", Term: 6, LeaseWait: seven}
	self := EarlierHolder{Node: "n1", Site: "dc1", Host: "host1", API: "n1:80", Term: 6, Wait: seven}
	before := EarlierHolder{Node: "n0", Term: 5, Wait: three}
	for name, c := range map[string]struct {
		change func(*Fence)
		want   []EarlierHolder
	}{
		"lost leader": {func(f *Fence) { f.State = FenceReady }, []EarlierHolder{self}},
		"released":    {func(f *Fence) { f.State = FenceReleased }, nil},
		"unclean, not said for whom": {func(f *Fence) { f.State, f.Owed = FenceUnclean, three },
			[]EarlierHolder{{Wait: three}}}, // not n1, whose work is dead
		"unclean": {func(f *Fence) { f.State, f.Owed, f.Earlier = FenceUnclean, three, []EarlierHolder{before} }, []EarlierHolder{before}},
		"a lost candidate": {func(f *Fence) { f.State, f.Owed, f.Earlier = FenceHeld, three, []EarlierHolder{before} },
			[]EarlierHolder{before, self}},
		"rewritten: another may have led since": {func(f *Fence) { f.State, f.Owed = FenceRevoked, seven },
			[]EarlierHolder{{Wait: seven}, self}},
		"nobody is known": {func(f *Fence) { *f = Fence{State: FenceRevoked, LeaseWait: seven} }, []EarlierHolder{{Wait: seven}}},
		"fenced once, and it led again": {func(f *Fence) {
			f.State, f.Owed, f.Earlier = FenceHeld, three, []EarlierHolder{{Node: "n1", Host: "host1", Term: 5, Wait: three, Fenced: true}}
		}, []EarlierHolder{self}},
	} {
		f := base
		c.change(&f)
		s := Snapshot{Fence: Stored[Fence]{Exists: true, Record: f}}
		if got := s.Earlier(own); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, c.want)
		}
	}
}

func TestLeaveDoesNotForgetForWhomToWait(t *testing.T) {
	three := Duration(3 * time.Second)
	d := Departure{ID: "n1", Self: "n1-n_1", Session: 7}
	l := Leadership{Owed: 4 * time.Second, SlotState: SlotState{Fence: Stored[Fence]{Exists: true, Record: Fence{
		Node: "n1", Incarnation: "n1-n_1", State: FenceHeld, Owed: three, Earlier: []EarlierHolder{{Node: "n0", Wait: three}},
	}}}}
	want := []EarlierHolder{{Node: "n0", Wait: three}, {Wait: Duration(4 * time.Second)}}
	if f := d.release(&l); f.State != FenceUnclean || f.Owed != Duration(4*time.Second) || !slices.Equal(f.Earlier, want) {
		t.Errorf("%+v", f)
	}
}
