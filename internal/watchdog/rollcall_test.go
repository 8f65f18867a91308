package watchdog

import (
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// called makes a roll call visible to a deputy.
func (x *deputyTest) called(term, lease int64) {
	call := cluster.RollCall{Term: term, Number: cluster.NewInstance(1), Lease: lease}
	x.snap.RollCall = cluster.Stored[cluster.RollCall]{Exists: true, Record: call}
}

// caller is a deputy at a place that has sighted the lease at 1 s, in a group with roll calls.
func caller(t *testing.T, place int, timeout time.Duration) *deputyTest {
	t.Helper()
	x := newDeputyTest(t, place)
	x.in.RollCallTimeout, x.in.Seen = timeout, seen(1, time.Second)
	if out := x.at(time.Second); out.CallRoll {
		t.Fatalf("calls the roll at once: %+v", out)
	}
	return x
}

func TestADeputyCallsTheRollBeforeTheLeaseIsOver(t *testing.T) {
	for name, c := range map[string]struct {
		place         int
		timeout, want time.Duration
	}{
		"as late as answers may take":   {0, time.Second, time.Second + wait - time.Second},
		"not before the work is killed": {0, time.Minute, time.Second + wait/4*3},
		"the second deputy":             {1, time.Second, time.Second + wait - time.Second + 300*time.Millisecond},
	} {
		x := caller(t, c.place, c.timeout)
		if out := x.at(c.want - 1); out.CallRoll || out.Wake != c.want {
			t.Errorf("%s: %+v, want to call at %s", name, out, c.want)
		}
		if out := x.at(c.want); !out.CallRoll || out.Ask || out.Act {
			t.Errorf("%s: does not only call the roll: %+v", name, out)
		}
	}
	if out := caller(t, 0, 0).at(time.Second + wait); out.CallRoll {
		t.Error("a group without roll calls")
	}
	x := newDeputyTest(t, 0)
	x.in.RollCallTimeout = time.Second
	if out := x.at(time.Hour); out.CallRoll {
		t.Error("without a sighting")
	}
	x = caller(t, 0, time.Second)
	x.in.Reconnects++
	if out := x.at(4 * time.Second); out.CallRoll || out.Wake > 6*time.Second {
		t.Errorf("ZooKeeper was away: %+v", out)
	}
}

func TestOneEarlyRollCallIsEnough(t *testing.T) {
	x := caller(t, 0, time.Second)
	x.snap.Fence.Record.LeaseWait = cluster.Duration(wait)
	lease := x.in.Seen.Stat.Modified
	x.called(7, lease)
	if out := x.at(4 * time.Second); out.CallRoll {
		t.Error("called again")
	}
	x.called(6, lease)
	if out := x.at(4 * time.Second); !out.CallRoll {
		t.Error("one for the decision before counts")
	}
	for _, other := range []int64{0, lease - 1} {
		x.called(7, other)
		if out := x.at(4 * time.Second); !out.CallRoll {
			t.Error("one for another reason, or before a renewal, counts")
		}
	}
	x.called(7, lease+1)
	if out := x.at(4 * time.Second); out.CallRoll {
		t.Error("called again by a deputy that reads late")
	}
	x.snap.Fence.Record.Failsafe = &cluster.Failsafe{Members: []cluster.FailsafeMember{{}}}
	x.called(6, lease)
	if out := x.at(4 * time.Second); out.CallRoll {
		t.Error("called although the holder may work on by promises")
	}
	x.snap.Fence.Record.Failsafe = nil
	x.called(7, lease)
	x.in.Seen = seen(2, 3500*time.Millisecond) // the holder was only late
	x.at(3500 * time.Millisecond)
	if out := x.at(3500*time.Millisecond + wait - time.Second); !out.CallRoll {
		t.Error("after a renewal, the roll is not called again")
	}
}

// An elector that waits for answers does its work.
func TestDeputiesGiveAnElectorTimeForARollCall(t *testing.T) {
	x := newDeputyTest(t, 1)
	x.snap.Fence.Record.State = cluster.FenceReleased
	x.called(7, 0)
	x.snap.RollCall.Record.Timeout = cluster.Duration(5 * time.Second)
	want := time.Second + wait + 300*time.Millisecond + 5*time.Second
	if out := x.at(time.Second); out.Act || out.Wake != want {
		t.Errorf("%+v, want to act at %s", out, want)
	}
	if out := x.at(want); !out.Act {
		t.Error("does not act")
	}
}
