package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator"
	"zkelectd/internal/operator/status"
)

// groupsStatus is the output of status for several groups.
type groupsStatus struct {
	// Root is the zookeeper.root of the groups.
	Root   string        `json:"root"`
	Groups []groupStatus `json:"groups"`
}

// groupStatus is one of several groups.
type groupStatus struct {
	Name string `json:"group"`
	status.Group
	Kind cluster.GroupKind `json:"kind,omitempty"`
	// Eligible is how many members may lead under the policy in force.
	Eligible int `json:"eligible"`
	// Error is why the group cannot be shown; empty if it can.
	Error string `json:"error,omitempty"`

	joined bool // a daemon has joined the group
}

// readsAtOnce bounds how many groups a command reads at once.
const readsAtOnce = 16

// each calls f for every group, several at a time.
func (s selection) each(ctx context.Context, f func(ctx context.Context, i int, g group)) {
	var all errgroup.Group
	all.SetLimit(readsAtOnce)
	for i, g := range s.groups {
		all.Go(func() error {
			f(ctx, i, g)
			return nil
		})
	}
	_ = all.Wait() // f has no error
}

// summaries returns the status of each group, and of each slot.
func (s selection) summaries(ctx context.Context) []groupStatus {
	summaries := make([][]groupStatus, len(s.groups))
	s.each(ctx, func(ctx context.Context, i int, g group) {
		summaries[i] = g.summaries(ctx)
	})
	return slices.Concat(summaries...)
}

// showGroups prints one line for each group. It fails if one can't be shown.
func (s selection) showGroups(ctx context.Context, w io.Writer, output string) error {
	all := groupsStatus{Root: s.base, Groups: s.summaries(ctx)}
	var bad []string
	for _, g := range all.Groups {
		if g.Error != "" && g.joined {
			bad = append(bad, g.Name)
		}
	}
	var err error
	if output == "json" {
		err = printJSON(w, all)
	} else {
		_, err = io.WriteString(w, all.table(output == outputWide))
	}
	if len(bad) > 0 {
		err = errors.Join(err, fmt.Errorf("%d of %d groups cannot be shown: %s", len(bad), len(all.Groups), some(bad)))
	}
	return err
}

// summaries returns the status of the group, or of each of its slots; only one with an error if it cannot be read.
func (g group) summaries(ctx context.Context) []groupStatus {
	all, err := g.leaders(ctx)
	if err != nil {
		none := status.Group{Name: cluster.GroupOf(g.name), Root: g.paths.Root, State: status.StateNone, Members: []status.Member{}}
		return []groupStatus{{Name: g.name, Kind: g.kind, Group: none, Error: err.Error(), joined: !operator.NotAffected(err)}}
	}
	for i := range all {
		one := &all[i]
		one.Kind, one.Eligible, one.joined = g.kind, one.EligibleMembers(), true
	}
	return all
}

// leaders returns the views of the group's leader, or of that of each slot, with forecasts if the policy permits them.
func (g group) leaders(ctx context.Context) ([]groupStatus, error) {
	if g.err != nil {
		return nil, g.err
	}
	if !g.manyLeaders() {
		snap, err := g.read(ctx)
		if err != nil {
			return nil, err
		}
		view := status.Of(g.name, g.paths.Root, snap)
		if q, err := operator.Question(g.name, g.cfg, snap); err == nil {
			view = operator.WithForecast(view, q)
		}
		return []groupStatus{{Name: g.name, Group: view}}, nil
	}
	read, err := g.readSlots(ctx, false)
	switch {
	case err != nil:
		return nil, err
	case len(read.Snapshots) == 0 && read.Shared.Slots.Err != nil:
		return nil, read.Shared.Slots.Err
	case len(read.Snapshots) == 0:
		return nil, errNotJoined
	}
	questions, err := read.Questions(g.cfg, nil)
	var all []groupStatus
	for i, s := range read.Snapshots {
		view := status.Of(g.name, g.paths.Root, s)
		if err == nil {
			view = operator.WithForecast(view, questions[i])
		}
		if drift := operator.SlotsDrift(g.name, g.cfg.Slots, s.Slots); i == 0 && drift != "" {
			view.Problems = append(view.Problems, drift)
		}
		all = append(all, groupStatus{Name: g.name + "/" + s.Slot, Group: view})
	}
	return all, nil
}

// table returns one line for each group; wide has columns for their roots, too.
func (all groupsStatus) table(wide bool) string {
	var b strings.Builder
	head := []any{"GROUP"}
	if wide {
		head = append(head, "ROOT", "KIND")
	}
	t := newTable(&b, append(head, "LEADER", "SITE", "TERM", "SINCE", "ELIGIBLE", "NOTES")...)
	ready := 0
	for _, g := range all.Groups {
		if g.State == string(cluster.CurrentReady) {
			ready++
		}
		term, since := "-", "-"
		if g.Term > 0 {
			term = fmt.Sprint(g.Term)
		}
		if g.Since != nil {
			since = g.Since.Local().Format(time.DateTime)
		}
		cells := []any{g.Name}
		if wide {
			cells = append(cells, g.Root, g.Kind)
		}
		eligible := fmt.Sprintf("%d/%d", g.Eligible, len(g.Members))
		t.row(append(cells, g.leader(), dash(g.Site), term, since, eligible, strings.Join(g.notes(), "; "))...)
	}
	t.Flush()
	fmt.Fprintf(&b, "\n%d of %d groups have a READY leader\n", ready, len(all.Groups))
	return b.String()
}

// leader describes the leader, and whether it is not READY.
func (g groupStatus) leader() string {
	switch g.State {
	case status.StateNone:
		return "none"
	case string(cluster.CurrentReady):
		return g.Leader
	case string(cluster.CurrentProgress):
		return g.Leader + " (taking over)"
	}
	return g.Leader + " (elected)"
}

// notes returns what is unusual about the group.
func (g groupStatus) notes() []string {
	var all []string
	for _, text := range []string{g.Error, g.Waiting, g.Next, g.Blocked, g.NoLeader} {
		if text != "" {
			all = append(all, text)
		}
	}
	for _, r := range g.Requests {
		all = append(all, r.String())
	}
	return append(all, g.Problems...)
}
