package recorder

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"zkelectd/internal/cluster"
	"zkelectd/internal/corejson"
	"zkelectd/internal/transition"
)

// The text of a renewal is what corejson writes, whatever was written before it.
func TestTextOfRenewals(t *testing.T) {
	var r renewal
	renewals := 0
	rapid.Check(t, func(t *rapid.T) {
		draw := func(what string) time.Duration { return time.Duration(rapid.Int64Range(0, 1<<40).Draw(t, what)) }
		term := rapid.Int64Range(1, 2).Draw(t, "term")
		held := cluster.HeldVersions{Fence: rapid.Int32Range(1, 2).Draw(t, "fence")}
		op := cluster.Op{Kind: cluster.OpCheck, Path: rapid.SampledFrom([]string{"/g/leader", "/g/leader/\"current"}).Draw(t, "path"), Version: held.Fence}
		s := &Step{
			Now: draw("now"), Wall: time.Unix(0, rapid.Int64Range(0, 1<<60).Draw(t, "wall")).In(rapid.SampledFrom([]*time.Location{time.UTC, time.FixedZone("", 3600)}).Draw(t, "zone")),
			Event: transition.RenewDone{Term: term, Held: held, Sent: draw("sent")},
			Actions: []transition.Action{
				transition.Lease{Deadline: draw("lease")},
				transition.Renew{Term: term, Held: held, Ops: []cluster.Op{op}, Due: draw("due"), Deadline: draw("deadline")},
			},
		}
		switch rapid.IntRange(0, 9).Draw(t, "kind") {
		case 0:
			s.Event = transition.RenewDone{Term: term, Held: held, Err: errors.New("lost")}
		case 1:
			s.Actions = s.Actions[:1]
		}
		got, is := r.append(nil, s)
		if is {
			renewals++
			if want := corejson.Encode(s); string(got) != string(want) {
				t.Fatalf("got  %s\nwant %s", got, want)
			}
		}
	})
	if renewals < 20 {
		t.Errorf("only %d were renewals", renewals)
	}
}
