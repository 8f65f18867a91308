package status

import (
	"slices"
	"time"

	"zkelectd/internal/cluster"
)

// exclusions returns the exclusions on record, without those whose strikes operators have cleared. Only the elector knows for
// sure whether one has expired, and writes it down with its next decision; until then this host's clock decides.
func exclusions(s cluster.Snapshot) []cluster.Exclusion {
	var all []cluster.Exclusion
	for _, x := range s.Elected.Record.Exclusions {
		if slices.ContainsFunc(s.Control.Record.ClearedStrikes, func(c cluster.ClearedStrikes) bool { return c.Covers(x) }) {
			continue
		}
		x.Expired = x.Expired || (!x.Time.IsZero() && time.Since(x.Time) >= time.Duration(x.For))
		all = append(all, x)
	}
	return all
}
