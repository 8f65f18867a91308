package group

import (
	"maps"
	"slices"
	"sync"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
)

// Counters holds the counters for the metrics, of one group or of a host. It outlives sessions, and is safe for
// concurrent use. No decision depends on it.
type Counters struct {
	host   *Counters // also counts what is counted here; nil for none
	mu     sync.Mutex
	totals status.Totals
}

// NewCounters returns counters at zero. host are the counters of the group's host; nil for none.
func NewCounters(host *Counters) *Counters {
	c := &Counters{host: host, totals: status.Totals{Transitions: make(map[status.Transition]uint64),
		Reloaded: time.Now()}}
	for _, cause := range append(slices.Clone(cluster.Causes), status.CauseOther) {
		for _, result := range []string{status.ResultReady, status.ResultFailed} {
			c.totals.Transitions[status.Transition{Cause: string(cause), Result: result}] = 0
		}
	}
	return c
}

// Update calls change for these counters and those of the host, under a lock.
func (c *Counters) Update(change func(*status.Totals)) {
	if c.host != nil {
		c.host.Update(change)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.totals)
}

// Totals returns a copy of the totals.
func (c *Counters) Totals() status.Totals {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.totals
	t.Transitions = maps.Clone(t.Transitions)
	t.ToReady, t.Leaderless, t.Reads, t.Writes = t.ToReady.Clone(), t.Leaderless.Clone(), t.Reads.Clone(), t.Writes.Clone()
	return t
}

// term counts a term that has ended.
func (c *Counters) term(term cluster.PastTerm) {
	c.Update(func(t *status.Totals) {
		kind := status.Transition{Cause: string(term.Cause), Result: status.ResultFailed}
		if !slices.Contains(cluster.Causes, term.Cause) {
			// from a newer version, or forged: the number of causes must be bounded
			kind.Cause = status.CauseOther
		}
		if term.Outcome == string(cluster.CurrentReady) {
			kind.Result = status.ResultReady
		}
		t.Transitions[kind]++
		if term.ToReady != nil {
			t.ToReady.Observe(time.Duration(*term.ToReady))
		}
		if term.Leaderless != nil {
			t.Leaderless.Observe(time.Duration(term.Leaderless.For))
		}
	})
}
