package cluster

import (
	"fmt"
	"slices"
	"strings"
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
		"unclean, only to be fenced": {func(f *Fence) { f.State, f.Earlier = FenceUnclean, []EarlierHolder{{Node: "n0", Term: 5}} },
			[]EarlierHolder{{Node: "n0", Term: 5}}},
		"unclean, and nobody": {func(f *Fence) { f.State = FenceUnclean }, nil},
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
	l := DepartingSlot{Owed: 4 * time.Second, SlotState: SlotState{Fence: Stored[Fence]{Exists: true, Record: Fence{
		Node: "n1", Incarnation: "n1-n_1", State: FenceHeld, Owed: three, Earlier: []EarlierHolder{{Node: "n0", Wait: three}},
	}}}}
	want := []EarlierHolder{{Node: "n0", Wait: three}, {Wait: Duration(4 * time.Second)}}
	if f := d.release(&l); f.State != FenceUnclean || f.Owed != Duration(4*time.Second) || !slices.Equal(f.Earlier, want) {
		t.Errorf("%+v", f)
	}
}

// A long list is cut at its oldest end, and no wait gets shorter (S1).
func TestALongListOfEarlierHolders(t *testing.T) {
	for _, n := range []int{MaxEarlier - 1, MaxEarlier, MaxEarlier + 1, MaxEarlier + 4} {
		var list []EarlierHolder
		for i := range n {
			list = append(list, EarlierHolder{Node: fmt.Sprint("n", i), Term: int64(i + 1), Wait: Duration(i)})
		}
		list[0].Wait = Duration(time.Minute)
		got := MergeEarlier(list)
		if n <= MaxEarlier {
			if !slices.Equal(got, list) {
				t.Errorf("%d: %+v", n, got)
			}
			continue
		}
		cut := n - MaxEarlier + 1
		if want := append([]EarlierHolder{{Wait: Duration(time.Minute)}}, list[cut:]...); !slices.Equal(got, want) {
			t.Errorf("%d:\n got %+v\nwant %+v", n, got, want)
		}
		if list[0].Node != "n0" || len(list) != n {
			t.Error("changed in place")
		}
	}
}

// One entry of a node on one host says what is known of its last term, and waits for all of them. Another host with
// the same id stays an entry of its own.
func TestEntriesOfOneNodeAreMerged(t *testing.T) {
	older := EarlierHolder{Node: "a", Host: "h", API: "old", Term: 5, Wait: 9, Fenced: true}
	newer := EarlierHolder{Node: "a", Host: "h", API: "new", Term: 6, Wait: 4}
	want := EarlierHolder{Node: "a", Host: "h", API: "new", Term: 6, Wait: 9}
	for _, list := range [][]EarlierHolder{{older, newer}, {newer, older}} {
		if got := MergeEarlier(list); len(got) != 1 || got[0] != want {
			t.Errorf("%+v", got)
		}
	}
	older.Host = "another"
	if got := MergeEarlier([]EarlierHolder{older, newer}); !slices.Equal(got, []EarlierHolder{older, newer}) {
		t.Errorf("two hosts: %+v", got)
	}
}

func TestLimitsOfWhatAFenceSaysAboutFencing(t *testing.T) {
	full := Fence{Earlier: make([]EarlierHolder, MaxEarlier), Fencing: make([]FencingResult, MaxEarlier), Owed: Duration(2 * MaxWait)}
	if err := full.validateFencing(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Fence){
		"a holder too many":   func(f *Fence) { f.Earlier = make([]EarlierHolder, MaxEarlier+1) },
		"an attempt too many": func(f *Fence) { f.Fencing = make([]FencingResult, MaxEarlier+1) },
		"a wait too long":     func(f *Fence) { f.Earlier = []EarlierHolder{{Wait: Duration(MaxWait) + 1}} },
		"a negative wait":     func(f *Fence) { f.Earlier = []EarlierHolder{{Wait: -1}} },
		"longer than owed":    func(f *Fence) { f.Owed, f.Earlier = 1, []EarlierHolder{{Wait: 2}} },
		"an impossible limit": func(f *Fence) { f.FencingLimit = -1 },
	} {
		f := full
		if change(&f); f.validateFencing() == nil {
			t.Errorf("%s: valid", name)
		}
	}
	for n, want := range map[int]int{MaxFencingText - 1: MaxFencingText - 1, MaxFencingText: MaxFencingText, MaxFencingText + 1: MaxFencingText} {
		text := strings.Repeat("x", n)
		if got := FencingText(text); len(got) != want || strings.HasSuffix(got, "...") != (n > MaxFencingText) {
			t.Errorf("%d bytes: %d", n, len(got))
		}
	}
}

func TestWhoWasFenced(t *testing.T) {
	f := Fence{Fencing: []FencingResult{{Node: "a", Error: "no answer"}, {Node: "b", By: "ipmi"}}, Owed: 3, FencingLimit: 5}
	for node, want := range map[string]bool{"a": false, "b": true, "c": false} {
		if f.HasFenced(node) != want {
			t.Errorf("%s: %t", node, !want)
		}
	}
	if f.Fencing[0].String() != "could not fence a: no answer" || f.Fencing[1].String() != "fenced b by ipmi" {
		t.Errorf("%s, %s", f.Fencing[0], f.Fencing[1])
	}
	if f.TakeoverLimit() != 5 {
		t.Errorf("limit %s", f.TakeoverLimit())
	}
	f.Owed = 7
	if f.TakeoverLimit() != 7 {
		t.Errorf("limit %s", f.TakeoverLimit())
	}
}
