package cluster

import (
	"encoding/json"
	"testing"
	"time"
)

func TestGaps(t *testing.T) {
	for want, g := range map[string]*Gap{
		"3.5ms": {For: Duration(3510 * time.Microsecond)}, "at least 2.46s": AtLeast(2460 * time.Millisecond), "at most 1m0.12s": AtMost(time.Minute + 123*time.Millisecond),
	} {
		if got := g.Rounded(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		var back Gap
		if data, err := json.Marshal(g); err != nil || json.Unmarshal(data, &back) != nil || back != *g {
			t.Errorf("%s becomes %+v", want, back)
		}
	}
	if g := AtMost(time.Second).Plus(time.Minute); *g != *AtMost(61 * time.Second) || (*Gap)(nil).Plus(1) != nil {
		t.Errorf("goes on as %+v", g)
	}
	if *AtMost(time.Second).OrMore() != *AtLeast(0) || *(&Gap{For: 5}).OrMore() != *AtLeast(5) || (*Gap)(nil).OrMore() != nil {
		t.Error("a gap that goes on for an unknown time is at least as long as it was, which is not known of one with an upper bound only")
	}
	if a, b := AtLeast(1), AtMost(2); LongerGap(a, b) != b || LongerGap(b, a) != b || LongerGap(nil, a) != a || LongerGap(a, nil) != a || LongerGap(nil, nil) != nil {
		t.Error("not the longer one")
	}
	for _, bad := range []Duration{-1, Duration(maxGap + 1)} {
		f, e := Fence{Idle: &Gap{For: bad}}, Elected{Leaderless: &Gap{For: bad}}
		if f.validate(Stat{}) == nil || e.validate(Stat{}) == nil {
			t.Errorf("%s is accepted", time.Duration(bad))
		}
	}
}

// Whoever ends a leadership without having seen the end of its work says so.
func TestLeastIdle(t *testing.T) {
	for state, want := range map[FenceState]Gap{FenceReady: *AtLeast(0), FenceHeld: *AtLeast(time.Second), FenceUnclean: *AtLeast(time.Second)} {
		f := Fence{State: state, Idle: &Gap{For: Duration(time.Second)}}
		if got := f.LeastIdle(); got == nil || *got != want {
			t.Errorf("%s: %+v, want %+v", state, got, want)
		}
	}
}

// A record that is the highest that counts as valid leads to no damaged one.
func TestALongGapStaysValid(t *testing.T) {
	f := Fence{Idle: AtLeast(100 * 365 * 24 * time.Hour).Plus(time.Second)}
	if got := time.Duration(f.Idle.For); got != 100*365*24*time.Hour {
		t.Errorf("the gap grows to %s", got)
	}
}
