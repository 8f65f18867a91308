// Package watchdog notices takeovers and releases that are overdue, and keeps the exclusions. It is pure: the elector
// feeds it snapshots and its own monotonic time, so a new elector resumes from what is in ZooKeeper (L2, L3).
package watchdog

import (
	"fmt"
	"time"

	"zkelectd/internal/cluster"
)

// Options are the watchdog's limits.
type Options struct {
	// Takeover bounds the time from when the candidate could acquire until READY, without the lease wait it owes.
	Takeover time.Duration
	// StrikeResetAfter is how long a leader must have been READY for its strikes to be forgotten.
	StrikeResetAfter time.Duration
	// Trust is the elector's own: that of a candidate is not known before it has acquired.
	Trust cluster.Trust
}

// Findings are what the watchdog has to say of one snapshot.
type Findings struct {
	// Overdue is why the elected candidate has used up its time; empty if it has not.
	Overdue string
	// Revoke is why current must be taken away from its holder; empty if not.
	Revoke string
	// Exclusions are those of the elected record, brought up to date, and Age how long each has been seen (by index).
	Exclusions []cluster.Exclusion
	Age        []time.Duration
	// Wake is when the findings may change with no event; 0 if never.
	Wake time.Duration
}

// Watchdog remembers since when it has seen what.
type Watchdog struct {
	opt  Options
	able span // the candidate of a term could take over
	held span // a replaced holder keeps current
	led  span // a leader has been READY
	seen map[strike]time.Duration
}

type strike struct {
	node    string
	strikes int
	term    int64
}

// span is a condition, identified by key, that has held since a time.
type span struct {
	key   string
	since time.Duration
}

// hold starts the span anew unless the same key already holds; an empty key ends it.
func (s *span) hold(key string, now time.Duration) {
	if s.key != key {
		*s = span{key: key, since: now}
	}
}

// New returns a watchdog that has seen nothing.
func New(opt Options) *Watchdog {
	return &Watchdog{opt: opt, seen: make(map[strike]time.Duration)}
}

// Observe takes in a snapshot, read by the elector, at the monotonic time now.
func (w *Watchdog) Observe(s cluster.Snapshot, now time.Duration) Findings {
	var f Findings
	wake := func(at time.Duration) {
		if at > now {
			f.Wake = cluster.Earliest(f.Wake, at)
		}
	}
	w.takeover(s, now, &f, wake)
	w.release(s, now, &f, wake)
	w.exclusions(s, now, &f, wake)
	return f
}

// takeover finds the elected candidate overdue. The time that its predecessor keeps current is not counted: the span
// begins once nobody else's current stands in the way.
func (w *Watchdog) takeover(s cluster.Snapshot, now time.Duration, f *Findings, wake func(time.Duration)) {
	var key string
	limit := w.opt.Takeover
	if s.Elected.Readable() && !s.Ready() {
		e := s.Elected.Record
		blocked := s.Current.Exists && !s.Acquired() && s.Current.Record.Incarnation != e.Incarnation
		if !blocked {
			key = fmt.Sprintf("%d %s", e.Term, e.Incarnation)
		}
		if s.Acquired() {
			limit += time.Duration(s.Fence.Record.Owed)
		} else {
			owed, _ := s.Owed(w.opt.Trust)
			limit += owed
		}
	}
	w.able.hold(key, now)
	if key == "" {
		return
	}
	if now-w.able.since >= limit {
		f.Overdue = fmt.Sprintf("not READY within %s", limit.Round(time.Millisecond))
		return
	}
	wake(w.able.since + limit)
}

// release finds a holder overdue that keeps current although elected has moved on.
func (w *Watchdog) release(s cluster.Snapshot, now time.Duration, f *Findings, wake func(time.Duration)) {
	var key string
	if s.Elected.Readable() && s.Current.Exists && !s.Acquired() {
		// Keyed by the holder alone: its time runs on when the next candidate is replaced in turn.
		key = fmt.Sprint(s.Current.Stat.Created)
	}
	w.held.hold(key, now)
	if key == "" {
		return
	}
	limit := 2 * w.opt.Trust.LeaseWait
	if s.Fence.Readable() {
		limit = time.Duration(s.Fence.Record.RevokeTimeout)
		if s.Elected.Record.Cause == cluster.CauseOverdue && s.Fence.Record.State == cluster.FenceHeld {
			limit = time.Duration(s.Fence.Record.Kill)
		}
	}
	if now-w.held.since >= limit {
		f.Revoke = fmt.Sprintf("current not released within %s of being replaced", limit.Round(time.Millisecond))
		return
	}
	wake(w.held.since + limit)
}

// exclusions brings those of the elected record up to date: run out, or cleared.
func (w *Watchdog) exclusions(s cluster.Snapshot, now time.Duration, f *Findings, wake func(time.Duration)) {
	var leader string
	if s.Ready() {
		leader = s.Elected.Record.Node
		w.led.hold(fmt.Sprintf("%d %s", s.Elected.Record.Term, s.Elected.Record.Incarnation), now)
	} else {
		w.led.hold("", now)
	}
	seen := make(map[strike]time.Duration, len(s.Elected.Record.Exclusions))
	for _, e := range s.Elected.Record.Exclusions {
		key := strike{e.Node, e.Strikes, e.Term}
		since, known := w.seen[key]
		if !known {
			since = now
		}
		seen[key] = since
		if e.Node == leader && now-w.led.since >= w.opt.StrikeResetAfter {
			continue
		}
		if !e.Served {
			e.Served = now-since >= time.Duration(e.For)
			wake(since + time.Duration(e.For))
		}
		f.Exclusions = append(f.Exclusions, e)
		f.Age = append(f.Age, now-since)
	}
	w.seen = seen
}
