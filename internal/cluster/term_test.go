package cluster

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// readTerm reads records with that term, written at that time.
func readTerm(term int64, written time.Time) (elected Stored[Elected], fence Stored[Fence], current Stored[Current]) {
	data, stat := fmt.Appendf(nil, `{"v":1,"term":%d}`, term), Stat{Version: 1, Time: written}
	return ReadStored[Elected]("/c/leader/elected", data, stat, true), ReadFence("/c/leader", data, stat, true), ReadStored[Current]("/c/leader/current", data, stat, true)
}

// A term above its limit, which depends on the time of the write, is damage; one at the limit is not.
func TestTermsAboveTheLimitAreDamage(t *testing.T) {
	if MaxClock != 9_223_372_036 || TermHeadroom != 17_179_869_184 || TermSlack != 60 || MaxWait != 600*time.Second {
		t.Errorf("the limits are %d, %d, %d and %s", int64(MaxClock), int64(TermHeadroom), TermSlack, MaxWait)
	}
	for _, written := range []time.Time{{}, time.Unix(-5, 0), time.Unix(0, 0), time.Unix(1_800_000_000, 0), time.Unix(math.MaxInt64, 0)} {
		limit := MaxTerm(written)
		for term, want := range map[int64]struct{ elected, fence bool }{
			0: {true, true}, -1: {}, math.MinInt64: {}, math.MaxInt64: {}, 1<<53 - 1: {}, 1 << 53: {},
			limit: {true, true}, limit + 1: {false, true}, limit + TermSlack: {false, true}, limit + TermSlack + 1: {},
		} {
			e, f, c := readTerm(term, written)
			if e.Readable() != want.elected || f.Readable() != want.fence || c.Readable() != want.fence {
				t.Errorf("term %d, written at %s: %v, %v, %v", term, written, e.Err, f.Err, c.Err)
			}
			if e.Err != nil && (!strings.Contains(e.Err.Error(), "/c/leader/elected") || !strings.Contains(e.Err.Error(), fmt.Sprint(term)) || e.Record.Term != 0) {
				t.Errorf("after rejecting %d, %d and %v remain", term, e.Record.Term, e.Err)
			}
		}
	}
}

// Whatever the clocks of the servers and of the first elector show, and however many elections there were, a group's own
// terms are accepted.
func TestAGroupsOwnTermsAreAccepted(t *testing.T) {
	clocks := rapid.OneOf(rapid.Int64(), rapid.Int64Range(0, MaxClock), rapid.Just(int64(0)), rapid.Just(int64(MaxClock)), rapid.Just(int64(math.MaxInt64)))
	rapid.Check(t, func(t *rapid.T) {
		wall, written := time.Unix(clocks.Draw(t, "wall"), 0), time.Unix(clocks.Draw(t, "written"), 0)
		var m LastKnown
		m.Term = m.Next(&Snapshot{}, wall) + rapid.Int64Range(0, 7_900_000_000).Draw(t, "elections")
		if e, f, c := readTerm(m.Next(&Snapshot{}, wall), written); e.Err != nil || f.Err != nil || c.Err != nil {
			t.Fatalf("%v, %v, %v", e.Err, f.Err, c.Err)
		}
	})
}

// Any later elector accepts a term that was given to a child when it reads the fence, and elects in a higher one, as long as the
// servers' clock has not been set back by more than the slack.
func TestTermsThatWereUsedAreAccepted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		decided := rapid.Int64Range(0, MaxClock-TermSlack).Draw(t, "decided")
		term := rapid.OneOf(rapid.Int64Range(0, 1<<60), rapid.Int64Range(MaxTerm(time.Unix(decided, 0))-3, MaxTerm(time.Unix(decided, 0))+3)).Draw(t, "term")
		e, _, _ := readTerm(term, time.Unix(decided, 0))
		if !e.Readable() {
			return // no child gets it
		}
		acquired := time.Unix(max(0, rapid.Int64Range(decided-TermSlack, MaxClock).Draw(t, "acquired")), 0)
		_, f, c := readTerm(term, acquired)
		if f.Err != nil || c.Err != nil {
			t.Fatalf("used, but not accepted: %v, %v", f.Err, c.Err)
		}
		var m LastKnown
		m.Update(&Snapshot{Fence: f, Current: c})
		if next := m.Next(&Snapshot{}, time.Unix(5, 0)); next <= term {
			t.Fatalf("term %d follows %d", next, term)
		}
	})
}

