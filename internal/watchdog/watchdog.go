// Package watchdog finds overdue takeovers and releases, and keeps the exclusions up to date (docs/protocol.md, The
// watchdog). It is pure: it is given the elector's snapshots and monotonic time, and a new elector resumes from what is
// in ZooKeeper (L2, L3).
package watchdog

import (
	"fmt"
	"maps"
	"time"

	"zkelectd/internal/cluster"
)

// Options are the watchdog's limits.
type Options struct {
	// Takeover bounds the time from when the candidate could acquire until it is READY, not counting its lease wait or
	// the time that it may take to fence earlier holders.
	Takeover time.Duration
	// StrikeResetAfter is how long a leader must have been READY before its strikes are cleared.
	StrikeResetAfter time.Duration
	// LeaseWait is the elector's own W: a candidate's is not known before it has acquired.
	LeaseWait time.Duration
	// Patience is how long a candidate that nothing stands in the way of has until it acquires, see [Watchdog.Wrote].
	Patience time.Duration
}

// Findings are the watchdog's conclusions from one snapshot.
type Findings struct {
	// Overdue is the reason why the elected candidate has had its time; empty if it is not overdue.
	Overdue string
	// Silent is the incarnation of the candidate if it has not acquired in time, and SilentFor what it has not done, in
	// words.
	Silent, SilentFor string
	// Revoke is the reason why the holder's current must be deleted; empty if it must not.
	Revoke string
	// Exclusions are those of the elected record, brought up to date.
	Exclusions []cluster.Exclusion
	// Wake is when the findings may change without an event; 0 means never.
	Wake time.Duration
}

// WithSilent returns the silent incarnations with the candidate, if that is one of them.
func (f Findings) WithSilent(silent map[string]string) map[string]string {
	if f.Silent == "" {
		return silent
	}
	all := map[string]string{f.Silent: f.SilentFor}
	maps.Copy(all, silent)
	return all
}

// Watchdog remembers since when the conditions that it watches have held.
type Watchdog struct {
	opt         Options
	canTakeOver condition     // the candidate of a term could take over
	decided     condition     // a decision that this elector has written could be followed
	wrote       time.Duration // what its last write took
	queued      queue         // the candidate of that term waits for room on its host
	held        condition     // a replaced holder keeps current
	leading     condition     // a leader has been READY
	seen        map[strike]seenStrike
}

// seenStrike is since when a strike has been known, and whether its node has led for long enough since.
type seenStrike struct {
	since   time.Duration
	cleared bool
}

type strike struct {
	node    string
	strikes int
	term    int64
}

// condition is identified by key and has held since a time.
type condition struct {
	key   string
	since time.Duration
}

// hold restarts the condition unless it already has the same key; an empty key ends it.
func (c *condition) hold(key string, now time.Duration) {
	if c.key != key {
		*c = condition{key: key, since: now}
	}
}

// New returns a watchdog that has seen nothing.
func New(opt Options) *Watchdog {
	return &Watchdog{opt: opt, seen: make(map[strike]seenStrike)}
}

// Observe returns the findings for a snapshot, read by the elector, at the monotonic time now.
func (w *Watchdog) Observe(s cluster.Snapshot, now time.Duration) Findings {
	var f Findings
	wake := func(at time.Duration) {
		if at > now {
			f.Wake = cluster.Earliest(f.Wake, at)
		}
	}
	w.takeover(s, now, &f, wake)
	w.candidate(s, now, &f, wake)
	w.release(s, now, &f, wake)
	w.exclusions(s, now, &f, wake)
	return f
}

// Follow notes since when strikes are known, from a snapshot of a member that is not the elector: the time of an
// exclusion goes on if this one has to elect.
func (w *Watchdog) Follow(s cluster.Snapshot, now time.Duration) {
	w.exclusions(s, now, &Findings{}, func(time.Duration) {})
}

