package elector

import (
	"fmt"
	"hash/fnv"
	"time"

	"zkelectd/internal/cluster"
)

// retryMax is the longest pause between two attempts at the same write.
const retryMax = 5 * time.Second

// Retry paces the elector's writes: one that failed is repeated after a pause that grows, unless what was read has changed
// so that it is another write. An election that only repairs the records counts as a failure even where it took effect, as
// whoever damaged them may do so again.
type Retry struct {
	what     string // the write that failed last
	seen     uint64 // what it was made from
	failures int
	at       time.Duration
	soon     time.Duration // where something else was read
	logged   string
}

// Wait returns until when nothing must be written; 0 if something may.
func (r *Retry) Wait(s *cluster.Snapshot, now time.Duration) time.Duration {
	if now >= r.at {
		return 0
	}
	if r.seen != basis(s) {
		if now >= r.soon {
			return 0
		}
		return r.soon
	}
	return r.at
}

// Failed notes that a write made from s was refused, or has no reply, and reports whether that is worth a line in the log: it
// will not pass by itself (lasting), or the same write has failed before, and this reason was not logged yet. base is the
// first pause.
func (r *Retry) Failed(what string, s *cluster.Snapshot, err error, lasting bool, now, base time.Duration) bool {
	repeated := r.fail(what, basis(s), now, base)
	r.soon = now + base
	if text := err.Error(); (repeated || lasting) && text != r.logged {
		r.logged = text
		return true
	}
	return false
}

// Repaired notes that an election that repairs records took effect.
func (r *Retry) Repaired(now, base time.Duration) {
	r.fail(repairing, 0, now, base)
	r.soon = r.at
}

// Succeeded notes that a write took effect.
func (r *Retry) Succeeded(what string) {
	if r.what == what || r.what == repairing {
		*r = Retry{}
	}
}

const repairing = "repair"

func (r *Retry) fail(what string, seen uint64, now, base time.Duration) (repeated bool) {
	if repeated = r.what == what && now-r.at < 2*retryMax; !repeated {
		*r = Retry{what: what, logged: r.logged}
	}
	r.seen, r.at = seen, now+min(base<<min(r.failures, 20), retryMax)
	r.failures++
	return repeated
}

// basis identifies what a decision was made from: everything that a write of the elector checks.
func basis(s *cluster.Snapshot) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, s.Elected.Stat.Modified, s.Elected.Exists, s.Fence.Stat.Modified, s.Fence.Exists, s.Current.Stat.Modified, s.Current.Exists,
		s.Policy.Stat.Modified, s.Policy.Exists, s.Control.Stat.Modified, s.Control.Exists)
	for _, m := range s.Members {
		fmt.Fprint(h, m.Name, " ")
	}
	return h.Sum64() | 1
}