// After any term that is read there is a next one, which can be read once the slack is over.
func TestThereIsAlwaysANextTerm(t *testing.T) {
	wall := time.Unix(1_800_000_000, 0)
	limit := MaxTerm(wall)
	rapid.Check(t, func(t *rapid.T) {
		terms := rapid.OneOf(rapid.Int64(), rapid.Int64Range(limit-3, limit+TermSlack+3), rapid.Int64Range(0, 5))
		read := func(label string) []byte { return fmt.Appendf(nil, `{"v":1,"term":%d}`, terms.Draw(t, label)) }
		stat := Stat{Version: 1, Time: wall}
		s := Snapshot{
			Elected: ReadStored[Elected]("/c/leader/elected", read("elected"), stat, true),
			Fence:   ReadFence("/c/leader", read("fence"), stat, true),
		}
		var m LastKnown
		m.Update(&s)
		next := Elected{Term: m.Next(&Snapshot{}, wall)}
		fence := s.Fence.Record
		if f := m.ReplacementFence(&s, next.Term, wall); f != nil {
			fence = *f
		}
		later := Stat{Version: 2, Time: wall.Add((TermSlack + 1) * time.Second)}
		again := ReadStored[Elected]("/c/leader/elected", Encode(&next), later, true)
		if slot := ReadFence("/c/leader", Encode(&fence), later, true); again.Err != nil || slot.Err != nil || fence.Term >= next.Term {
			t.Fatalf("after %d and %d comes %d over a fence of %d: %v, %v", s.Elected.Record.Term, s.Fence.Record.Term, next.Term, fence.Term, again.Err, slot.Err)
		}
	})
}

// Terms continue after the highest one that the elector or a member knows, and are at least the clock's time, within its limits.
func TestTermsContinueAfterTheHighestKnown(t *testing.T) {
	wall := time.Unix(1_800_000_000, 0)
	limit := MaxTerm(wall)
	for _, c := range []struct {
		known   int64
		members []int64 // what they knew when they registered
		wall    time.Time
		want    int64
	}{
		{1, nil, time.Unix(0, 0), 2},
		{1, nil, wall, wall.Unix() + 2}, // a multiple of 64 is skipped: data that was restored may have forgotten terms
		{1, []int64{7, 20, 8}, time.Unix(9, 0), 21},
		{30, []int64{7, 20}, time.Unix(9, 0), 31},
		{1, []int64{7, limit}, wall, limit + 1},
		{1, []int64{7, limit + 1, -1}, time.Unix(6, 0), 8}, // no group reaches that one: it is ignored
		{5_000_000_000, nil, wall, 5_000_000_001},
		{0, nil, time.Unix(0, 0), 130}, // a host without a clock
		{0, nil, time.Unix(3, 0), 131},
		{0, nil, time.Unix(-7, 0), 130},
		{0, nil, time.Unix(1<<60, 0), MaxClock + 128},
	} {
		m, s := LastKnown{Term: c.known}, Snapshot{Elected: Stored[Elected]{Exists: true}}
		for _, t := range c.members {
			s.Members = append(s.Members, Member{Node: Stored[Node]{Exists: true, Stat: Stat{Time: wall}, Record: Node{LastTerm: t}}})
		}
		if got := m.Next(&s, c.wall); got != c.want {
			t.Errorf("after %d and %d at %s: %d, want %d", c.known, c.members, c.wall, got, c.want)
		}
	}
	m := LastKnown{Term: 9, Fence: Fence{Node: "a"}}
	if m.Update(&Snapshot{Fence: Stored[Fence]{Exists: true, Err: errors.New("x"), Record: Fence{Node: "b"}}}); m.Term != 9 || m.Fence.Node != "a" {
		t.Errorf("forgotten: %+v", m)
	}
}

// An exclusion that no elector writes is damage: doubling it, or adding it to a time, could overflow.
func TestOverflowingExclusionsAreDamage(t *testing.T) {
	for text, ok := range map[string]bool{
		`"strikes":0,"for":"1h"`: true, `"strikes":1073741824,"for":"87600h"`: true,
		`"strikes":-1`: false, `"strikes":1073741825`: false, `"strikes":1,"for":"87600h1ns"`: false,
	} {
		s := ReadStored[Elected]("/c", []byte(`{"v":1,"term":5,"exclusions":[{"node":"a","strikes":1},{"node":"b",`+text+`}]}`), Stat{}, true)
		if s.Readable() != ok {
			t.Errorf("%s: %v", text, s.Err)
		}
		if s.Readable() {
			Strike(s.Record.Exclusions, "b", "x", 6, time.Second, time.Hour, time.Time{})
		}
	}
}

// Right after an election, the term may be ahead of the clock. If then the records are lost, and all memory of that term, the next one
// is above it all the same, unless there was more than one election a second: whether another daemon remembers an earlier term or not.
func TestTermsGrowAfterALossOfEverything(t *testing.T) {
	kept := &Snapshot{Elected: Stored[Elected]{Exists: true}}
	for pause := int64(1); pause < 300; pause++ {
		var lost, other LastKnown
		wall := int64(1_800_000_000)
		for _, then := range []int64{wall, wall + pause, wall + 2*pause} {
			other, lost.Term = lost, lost.Next(kept, time.Unix(then, 0))
		}
		later := time.Unix(wall+2*pause+2, 0)
		if got := other.Next(&Snapshot{}, later); got <= lost.Term {
			t.Errorf("elections every %d s end with term %d, then the records are lost, and term %d follows", pause, lost.Term, got)
		}
		if got := new(LastKnown).Next(&Snapshot{}, later); got <= lost.Term {
			t.Errorf("elections every %d s end with term %d, then all is lost, and term %d follows", pause, lost.Term, got)
		}
	}
}
