package request

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

func TestPause(t *testing.T) {
	lasting := bob()
	lasting.For = time.Hour
	for name, c := range map[string]struct {
		options  Options
		hard     bool
		before   *cluster.Pause
		messages []string
		last     string
	}{
		"soft":            {bob(), false, nil, []string{"paused: policy does not replace a healthy leader; a leader that fails is still replaced"}, "pause by bob@host"},
		"soft for a time": {lasting, false, nil, []string{"paused for 1h0m0s: policy does not replace a healthy leader; a leader that fails is still replaced"}, "pause by bob@host"},
		"hard":            {lasting, true, nil, []string{"paused hard for 1h0m0s: the leader stays, and nobody replaces it, not even if it fails"}, "hard pause by bob@host"},
		"replacing one": {bob(), false, &cluster.Pause{Request: ann(1), Hard: true}, []string{
			"replaces the pause by ann@host: new kernel", "paused: policy does not replace a healthy leader; a leader that fails is still replaced",
		}, "pause by bob@host"},
	} {
		h := group(t).leads("a1")
		h.control().Pause, h.control().Last = c.before, 3
		plan, err := h.planFor(pause(c.options, c.hard))
		if err != nil || !slices.Equal(plan.Messages, c.messages) || plan.Control.LastRequest != c.last {
			t.Errorf("%s: %v, %q, the last is %q", name, err, plan.Messages, plan.Control.LastRequest)
		}
		d := cluster.Duration(c.options.For)
		want := &cluster.Pause{Request: cluster.Request{ID: 4, By: "bob@host", Reason: "test", For: d, Remaining: d, Time: wall}, Hard: c.hard}
		if !reflect.DeepEqual(plan.Control.Pause, want) {
			t.Errorf("%s: planned %+v", name, plan.Control.Pause)
		}
		h.q.Snapshot.Members = h.q.Snapshot.Members[1:]
		h.q.Snapshot.Current = cluster.Stored[cluster.Current]{}
		if out := h.after(plan); out.HasLeader() == c.hard {
			t.Errorf("%s: after the leader has failed %q leads", name, out.Leader.ID)
		}
	}
}

func TestResume(t *testing.T) {
	for _, hard := range []bool{false, true} {
		h := group(t).leads("a1")
		h.control().Pause, h.control().Last = &cluster.Pause{Request: ann(3), Hard: hard}, 3
		plan, err := h.planFor(resume(bob()))
		if err != nil || !slices.Equal(plan.Messages, []string{"ended: the pause by ann@host: new kernel"}) || plan.Control.Pause != nil || plan.Control.LastRequest != "resume by bob@host" {
			t.Errorf("%v, %+v", err, plan)
		}
		if done, ok := plan.Control.Ended(3); !ok || done.What != "pause" || done.Outcome != "ended by bob@host" || !done.Time.Equal(wall) {
			t.Errorf("ended as %+v", done)
		}
	}
}

func TestClearStrikes(t *testing.T) {
	strikes := []cluster.Exclusion{
		{Node: "b1", Strikes: 2, For: cluster.Duration(time.Hour), Term: 6, Reason: "stalled"},
		{Node: "b2", Strikes: 1, Expired: true, Term: 3, Reason: "its task failed"},
	}
	for name, c := range map[string]struct {
		node     string
		messages []string
		last     string
	}{
		"one": {"b1", []string{"cleared: strike 2 of b1: stalled"}, "clear-strikes of b1 by bob@host"},
		"all": {"", []string{"cleared: strike 2 of b1: stalled", "cleared: strike 1 of b2: its task failed"}, "clear-strikes of all by bob@host"},
	} {
		h := group(t).leads("a1")
		h.q.Snapshot.Elected.Record.Exclusions = strikes
		plan, err := h.planFor(clearStrikes(bob(), c.node))
		if err != nil || !slices.Equal(plan.Messages, c.messages) || plan.Control.LastRequest != c.last {
			t.Fatalf("%s: %v, %q, the last is %q", name, err, plan.Messages, plan.Control.LastRequest)
		}
		f := plan.Control.ClearedStrikes
		if len(f) != 1 || f[0].Term != 7 || f[0].Node != c.node || f[0].ID != plan.ID || f[0].By != "bob@host" {
			t.Fatalf("%s: planned %+v", name, f)
		}
		for _, x := range strikes {
			if want := c.node == "" || c.node == x.Node; f[0].Covers(x) != want {
				t.Errorf("%s: covers %+v: %t", name, x, !want)
			}
		}
		if later := (cluster.Exclusion{Node: "b1", Term: 7}); f[0].Covers(later) {
			t.Errorf("%s: covers a strike of the current term", name)
		}
	}
}

// Strikes that were cleared are no longer those of the node, although the elector has not written that yet.
func TestStrikesThatWereCleared(t *testing.T) {
	h := group(t).leads("a1")
	for _, id := range []string{"a2", "b1", "b2"} {
		x := cluster.Exclusion{Node: id, Strikes: 1, For: cluster.Duration(time.Hour), Term: 6, Reason: "stalled", Time: wall}
		h.q.Snapshot.Elected.Record.Exclusions = append(h.q.Snapshot.Elected.Record.Exclusions, x)
	}
	const failed = "nobody is left who has not failed: b1 had strike 1: stalled\n"
	drains := func() string {
		t.Helper()
		plan, err := h.planFor(cordon(bob(), "a1", "", true))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(plan.Messages, "\n")
	}
	if got := drains(); !strings.HasPrefix(got, failed) {
		t.Errorf("%q", got)
	}
	plan, err := h.planFor(clearStrikes(bob(), "b1"))
	if err != nil {
		t.Fatal(err)
	}
	*h.control() = plan.Control
	if got := drains(); strings.Contains(got, "failed") || !strings.Contains(got, "to b1 (dc2)") {
		t.Errorf("once they are cleared: %q", got)
	}
	var none *NotAffectedError
	if _, err := h.planFor(clearStrikes(bob(), "b1")); !errors.As(err, &none) || !none.Done {
		t.Errorf("a second time: %v", err)
	}
}
