package daemon

import (
	"maps"
	"slices"
	"sync"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/status"
)

// tally counts for people. It outlives the sessions, and has no say in anything.
type tally struct {
	mu     sync.Mutex
	totals status.Totals
}

func newTally() *tally {
	t := &tally{totals: status.Totals{Transitions: make(map[status.Transition]uint64), Reloaded: time.Now()}}
	for _, cause := range append(slices.Clone(cluster.Causes), status.CauseOther) {
		for _, result := range []string{status.ResultReady, status.ResultFailed} {
			t.totals.Transitions[status.Transition{Cause: string(cause), Result: result}] = 0
		}
	}
	return t
}

// count changes the totals under the lock.
func (t *tally) count(change func(*status.Totals)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.totals)
}

func (t *tally) transition(term cluster.PastTerm) {
	t.count(func(s *status.Totals) {
		kind := status.Transition{Cause: string(term.Cause), Result: status.ResultFailed}
		if !slices.Contains(cluster.Causes, term.Cause) { // of a newer version, or forged: each would be counted for ever
			kind.Cause = status.CauseOther
		}
		if term.Outcome == string(cluster.CurrentReady) {
			kind.Result = status.ResultReady
		}
		s.Transitions[kind]++
		if term.ToReady != nil {
			s.ToReady.Observe(time.Duration(*term.ToReady))
		}
		if term.Leaderless != nil {
			s.Leaderless.Observe(time.Duration(*term.Leaderless))
		}
	})
}

// Totals are what the daemon has counted so far.
func (d *Daemon) Totals() status.Totals {
	d.tally.mu.Lock()
	defer d.tally.mu.Unlock()
	s := d.tally.totals
	s.Transitions = maps.Clone(s.Transitions)
	s.ToReady, s.Leaderless, s.Reads, s.Writes = s.ToReady.Clone(), s.Leaderless.Clone(), s.Reads.Clone(), s.Writes.Clone()
	return s
}
