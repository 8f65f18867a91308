package watchdog

import (
	"errors"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// The elector's clock does not start at 0.
const begin = time.Hour

const revokeTimeout, kill = 10 * time.Second, time.Second // as holds writes them

// TestLimits tests when a limit is reached, and when the watchdog asks to be called again.
func TestLimits(t *testing.T) {
	damaged := errors.New("damaged")
	fence := func(s cluster.Snapshot, state cluster.FenceState, leaseWait, owed time.Duration) cluster.Snapshot {
		s.Fence = cluster.Stored[cluster.Fence]{Exists: true, Record: cluster.Fence{Node: "a", Incarnation: "a", Term: 7, State: state,
			LeaseWait: cluster.Duration(leaseWait), Owed: cluster.Duration(owed), Kill: cluster.Duration(kill), RevokeTimeout: cluster.Duration(revokeTimeout)}}
		return s
	}
	current := func(s cluster.Snapshot, id string) cluster.Snapshot {
		s.Current = cluster.Stored[cluster.Current]{Exists: true, Stat: cluster.Stat{Created: 5}, Record: cluster.Current{Incarnation: id}}
		return s
	}
	cause := func(s cluster.Snapshot, c cluster.Cause) cluster.Snapshot {
		s.Elected.Record.Cause = c
		return s
	}
	unreadable := func(s cluster.Snapshot) cluster.Snapshot {
		s.Elected = cluster.Stored[cluster.Elected]{Exists: true, Err: damaged}
		return s
	}
	lostFence := func(s cluster.Snapshot) cluster.Snapshot {
		s.Fence = cluster.Stored[cluster.Fence]{Exists: true, Err: damaged}
		return s
	}
	for _, c := range []struct {
		name     string
		snapshot cluster.Snapshot
		overdue  time.Duration // 0: never
		revoke   time.Duration
	}{
		{"a lease wait that was not taken over yet is the candidate's to serve", fence(elected("b", 8), cluster.FenceRevoked, 6*time.Second, 0), takeover + 6*time.Second, 0},
		{"a candidate with no wait left", current(fence(elected("a", 7), cluster.FenceHeld, 6*time.Second, 0), "a"), takeover, 0},
		{"a candidate with a part left", current(fence(elected("a", 7), cluster.FenceHeld, 6*time.Second, 2*time.Second), "a"), takeover + 2*time.Second, 0},
		{"a candidate whose current is damaged", current(fence(elected("a", 7), cluster.FenceHeld, 6*time.Second, 0), ""), takeover, 0},
		{"a candidate that holds current while the fence is damaged", current(lostFence(elected("b", 8)), "b"), takeover + own, 2 * own},
		{"no decision", current(fence(unreadable(elected("b", 8)), cluster.FenceReady, 6*time.Second, 0), "a"), 0, 0},
		{"neither decision nor leader", unreadable(elected("b", 8)), 0, 0},
		{"a leader that is ready", current(fence(elected("a", 7), cluster.FenceReady, 6*time.Second, 0), "a"), 0, 0},
		{"a leader that was replaced", current(fence(elected("b", 8), cluster.FenceReady, 6*time.Second, 0), "a"), 0, revokeTimeout},
		{"a leader that was replaced with a fence that is damaged", current(lostFence(elected("b", 8)), "a"), 0, 2 * own},
		{"a candidate that was overdue", cause(current(fence(elected("b", 8), cluster.FenceHeld, 6*time.Second, 0), "a"), cluster.CauseOverdue), 0, kill},
		{"a candidate that was replaced for another reason", cause(current(fence(elected("b", 8), cluster.FenceHeld, 6*time.Second, 0), "a"), cluster.CauseMove), 0, revokeTimeout},
		{"a leader that was declared ready when it was overdue", cause(current(fence(elected("b", 8), cluster.FenceReady, 6*time.Second, 0), "a"), cluster.CauseOverdue), 0, revokeTimeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWatchdog()
			first := w.Observe(c.snapshot, begin)
			if at := cluster.Earliest(c.overdue, c.revoke); at > 0 && first.Wake != begin+at || at == 0 && first.Wake != 0 {
				t.Errorf("wakes after %s, want %s", first.Wake-begin, at)
			}
			for _, after := range []time.Duration{0, c.overdue - 1, c.overdue, c.revoke - 1, c.revoke, time.Hour} {
				after = max(after, 0)
				f := w.Observe(c.snapshot, begin+after)
				if (f.Overdue != "") != (c.overdue > 0 && after >= c.overdue) {
					t.Errorf("after %s: overdue %q, want it after %s", after, f.Overdue, c.overdue)
				}
				if (f.Revoke != "") != (c.revoke > 0 && after >= c.revoke) {
					t.Errorf("after %s: revoke %q, want it after %s", after, f.Revoke, c.revoke)
				}
			}
		})
	}
}

