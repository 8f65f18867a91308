package status

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/cluster"
)

// maxLease is longer than any lease: session timeouts end at ten minutes.
const maxLease = 10 * time.Minute

// WithLease returns g with what only the leader knows, if answer is the leader's: what remains of its lease, which node it is fencing, and
// whether its work can't be killed. The address may belong to another daemon by now, or to another program.
func (g Group) WithLease(answer io.Reader) Group {
	var d struct {
		Daemon
		Reason string `json:"reason"` // why this daemon does not lead
	}
	err := json.NewDecoder(io.LimitReader(answer, 1<<16)).Decode(&d)
	// Terms start at the time of day, so a member of the same name in a group at another root can be in the same term.
	if err != nil || d.Node != g.Leader || d.Term != g.Term || d.Root != g.Root {
		return g.Unconfirmed(fmt.Sprintf("%s answers, but not as %s in term %d of %s", g.API, g.Leader, g.Term, g.Root))
	}
	if d.LeaseRemaining > 0 && d.LeaseRemaining < cluster.Duration(maxLease) {
		g.LeaseRemaining = d.LeaseRemaining
	} else {
		g = g.Unconfirmed(fmt.Sprintf("%s answers: %s", g.Leader, cmp.Or(d.Reason, "it has no lease")))
	}
	if g.Failsafe != nil && d.Failsafe != nil {
		view := *g.Failsafe
		view.Leader, g.Failsafe = d.Failsafe, &view
		g.Problems = append(slices.Clone(g.Problems), d.Failsafe.Problems()...)
	}
	if d.Fencing != nil {
		g.Waiting = strings.TrimPrefix(fmt.Sprintf("%s; %s has been fencing %s for %s", g.Waiting, d.Node, d.Fencing.Node,
			time.Duration(d.Fencing.For).Round(100*time.Millisecond)), "; ")
	}
	if g.Stuck = d.Stuck(); g.Stuck != "" {
		g.Problems = append(slices.Clone(g.Problems), g.Stuck)
	}
	return g
}

// Stuck says why this member can't give up leadership; empty if it can, or has none.
func (d *Daemon) Stuck() string {
	if d.Unkillable == "" || d.Term == 0 {
		return ""
	}
	return fmt.Sprintf("the work of %s can't be killed, and %[1]s releases nothing while it runs: %s", d.Node, d.Unkillable)
}

// Unconfirmed returns g with why the leader has not confirmed its lease, if ZooKeeper says that it leads.
func (g Group) Unconfirmed(reason string) Group {
	if g.State == string(cluster.CurrentReady) {
		g.LeaseUnconfirmed = reason
	}
	return g
}
