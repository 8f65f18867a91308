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

// Strike returns the exclusions with one more strike against node (docs/protocol.md, The watchdog). The duration starts at
// base and doubles with each strike up to limit (L2). list is not changed.
func Strike(list []Exclusion, node, reason string, term int64, base, limit time.Duration, wall time.Time) []Exclusion {
	list = slices.Clone(list)
	i := slices.IndexFunc(list, func(e Exclusion) bool { return e.Node == node })
	if i < 0 {
		list = append(list, Exclusion{Node: node})
		i = len(list) - 1
	}
	e := &list[i]
	e.Strikes = min(e.Strikes+1, maxStrikes)
	// The shift is bounded so that it cannot overflow; limit is reached long before.
	e.For = Duration(min(base<<min(e.Strikes-1, 20), limit))
	e.Term, e.Reason, e.Expired, e.Time = term, reason, false, wall
	return list
}

// MarkExpired returns the exclusions with those for which expired returns true marked as expired. list is not changed.
func MarkExpired(list []Exclusion, expired func(Exclusion) bool) []Exclusion {
	list = slices.Clone(list)
	for i := range list {
		list[i].Expired = list[i].Expired || expired(list[i])
	}
	return list
}
