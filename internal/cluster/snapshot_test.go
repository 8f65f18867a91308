package cluster

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestOwedLeaseWait(t *testing.T) {
	const own, holder, remaining = 5 * time.Second, 7 * time.Second, 3 * time.Second
	fence := func(state FenceState, owed time.Duration) Stored[Fence] {
		return Stored[Fence]{Exists: true, Record: Fence{Node: "n1", State: state, Owed: Duration(owed), LeaseWait: Duration(holder)}}
	}
	for name, c := range map[string]struct {
		fence Stored[Fence]
		want  time.Duration
		why   string
	}{
		"deleted":                              {Stored[Fence]{}, own, "proves nothing"},
		"never written":                        {Stored[Fence]{Exists: true, Err: ErrNeverWritten}, own, "proves nothing"},
		"damaged: ":                            {Stored[Fence]{Exists: true, Err: errors.New("x")}, own, "proves nothing"},
		"damaged, whatever is left of it":      {Stored[Fence]{Exists: true, Err: errors.New("x"), Record: Fence{State: FenceReleased}}, own, "proves nothing"},
		"released":                             {fence(FenceReleased, 0), 0, ""},
		"unclean":                              {fence(FenceUnclean, remaining), remaining, "n1 had not yet waited"},
		"unclean, with no wait left":           {fence(FenceUnclean, 0), 0, ""},
		"ready":                                {fence(FenceReady, 0), holder, "the lease of n1, which did not release, may still be running"},
		"held clean":                           {fence(FenceHeld, 0), holder, "the lease of n1"},
		"held with a lease wait left":          {fence(FenceHeld, remaining), holder, "the lease of n1"},
		"held with a wait longer than a lease": {fence(FenceHeld, 2*holder), 2 * holder, "the lease of n1"},
		"revoked":                              {fence(FenceRevoked, 0), holder, "the lease of n1"},
		"revoked, without a known holder":      {Stored[Fence]{Exists: true, Record: Fence{State: FenceRevoked}}, own, "it is not known whether there was a leader before"},
		"a state of a later version":           {fence("NEW", 0), holder, "the lease of n1"},
	} {
		s := Snapshot{Fence: c.fence}
		got, why := s.Owed(own)
		if got != c.want || !strings.Contains(why, c.why) || (why == "") != (c.want == 0) {
			t.Errorf("%s: %s (%s), want %s", name, got, why, c.want)
		}
	}
	short := Snapshot{Fence: fence(FenceReady, 0)}
	if got, _ := short.Owed(2 * holder); got != 2*holder {
		t.Errorf("a candidate whose own lease is longer waits for %s", got)
	}
}

func TestNextTermIsAboveEveryKnownOne(t *testing.T) {
	wall := time.Unix(3, 0)
	elected := func(term int64) Stored[Elected] { return Stored[Elected]{Exists: true, Record: Elected{Term: term}} }
	fence := func(term int64) Stored[Fence] { return Stored[Fence]{Exists: true, Record: Fence{Term: term}} }
	kept := &Snapshot{Elected: elected(0)} // not all records are lost
	for _, c := range []struct {
		s    Snapshot
		want int64
	}{
		{Snapshot{}, wall.Unix() + 128},
		{Snapshot{Elected: elected(5)}, 6},
		{Snapshot{Fence: fence(9)}, 10},
		{Snapshot{Elected: elected(5), Fence: fence(9)}, 10},
		{Snapshot{Elected: elected(12), Fence: fence(9)}, 13},
		{Snapshot{Elected: Stored[Elected]{Exists: true, Err: errors.New("x")}, Fence: fence(9)}, 10},
		{Snapshot{Elected: elected(5), Fence: fence(9), Current: Stored[Current]{Exists: true, Record: Current{Term: 20}}}, 21},
	} {
		var m LastKnown
		m.Update(&c.s)
		if got := m.Next(kept, wall); got != c.want {
			t.Errorf("%+v: %d, want %d", c.s, got, c.want)
		}
		if m.Update(&Snapshot{}); m.Next(kept, wall) != c.want {
			t.Errorf("%+v: forgotten when all is deleted: %d, want %d", c.s, m.Next(kept, wall), c.want)
		}
	}
}