// takeover finds an elected candidate that is overdue. The time during which its predecessor keeps current does not
// count: the condition begins when no other incarnation's current is in the way.
func (w *Watchdog) takeover(s cluster.Snapshot, now time.Duration, f *Findings, wake func(time.Duration)) {
	var key string
	limit := w.opt.Takeover
	// While the record of slots is not readable, no candidate can take over.
	if s.Elected.Readable() && !s.Ready() && s.CheckSlots(s.Slots.Record.Epoch) == nil {
		e := s.Elected.Record
		blocked := s.ForeignCurrent() || s.Current.Exists && !s.Acquired() && s.Current.Record.Incarnation != e.Incarnation
		if !blocked { // one that was deleted or damaged may be written again in the same term: nobody could follow it
			key = fmt.Sprintf("%d %s %d", e.Term, e.Incarnation, s.Elected.Stat.Modified)
		}
		if s.Acquired() {
			limit = max(limit, time.Duration(s.Fence.Record.Takeover)) + s.Fence.Record.TakeoverLimit()
		} else {
			owed, _ := s.Owed(w.opt.LeaseWait)
			limit += owed
			promises, barred := w.promises(&s)
			if limit += promises; barred {
				key = ""
			}
		}
	}
	w.canTakeOver.hold(key, now)
	candidate, _ := s.Member(s.Elected.Record.Incarnation)
	spent, left := w.queued.observe(key, candidate.Node.Record.Queued, now)
	if key == "" {
		return
	}
	if now-w.canTakeOver.since >= limit+spent {
		f.Overdue = fmt.Sprintf("did not become READY within %s", limit.Round(time.Millisecond))
		if spent > 0 {
			f.Overdue += fmt.Sprintf(", not counting %s in its host's queue", spent.Round(time.Millisecond))
		}
		return
	}
	wake(w.canTakeOver.since + limit + spent + left)
}

// Wrote notes how long the last write of this elector took.
func (w *Watchdog) Wrote(took time.Duration) { w.wrote = took }

// Interrupted notes that the elector has connected again: the candidate may have been without ZooKeeper as well.
func (w *Watchdog) Interrupted() { w.decided = condition{} }

// maxDoublings bounds how often the time of a candidate doubles.
const maxDoublings = 6

// candidate finds a candidate that does not even acquire: it may have been lost together with the leader. That is no
// strike, and a member that only was slow registers again. After a planned change there is no hurry: a member that is
// always slow, and better than the others, would be elected and replaced again and again. Only who has written a
// decision watches it, since it knows how long ZooKeeper takes. The time doubles with each candidate, so that a member
// that is always slow is elected in the end.
func (w *Watchdog) candidate(s cluster.Snapshot, now time.Duration, f *Findings, wake func(time.Duration)) {
	e, key := &s.Elected.Record, ""
	member, alive := s.Member(e.Incarnation)
	lost := e.Cause == cluster.CauseFailure || e.Cause == cluster.CauseSilent
	if s.Elected.Readable() && lost && (e.By == s.Self.Name || s.Acting) && e.Incarnation != s.Self.Name && alive &&
		!s.Acquired() && !s.Current.Exists && s.Fence.Readable() &&
		s.CheckSlots(s.Slots.Record.Epoch) == nil && !member.Node.Record.Queued {
		if fs := s.Fence.Record.Failsafe; fs == nil || len(fs.Members) == 0 {
			// else it may have to wait for its right to succeed
			key = fmt.Sprintf("%d %s", e.Term, e.Incarnation)
		}
	}
	w.decided.hold(key, now)
	if key == "" || w.opt.Patience == 0 {
		return
	}
	candidates := len(e.Silent)
	if s.DeclaredSilent(s.Fence.Record.Incarnation) { // which was the holder
		candidates--
	}
	limit := max(w.opt.Patience, 3*w.wrote) << min(candidates, maxDoublings)
	if now-w.decided.since >= limit {
		f.Silent, f.SilentFor = e.Incarnation, fmt.Sprintf("it has not taken over within %s", limit.Round(time.Millisecond))
		return
	}
	wake(w.decided.since + limit)
}

