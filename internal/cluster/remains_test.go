package cluster

import (
	"strings"
	"testing"
	"time"
)

// remaining returns a znode with a record, written at a time.
func remaining(path string, r record, written time.Time) RemainingZnode {
	return RemainingZnode{Path: path, Data: Encode(r), Stat: Stat{Version: 1, Time: written}}
}

// The last token is the highest of all leaderships, those of slots that are no longer counted included, or the epoch.
func TestLastTokenOfRemains(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	p := Paths{Root: "/g"}
	fence := func(p Paths, term int64) RemainingZnode {
		return remaining(p.Leader(), &Fence{Term: term, Node: "n1", State: FenceReleased}, now)
	}
	slots := func(epoch int64) RemainingZnode {
		return remaining(p.Slots(), &Slots{SlotSize: SlotSize{Count: 1, PerNode: 1}, Epoch: epoch}, now)
	}
	for name, c := range map[string]struct {
		znodes []RemainingZnode
		want   int64
		of     string
	}{
		"nothing":            {nil, 0, "term"},
		"never led":          {[]RemainingZnode{{Path: p.Leader()}}, 0, "term"},
		"a leader":           {[]RemainingZnode{fence(p, 7)}, 7, "term"},
		"a decision":         {[]RemainingZnode{fence(p, 7), remaining(p.Elected(), &Elected{Term: 8, Node: "n1"}, now)}, 8, "term"},
		"slots":              {[]RemainingZnode{slots(5), fence(p.OfSlot(0), 7)}, 7, "term"},
		"an epoch":           {[]RemainingZnode{slots(9), fence(p.OfSlot(0), 7)}, 9, "epoch"},
		"an uncounted slot":  {[]RemainingZnode{slots(5), fence(p.OfSlot(0), 7), fence(p.OfSlot(1), 8)}, 8, "term"},
		"a term beyond time": {[]RemainingZnode{fence(p, MaxTerm(now)+TermSlack+1)}, 0, "term"},
	} {
		r := Remains{Paths: p, Znodes: c.znodes}
		if got, of := r.LastToken(); got != c.want || of != c.of {
			t.Errorf("%s: %s %d, want %s %d", name, of, got, c.of, c.want)
		}
	}
}

// What is left is described, even if it is only the record of the name.
func TestDescribeRemains(t *testing.T) {
	t.Parallel()
	p := Paths{Root: "/elsewhere/g"}
	name := &RemainingZnode{Path: "/zkelectd/g"}
	for want, r := range map[string]Remains{
		"/elsewhere/g and the 0 znodes below it":                                          {Paths: p, Znodes: []RemainingZnode{{Path: p.Root}}},
		"/elsewhere/g and the 0 znodes below it\n/zkelectd/g, the record of its root":     {Paths: p, Znodes: []RemainingZnode{{Path: p.Root}}, Name: name},
		"/zkelectd/g, the record of its root /elsewhere/g, which does not exist any more": {Paths: p, Name: name},
	} {
		if got := strings.Join(r.Describe(), "\n"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
