package replay

import (
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/failsafe"
	"zkelectd/internal/recorder"
	"zkelectd/internal/transition"
)

// What a leader in failsafe mode was given, and did, is recorded and replayed, with a part that ends in the middle of an outage.
func TestFailsafeModeIsReplayed(t *testing.T) {
	first, second := dirs(t)
	h := newHost(t, first, "a", boot)
	machine := transition.New(transition.Options{
		Paths: h.paths, Self: h.self, Budget: budget, Wall: func() time.Time { return h.wall },
		Failsafe: &transition.Failsafe{Key: "ka", Start: 1<<63 + 7},
	})
	h.source = h.rec.NewSource(recorder.About{Group: "g", Root: "/g", Node: "a", Incarnation: h.self.Name, Budget: budget}, recorder.Core{Machine: machine})
	at := time.Second
	h.lead(at, 5, 100)
	snap := h.snapshot(at+6, 5, 100)
	snap.MembersRead, snap.Policy.Exists, snap.Policy.Record.Failsafe.Enabled = true, true, true
	snap.Fence.Record = cluster.Fence{Term: 5, Incarnation: h.self.Name, State: cluster.FenceReady}
	snap.Current = cluster.Stored[cluster.Current]{Exists: true, Stat: cluster.Stat{Owner: 7}, Record: cluster.Current{Term: 5, Incarnation: h.self.Name, State: cluster.CurrentReady}}
	snap.Members = []cluster.Member{{Incarnation: cluster.Incarnation{ID: "b", Name: "b-0000000000000001-n_0000000002"}, Node: cluster.Stored[cluster.Node]{
		Exists: true, Record: cluster.Node{SessionTimeout: cluster.Duration(budget.Session), Failsafe: &cluster.FailsafeNode{Key: "kb", Address: "b:7"}},
	}}}
	h.step(at+6, transition.Saw{Snapshot: snap})
	h.step(at+7, transition.TxDone{Tx: transition.TxSetMembers, Results: make([]cluster.Result, 8)})
	at += budget.Lease / 2
	var asked []failsafe.Message
	for _, a := range h.source.Step(at, h.wall, transition.Tick{}) {
		if r, ok := a.(transition.SendRound); ok {
			asked = r.Messages
		}
	}
	if len(asked) != 1 || asked[0].Address != "b:7" {
		t.Fatalf("asked %+v", asked)
	}
	refused := failsafe.Reply{Request: asked[0].Request, Reason: failsafe.ReasonProbing, Retry: cluster.Duration(time.Millisecond)}
	h.step(at+1, transition.RoundReply{Reply: refused})
	h.step(at+2, transition.RoundReply{Reply: failsafe.Reply{Request: asked[0].Request, OK: true}})
	if !machine.Extended() {
		t.Error("the lease is not extended")
	}
	h.step(at+3, transition.Remembered{Term: 4, Err: cluster.ErrUnknown})
	h.stop(at + 4)
	h.close()
	other := newHost(t, second, "b", boot)
	other.close()
	r := report(t, first, second)
	if !r.OK() || len(r.Gaps) > 0 {
		t.Errorf("violated: %s; gaps: %q", violated(t, r), r.Gaps)
	}
	for _, c := range r.Checks {
		if len(c.Notes) > 0 {
			t.Errorf("%s: checked %s, notes: %q", c.Name, c.Checked, c.Notes)
		}
	}
}
