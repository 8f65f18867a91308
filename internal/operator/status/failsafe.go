package status

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"zkelectd/internal/cluster"
)

// Failsafe is what a daemon shows of failsafe mode in a group.
type Failsafe struct {
	// Enabled reports whether the policy enables the mode. TakesPart reports whether this host can be asked for
	// promises, and can ask others. If not, Problem says why.
	Enabled   bool `json:"enabled"`
	TakesPart bool `json:"takes_part"`
	// Ready reports whether all other members would promise, if this host led and ZooKeeper was away now. Unready has
	// the reason of each that would not, by its node.
	Ready   bool              `json:"ready"`
	Unready map[string]string `json:"unready,omitempty"`
	// Problem is why this host cannot take part, or why it does not know whether the others would promise; empty if
	// there is none.
	Problem string `json:"problem,omitempty"`
	// Asks are the nodes that must promise for the leader on this host, and ActiveSince is since when, on
	// CLOCK_BOOTTIME, its lease lasts because they do; 0 if ZooKeeper has renewed it, or this host does not lead.
	// Active and ActiveFor are filled in by [Failsafe.At].
	Asks        []string         `json:"asks,omitempty"`
	ActiveSince time.Duration    `json:"-"`
	Active      bool             `json:"active"`
	ActiveFor   cluster.Duration `json:"active_for,omitempty"`
	// Outage reports whether this daemon has found that ZooKeeper does not answer it, and BoundUntil is until when, on
	// CLOCK_BOOTTIME, it lets nobody take over from the leader that it has promised that; it may be over. BoundFor is
	// filled in by [Failsafe.At].
	Outage     bool             `json:"outage,omitempty"`
	BoundUntil time.Duration    `json:"-"`
	BoundFor   cluster.Duration `json:"bound_for,omitempty"`
}

// At returns f with the ages at a time of the host's CLOCK_BOOTTIME.
func (f Failsafe) At(now time.Duration) Failsafe {
	if f.Active, f.ActiveFor = f.ActiveSince != 0, 0; f.Active {
		f.ActiveFor = cluster.Duration(max(0, now-f.ActiveSince))
	}
	f.BoundFor = cluster.Duration(max(0, f.BoundUntil-now))
	return f
}

// Problems returns why failsafe mode would not work, in words.
func (f *Failsafe) Problems() []string {
	if f == nil || !f.Enabled {
		return nil
	}
	var all []string
	if f.Problem != "" {
		all = append(all, "failsafe mode would not work: "+f.Problem)
	}
	for _, node := range slices.Sorted(maps.Keys(f.Unready)) {
		all = append(all, fmt.Sprintf("failsafe mode would not work: %s would not promise: %s", node, f.Unready[node]))
	}
	return all
}

// FailsafeCounts counts rounds, in which a leader asks all others for promises. Extended are those in which all have
// promised in time. Promised, Refused and Unreachable count the members that were asked: those that have promised, that
// have refused, and that have not answered.
type FailsafeCounts struct{ Rounds, Extended, Promised, Refused, Unreachable uint64 }

// Count counts a reply with that reason, which is empty for a promise, and whether it has extended the lease.
func (c *FailsafeCounts) Count(reason string, extended bool) {
	if extended {
		c.Extended++
	}
	switch reason {
	case "":
		c.Promised++
	case "unreachable":
		c.Unreachable++
	default:
		c.Refused++
	}
}