// The watchdog wakes at the first of several limits, in any order of the record, and never for one that is over.
func TestWakesAtTheFirstLimit(t *testing.T) {
	for _, order := range [][]time.Duration{{10, 20}, {20, 10}} {
		w := newWatchdog()
		s := holds(elected("a", 7), "a", 7, cluster.FenceReady)
		for i, d := range order {
			s.Elected.Record.Exclusions = append(s.Elected.Record.Exclusions, cluster.Exclusion{Node: string(rune('x' + i)), For: cluster.Duration(d * time.Second)})
		}
		for _, c := range []struct{ after, want time.Duration }{{0, 10}, {9, 10}, {10, 20}, {19, 20}} {
			f := w.Observe(s, begin+c.after*time.Second)
			if f.Wake != begin+c.want*time.Second {
				t.Errorf("exclusions of %v s, after %d s: wakes after %s, want %d s", order, c.after, f.Wake-begin, c.want)
			}
			for i, d := range order {
				if f.Exclusions[i].Expired != (c.after >= d) {
					t.Errorf("after %d s: an exclusion of %d s is expired: %v", c.after, d, f.Exclusions[i].Expired)
				}
			}
		}
		if f := w.Observe(s, begin+20*time.Second); f.Wake != 0 {
			t.Errorf("wakes at %s although everything is over", f.Wake)
		}
	}
}

// Strikes are cleared after an uninterrupted time as leader.
func TestAnInterruptionRestartsTheStrikeReset(t *testing.T) {
	leads := func(term int64) cluster.Snapshot {
		s := holds(elected("a", term), "a", term, cluster.FenceReady)
		s.Elected.Record.Exclusions = []cluster.Exclusion{{Node: "a", Strikes: 2, Expired: true}}
		return s
	}
	interrupted := leads(7)
	interrupted.Current.Exists = false
	for name, c := range map[string]struct {
		between cluster.Snapshot
		after   int64
	}{
		"current was gone for a moment": {interrupted, 7},
		"a new term":                    {leads(8), 8},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatchdog()
			w.Observe(leads(7), begin)
			w.Observe(c.between, begin+time.Minute)
			again := begin + time.Minute
			for _, at := range []time.Duration{again, begin + resetAfter, again + resetAfter - 1} {
				if f := w.Observe(leads(c.after), at); len(f.Exclusions) != 1 {
					t.Errorf("cleared after %s", at-begin)
				}
			}
			if f := w.Observe(leads(c.after), again+resetAfter); len(f.Exclusions) != 0 {
				t.Error("not cleared")
			}
		})
	}
}

// While the record of slots is missing, no candidate can take over, and none is to blame.
func TestTheTimeWithoutTheRecordOfSlotsDoesNotCount(t *testing.T) {
	w := newWatchdog()
	s := elected("a", 7)
	s.Slot = "0"
	s.Slots = cluster.Stored[cluster.Slots]{Exists: true, Record: cluster.Slots{SlotSize: cluster.SlotSize{Count: 1, PerNode: 1}, Epoch: 5}}
	w.Observe(s, 0)
	deleted := s
	deleted.Slots = cluster.Stored[cluster.Slots]{}
	if f := w.Observe(deleted, 2*takeover); f.Overdue != "" || f.Wake != 0 {
		t.Errorf("%+v", f)
	}
	if f := w.Observe(s, 3*takeover); f.Overdue != "" || f.Wake != 4*takeover {
		t.Errorf("%+v", f)
	}
	if f := w.Observe(s, 4*takeover); f.Overdue == "" {
		t.Error("not overdue")
	}
}