// promises returns how much longer a candidate may need because of what members have promised to the last leader, and
// whether it cannot acquire before another one vetoes (docs/protocol.md, Failsafe).
func (w *Watchdog) promises(s *cluster.Snapshot) (wait time.Duration, barred bool) {
	candidate, _ := s.Member(s.Elected.Record.Incarnation)
	node, f := candidate.Node.Record.Failsafe, &s.Fence.Record
	if !s.Fence.Readable() || f.State == cluster.FenceReleased || f.Failsafe == nil && node == nil {
		return 0, false
	}
	key := ""
	if node != nil {
		key = node.Key
	}
	wait = max(w.opt.LeaseWait, time.Duration(f.LeaseWait)) // until its own promise has lapsed
	if f.Succession(s.Elected.Record.Node, key) == cluster.SuccessionBarred {
		wait += f.CapWait()
		barred = f.CapWait() == 0
	}
	return wait, barred
}

// queueMax bounds the time of one takeover that does not count because its host starts other work (L2).
const queueMax = 2 * time.Minute

// queue measures how long the candidate of a takeover has waited for room on its host (docs/groups.md, When a host is
// lost, when one returns).
type queue struct {
	takeover string        // the key of the takeover
	spent    time.Duration // until the last observation
	queued   bool          // at that time
	at       time.Duration
}

// observe returns how long the takeover has been queued, and how much longer it may be; 0 if it is not queued now.
func (q *queue) observe(takeover string, queued bool, now time.Duration) (spent, left time.Duration) {
	if q.takeover != takeover {
		*q = queue{takeover: takeover, at: now}
	}
	if q.queued {
		q.spent = min(q.spent+now-q.at, queueMax)
	}
	q.queued, q.at = queued, now
	if queued {
		left = queueMax - q.spent
	}
	return q.spent, left
}

// release finds a holder that keeps current for too long although another incarnation is elected.
func (w *Watchdog) release(s cluster.Snapshot, now time.Duration, f *Findings, wake func(time.Duration)) {
	var key string
	if s.Elected.Readable() && s.Current.Exists && !s.Acquired() {
		// The key names only the holder: its time goes on if the next candidate is replaced as well.
		key = fmt.Sprint(s.Current.Stat.Created)
	}
	w.held.hold(key, now)
	if key == "" {
		return
	}
	if s.ForeignCurrent() {
		f.Revoke = s.Current.Err.Error()
		return
	}
	limit := 2 * w.opt.LeaseWait
	if s.Fence.Readable() {
		limit = time.Duration(s.Fence.Record.RevokeTimeout)
		if s.Elected.Record.Cause == cluster.CauseOverdue && s.Fence.Record.State == cluster.FenceHeld {
			limit = time.Duration(s.Fence.Record.Kill)
		}
	}
	if now-w.held.since >= limit {
		f.Revoke = fmt.Sprintf("did not release leadership within %s after it was replaced", limit.Round(time.Millisecond))
		return
	}
	wake(w.held.since + limit)
}

// exclusions brings those of the elected record up to date: run out, or cleared.
func (w *Watchdog) exclusions(s cluster.Snapshot, now time.Duration, f *Findings, wake func(time.Duration)) {
	var leader string
	if s.Ready() {
		leader = s.Elected.Record.Node
		w.leading.hold(fmt.Sprintf("%d %s", s.Elected.Record.Term, s.Elected.Record.Incarnation), now)
	} else {
		w.leading.hold("", now)
	}
	seen := make(map[strike]seenStrike, len(s.Elected.Record.Exclusions))
	for _, e := range s.Elected.Record.Exclusions {
		key := strike{e.Node, e.Strikes, e.Term}
		known, before := w.seen[key]
		if !before {
			known.since = now
		}
		// The record keeps the strike until the next election, which may be the one after this leader has failed again.
		known.cleared = known.cleared || e.Node == leader && now-w.leading.since >= w.opt.StrikeResetAfter
		seen[key] = known
		if known.cleared {
			continue
		}
		if over := known.since + time.Duration(e.For); now >= over {
			e.Expired, e.Suspended = true, false
		} else if e.Failed() {
			wake(over)
		}
		f.Exclusions = append(f.Exclusions, e)
	}
	w.seen = seen
}
