package request

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector/whatif"
)

func TestCheck(t *testing.T) {
	const node, all = "name exactly one of node and site", "name exactly one of node, site and all"
	for _, c := range []struct {
		r    Request
		want string
	}{
		{Request{Kind: KindMove}, node},
		{Request{Kind: KindMove, Best: true}, ""},
		{Request{Kind: KindMove, Target: "b1", Node: "b1"}, node},
		{Request{Kind: KindMove, Target: "b1"}, ""},
		{Request{Kind: KindCordon, Target: "b1", Site: "dc1"}, node},
		{Request{Kind: KindDrain, Node: "a1", Site: "dc1"}, node},
		{Request{Kind: KindUncordon}, all},
		{Request{Kind: KindUncordon, Node: "a1", All: true}, all},
		{Request{Kind: KindClearStrikes}, "name exactly one of node and all"},
		{Request{Kind: KindClearStrikes, Node: "a1", All: true}, "name exactly one of node and all"},
		{Request{Kind: KindPause, Options: Options{For: -time.Second}}, "for a negative time"},
		{Request{Kind: KindReelect, Options: Options{Reason: strings.Repeat("x", MaxReason+1)}}, "the reason has 501 bytes: at most 500"},
		{Request{Kind: KindReelect, Options: Options{Reason: strings.Repeat("x", MaxReason)}}, ""},
		{Request{Kind: KindUncordon, All: true}, ""},
	} {
		if err := c.r.Check(); (err == nil) != (c.want == "") || (err != nil && !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v, want %s", c.r, err, c.want)
		}
	}
}

func TestDurationIsBounded(t *testing.T) {
	r := Request{Kind: KindPause, Options: Options{For: cluster.MaxRequestTime}}
	if err := r.Check(); err != nil {
		t.Error(err)
	}
	if r.Options.For++; r.Check() == nil {
		t.Error("a longer one is accepted")
	}
}

// Daemons can read the record however many requests with long reasons it holds, and the requests can be ended.
func TestRecordSizeIsBounded(t *testing.T) {
	h := group(t).leads("a1")
	by := bob()
	by.Reason = strings.Repeat("\x01", MaxReason) // six bytes each as JSON
	for i := range 200 {
		h.q.Snapshot.Members = append(h.q.Snapshot.Members, member(fmt.Sprint("x", i), "dc3", int32(10+i), 0))
	}
	refused := ""
	for i := 0; i < 200 && refused == ""; i++ {
		plan, err := Request{Kind: KindCordon, Node: fmt.Sprint("x", i), Options: by}.Plan(h.q)
		if err != nil {
			refused = err.Error()
			break
		}
		h.q.Snapshot.Control = exists(plan.Control)
	}
	if !strings.Contains(refused, "there are too many requests with long reasons") {
		t.Errorf("%q", refused)
	}
	if n := len(cluster.Encode(&h.q.Snapshot.Control.Record)); n > cluster.MaxRecord {
		t.Errorf("%d bytes", n)
	}
	plan, err := Request{Kind: KindUncordon, All: true, Options: by}.Plan(h.q)
	if n := len(cluster.Encode(&plan.Control)); err != nil || n > cluster.MaxRecord {
		t.Errorf("%v, %d bytes", err, n)
	}
}

// Requests about one leader need a slot in a group with slots, and those about a whole group refuse one.
func TestScopeOfRequests(t *testing.T) {
	for _, kind := range Kinds() {
		r := Request{Kind: kind, Options: bob()}
		if kind.Takes(FieldNode) {
			r.Node = "a1"
		}
		whole := group(t).leads("a1").q
		whole.Slots = []whatif.Question{}
		slot := group(t).leads("a1").q
		slot.Snapshot.Slot = "3"
		_, err := r.Plan(whole)
		if refused := err != nil && strings.Contains(err.Error(), "needs a slot"); refused != kind.OfSlot() {
			t.Errorf("%s for a whole group: %v", kind, err)
		}
		_, err = r.Plan(slot)
		if refused := err != nil && strings.Contains(err.Error(), "is for the whole group, not for slot 3"); refused == kind.OfSlot() {
			t.Errorf("%s for a slot: %v", kind, err)
		}
	}
}
