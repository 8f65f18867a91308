package elector

import (
	"fmt"
	"hash/fnv"
	"time"

	"zkelectd/internal/cluster"
)

// retryMax is the longest pause between two attempts of the same write.
const retryMax = 5 * time.Second

// Retry paces the elector's writes (docs/protocol.md, Transactions): a failed one is repeated after a growing pause, or
// at once if something else has been read, so that it is another write. An election that only repairs the records
// counts as a failure even if it took effect, because they may be damaged again.
type Retry struct {
	what     string // the write that failed last
	seen     uint64 // what it was made from
	failures int
	at       time.Duration // not before this is the write repeated
	soon     time.Duration // the same, if something else has been read
	logged   string
}

// Wait returns the time until which nothing may be written; 0 if a write is due. others are the other slots.
func (r *Retry) Wait(s *cluster.Snapshot, others []cluster.SlotState, now time.Duration) time.Duration {
	if now >= r.at {
		return 0
	}
	if r.seen != basis(s, others) {
		if now >= r.soon {
			return 0
		}
		return r.soon
	}
	return r.at
}

// Failed records that a write made from s and others was refused or had no reply. It reports whether to log that: if
// the error is permanent, or the same write has failed before, and this reason was not logged yet. base is the first
// pause.
func (r *Retry) Failed(what string, s *cluster.Snapshot, others []cluster.SlotState, err error, permanent bool, now,
	base time.Duration) bool {
	repeated := r.fail(what, basis(s, others), now, base)
	r.soon = now + base
	if text := err.Error(); (repeated || permanent) && text != r.logged {
		r.logged = text
		return true
	}
	return false
}

// Repaired records that an election that repairs records took effect.
func (r *Retry) Repaired(now, base time.Duration) {
	r.fail(repairing, 0, now, base)
	r.soon = r.at
}

// Succeeded records that a write took effect.
func (r *Retry) Succeeded(what string) {
	if r.what == what || r.what == repairing {
		*r = Retry{}
	}
}

const repairing = "repair"

// fail schedules the next attempt, and reports whether the same write has failed before.
func (r *Retry) fail(what string, seen uint64, now, base time.Duration) (repeated bool) {
	if repeated = r.what == what && now-r.at < 2*retryMax; !repeated {
		*r = Retry{what: what, logged: r.logged}
	}
	r.seen, r.at = seen, now+min(base<<min(r.failures, 20), retryMax)
	r.failures++
	return repeated
}

// basis returns a hash of what a decision was made from: everything that a write of the elector checks.
func basis(s *cluster.Snapshot, others []cluster.SlotState) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, s.Policy.Stat.Modified, s.Policy.Exists, s.Control.Stat.Modified, s.Control.Exists,
		s.Slots.Stat.Modified, s.Slots.Exists)
	for _, slot := range append([]cluster.SlotState{s.SlotState()}, others...) {
		fmt.Fprint(h, slot.Slot, " ", slot.Elected.Stat.Modified, slot.Elected.Exists, slot.Fence.Stat.Modified,
			slot.Fence.Exists,
			slot.Current.Stat.Modified, slot.Current.Exists)
	}
	for _, m := range s.Members {
		fmt.Fprint(h, m.Name, " ")
	}
	return h.Sum64() | 1
}
