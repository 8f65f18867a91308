package watchdog

import (
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// taken returns what a deputy sees of a holder in session 7, and of its lease znode at a version.
func taken(version int32) (cluster.Snapshot, cluster.LeaseSeen) {
	const session = 7
	s := holds(elected("a", 7), "a", 7, cluster.FenceReady)
	znode := cluster.LeaseZnode("/h", "a", session)
	s.Fence.Record.Session, s.Fence.Record.Lease, s.Fence.Stat = session, znode, cluster.Stat{Version: 3, Created: 20, Modified: 40}
	return s, cluster.LeaseSeen{Znode: znode, Exists: true, Stat: cluster.Stat{Version: version, Owner: session, Created: 10, Modified: 50 + int64(version)}, At: time.Second}
}

// The servers may end a session just when the lease is over, before TAKE or while it is under way. No new lease follows from that, and
// the whole lease wait would have to be served again.
func TestASilentHolderStaysSilentWhenItsSessionEnds(t *testing.T) {
	silence := newSilence()
	snap, seen := taken(5)
	due := silence.Observe(&snap, seen, 0, time.Second)
	if due != time.Second+own {
		t.Fatalf("due %s after the sighting", due-time.Second)
	}
	gone := cluster.LeaseSeen{Znode: seen.Znode, At: due}
	if early := newSilence(); early.Observe(&snap, seen, 0, time.Second) == 0 || early.Observe(&snap, gone, 0, due-1) != 0 {
		t.Error("a sighting outlasts the end of the session, which may have come after another renewal")
	}
	silence.Confirm(seen)
	if at := silence.Observe(&snap, gone, 0, due); at == 0 || at > due || !silence.Confirmed() || silence.Seen().Exists {
		t.Errorf("due %s, confirmed %v, seen %v", at, silence.Confirmed(), silence.Seen())
	}
	bound := snap
	bound.Fence.Record.Failsafe = &cluster.Failsafe{Members: []cluster.FailsafeMember{{ID: "c"}}}
	if other := *silence; other.Observe(&bound, gone, 0, due) != 0 {
		t.Error("promises may have revived the lease, and the sighting outlasts the session")
	}
	silence.Refused(due)
	if at := silence.Observe(&snap, gone, 0, due); at <= due || at > due+time.Second || silence.Confirmed() {
		t.Errorf("after a refusal: due in %s, confirmed %v", at-due, silence.Confirmed())
	}
	snap.Fence.Stat.Modified++
	if at := silence.Observe(&snap, gone, 0, due+time.Second); at != 0 {
		t.Errorf("another fence: due at %s", at)
	}
}

// A renewal that comes to light after a refusal begins a new sighting.
func TestARenewalEndsTheSilence(t *testing.T) {
	silence := newSilence()
	snap, seen := taken(5)
	due := silence.Observe(&snap, seen, 0, time.Second)
	silence.Confirm(seen)
	silence.Refused(due)
	_, renewed := taken(6)
	renewed.At = due
	if at := silence.Observe(&snap, renewed, 0, due+1); at != due+own || silence.Confirmed() {
		t.Errorf("due %s after the renewal was read, confirmed %v", at-due, silence.Confirmed())
	}
}
