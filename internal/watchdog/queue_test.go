package watchdog

import (
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// inQueue returns a snapshot in which the elected member says whether it waits for room on its host.
func inQueue(s cluster.Snapshot, queued bool) cluster.Snapshot {
	m := cluster.Member{Incarnation: cluster.Incarnation{Name: s.Elected.Record.Incarnation}}
	m.Node.Record.Queued = queued
	s.Members = []cluster.Member{m, {Incarnation: cluster.Incarnation{Name: "other"}, Node: cluster.Stored[cluster.Node]{Record: cluster.Node{Queued: true}}}}
	return s
}

func TestTimeInTheQueueIsNotCounted(t *testing.T) {
	w := newWatchdog()
	s := elected("a", 7)
	w.Observe(inQueue(s, false), 0)
	w.Observe(inQueue(s, true), 10*time.Second)
	if f := w.Observe(inQueue(s, true), 50*time.Second); f.Overdue != "" || f.Wake <= 50*time.Second {
		t.Errorf("while it is queued: %q, wake %s", f.Overdue, f.Wake)
	}
	if f := w.Observe(inQueue(s, false), 60*time.Second); f.Overdue != "" || f.Wake != takeover+50*time.Second {
		t.Errorf("after the queue: %q, wake %s", f.Overdue, f.Wake)
	}
	if f := w.Observe(inQueue(s, false), takeover+50*time.Second-1); f.Overdue != "" {
		t.Errorf("just before: %q", f.Overdue)
	}
	if f := w.Observe(inQueue(s, false), takeover+50*time.Second); !strings.Contains(f.Overdue, "within 30s, not counting 50s in its host's queue") {
		t.Errorf("when its time is up: %q", f.Overdue)
	}
}

// L2: a candidate that stays in the queue, or leaves and enters it again and again, is overdue after a bounded time.
func TestTheQueueIsBounded(t *testing.T) {
	for what, step := range map[string]time.Duration{"stays": time.Hour, "flaps": time.Second} {
		w := newWatchdog()
		s := elected("a", 7)
		for now := time.Duration(0); ; now += time.Second {
			f := w.Observe(inQueue(s, now/step%2 == 0), now)
			if f.Overdue != "" {
				if now < takeover+queueMax && what == "stays" {
					t.Errorf("%s: overdue after %s", what, now)
				}
				break
			}
			if now > takeover+queueMax || f.Wake > takeover+queueMax {
				t.Fatalf("%s: not overdue after %s, wake %s", what, now, f.Wake)
			}
		}
	}
	// The next term begins anew.
	w := newWatchdog()
	w.Observe(inQueue(elected("a", 7), true), 0)
	w.Observe(inQueue(elected("a", 7), true), queueMax)
	w.Observe(inQueue(elected("b", 8), false), queueMax)
	if f := w.Observe(inQueue(elected("b", 8), false), queueMax+takeover); f.Overdue == "" {
		t.Error("the next candidate inherits the time in the queue")
	}
}
