package status

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"zkelectd/internal/cluster"
)

// maxLease is longer than any lease: session timeouts end at ten minutes.
const maxLease = 10 * time.Minute

// WithLease returns g with what only the leader knows, if answer is the leader's: what remains of its lease, and whether its
// work can't be killed. The address may belong to another daemon by now, or to another program.
func (g Group) WithLease(answer io.Reader) Group {
	var d Daemon
	if err := json.NewDecoder(io.LimitReader(answer, 1<<16)).Decode(&d); err != nil || d.Node != g.Leader || d.Term != g.Term {
		return g
	}
	if d.LeaseRemaining > 0 && d.LeaseRemaining < cluster.Duration(maxLease) {
		g.LeaseRemaining = d.LeaseRemaining
	}
	if d.Unkillable != "" {
		g.Problems = append(slices.Clone(g.Problems), fmt.Sprintf("the work of %s can't be killed, and %[1]s releases nothing while it runs: %s", d.Node, d.Unkillable))
	}
	return g
}
