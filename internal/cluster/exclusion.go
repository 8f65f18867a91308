package cluster

import (
	"fmt"
	"slices"
	"time"
)

// Describe returns the exclusion in words.
func (x Exclusion) Describe() string {
	return fmt.Sprintf("excluded for %s after strike %d: %s", x.For, x.Strikes, x.Reason)
}

// Failed reports whether the node counts as one that has failed: the time of its exclusion is not over.
func (x Exclusion) Failed() bool { return !x.Expired || x.Suspended }

// Strike returns the exclusions with one more strike against node (docs/protocol.md, The watchdog). The duration starts
// at base and doubles with each strike up to limit (L2). list is not changed.
func Strike(list []Exclusion, node, reason string, term int64, base, limit time.Duration, wall time.Time) []Exclusion {
	list = slices.Clone(list)
	i := slices.IndexFunc(list, func(e Exclusion) bool { return e.Node == node })
	if i < 0 {
		list = append(list, Exclusion{Node: node})
		i = len(list) - 1
	}
	e := &list[i]
	if !e.Failed() || e.Since.IsZero() {
		e.Since = wall
	}
	e.Strikes = min(e.Strikes+1, maxStrikes)
	// The shift is bounded so that it cannot overflow; limit is reached long before.
	e.For = Duration(min(base<<min(e.Strikes-1, 20), limit))
	e.Term, e.Reason, e.Expired, e.Suspended, e.Time = term, reason, false, false, wall
	return list
}

// MarkExpired returns the exclusions with those for which expired returns true marked as expired. list is not changed.
func MarkExpired(list []Exclusion, expired func(Exclusion) bool) []Exclusion {
	return changed(list, func(x *Exclusion) {
		if expired(*x) {
			x.Expired, x.Suspended = true, false
		}
	})
}

// Limit returns the exclusions with that of a node not longer than limit. list is not changed.
func Limit(list []Exclusion, node string, limit time.Duration) []Exclusion {
	return changed(list, func(x *Exclusion) {
		if x.Node == node {
			x.For = min(x.For, Duration(limit))
		}
	})
}

// Suspend returns the exclusions with those of the nodes suspended. list is not changed.
func Suspend(list []Exclusion, nodes func(node string) bool) []Exclusion {
	return changed(list, func(x *Exclusion) {
		if !x.Expired && nodes(x.Node) {
			x.Expired, x.Suspended = true, true
		}
	})
}

// changed returns a copy of the exclusions after a change to each.
func changed(list []Exclusion, change func(*Exclusion)) []Exclusion {
	list = slices.Clone(list)
	for i := range list {
		change(&list[i])
	}
	return list
}
