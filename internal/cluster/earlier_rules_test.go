package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

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

// One entry of a node on one host says what is known of its last term, and waits for all of them. Another host with the same id stays
// an entry of its own.
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
		if f.WasFenced(node) != want {
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
