package cluster

import (
	"errors"
	"testing"
	"time"
)

func TestOwedWaitOut(t *testing.T) {
	const own, holder, debt = 5 * time.Second, 7 * time.Second, 3 * time.Second
	fence := func(state FenceState, owed time.Duration) Slot[Fence] {
		return Slot[Fence]{Exists: true, Record: Fence{State: state, Owed: Duration(owed), WaitOut: Duration(holder)}}
	}
	for name, c := range map[string]struct {
		fence Slot[Fence]
		alive bool
		want  time.Duration
	}{
		"nobody has led yet":                     {Slot[Fence]{}, false, 0},
		"unreadable":                             {Slot[Fence]{Exists: true, Err: errors.New("x")}, false, own},
		"released":                               {fence(FenceReleased, 0), true, 0},
		"released by one that is gone":           {fence(FenceReleased, 0), false, 0},
		"unclean":                                {fence(FenceUnclean, debt), false, debt},
		"ready, session over":                    {fence(FenceReady, 0), false, 0},
		"held clean, session over":               {fence(FenceHeld, 0), false, 0},
		"held with a debt unserved":              {fence(FenceHeld, debt), false, debt},
		"ready, current deleted under it":        {fence(FenceReady, 0), true, holder},
		"held, current deleted under it":         {fence(FenceHeld, 0), true, holder},
		"revoked":                                {fence(FenceRevoked, 0), true, holder},
		"revoked, gone since: its lease may run": {fence(FenceRevoked, 0), false, holder},
		"a state of a later version":             {fence("NEW", 0), false, holder},
	} {
		s := Snapshot{Fence: c.fence, FenceAlive: c.alive}
		if got := s.Owed(own); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestNextTermAlwaysGrows(t *testing.T) {
	wall := time.Unix(1_800_000_000, 0)
	elected := func(term int64) Slot[Elected] { return Slot[Elected]{Exists: true, Record: Elected{Term: term}} }
	fence := func(term int64) Slot[Fence] { return Slot[Fence]{Exists: true, Record: Fence{Term: term}} }
	for _, c := range []struct {
		s    Snapshot
		want int64
	}{
		{Snapshot{}, wall.Unix()},
		{Snapshot{Elected: elected(5)}, 6},
		{Snapshot{Fence: fence(9)}, 10},
		{Snapshot{Elected: elected(5), Fence: fence(9)}, 10},
		{Snapshot{Elected: elected(12), Fence: fence(9)}, 13},
		{Snapshot{Elected: Slot[Elected]{Exists: true, Err: errors.New("x")}, Fence: fence(9)}, 10},
	} {
		if got := c.s.NextTerm(wall); got != c.want {
			t.Errorf("%+v: %d, want %d", c.s, got, c.want)
		}
	}
}
