package cli

import (
	"cmp"
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
	"zkelectd/internal/policy"
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

// showGroups prints one line for each group or slot. It fails if one can't be shown.
func (s selection) showGroups(ctx context.Context, w io.Writer, output string) error {
	all := groupsStatus{Root: cmp.Or(s.base, s.groups[0].paths.Root), Groups: s.summaries(ctx)}
	var bad []string
	for _, g := range all.Groups {
		if g.Error != "" && g.joined {
			bad = append(bad, g.Name)
		}
	}
	shown := screen{w: w, output: output}
	err := shown.show(all)
	if len(bad) > 0 {
		err = errors.Join(err, fmt.Errorf("%d of %d groups cannot be shown: %s", len(bad), len(all.Groups), some(bad)))
	}
	return err
}

// readLeaders reads the group, or all its slots. With watch, it sets watches.
func (g group) readLeaders(ctx context.Context, watch bool) (operator.Leaders, error) {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	return operator.ReadLeaders(ctx, g.session, g.name, g.paths, g.manyLeaders(), watch)
}

// summaries returns the status of the group, or of each of its slots; only one with an error if it cannot be read.
func (g group) summaries(ctx context.Context) []groupStatus {
	var read operator.Leaders
	err := g.err
	if err == nil {
		read, err = g.readLeaders(ctx, false)
	}
	if err == nil {
		err = slotsError(read)
	}
	if err != nil {
		none := status.Group{Name: cluster.GroupOf(g.name), Root: g.paths.Root, State: status.StateNone, Members: []status.Member{}}
		return []groupStatus{{Name: g.name, Kind: g.kind, Group: none, Error: err.Error(), joined: !operator.NotAffected(err)}}
	}
	return g.views(read)
}

// slotsError returns an error if it is not known which slots a group has, or if it has none yet.
func slotsError(read operator.Leaders) error {
	record := read.Shared.Slots
	switch {
	case len(read.Snapshots) > 0:
		return nil
	case record.Err == nil:
		return errNotJoined
	case record.Newer() != nil:
		return fmt.Errorf("%w: until then no slot gets another leader; leaders keep working", record.Err)
	case errors.Is(record.Err, cluster.ErrNoSlots):
		return record.Err
	}
	return fmt.Errorf("%w: the elector writes it again; if no daemon runs, start one", record.Err)
}

// views returns the view of each leader, with a forecast if the policy permits one.
func (g group) views(read operator.Leaders) []groupStatus {
	q, err := read.Question(g.cfg, "", nil, new(policy.Cache))
	all := make([]groupStatus, len(read.Snapshots))
	for i, s := range read.Snapshots {
		view := status.Of(g.name, g.paths.Root, s)
		if err == nil {
			view = operator.WithForecast(view, q.Leaders()[i])
		}
		if drift := operator.SlotsDrift(read.Name, g.cfg.Slots, s.Slots); i == 0 && drift != "" {
			view.Problems = append(view.Problems, drift)
		}
		all[i] = groupStatus{Name: cluster.SlotName(read.Name, s.Slot), Group: view, Kind: g.kind, Eligible: view.EligibleMembers(), joined: true}
	}
	return all
}

// Table implements tabular.
func (all groupsStatus) Table() string { return all.table(false) }

// WideTable implements tabular.
func (all groupsStatus) WideTable() string { return all.table(true) }

// table returns one line for each group; wide has columns for their roots, too.
func (all groupsStatus) table(wide bool) string {
	var b strings.Builder
	head := []any{"GROUP"}
	if wide {
		head = append(head, "ROOT", "KIND")
	}
	t := newTable(&b, append(head, "LEADER", "SITE", "TERM", "SINCE", "ELIGIBLE", "NOTES")...)
	ready := 0
	var before []string
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
		notes := g.notes()
		if g.Slot == "0" {
			before = notes
		} else if g.Slot != "" {
			notes = slices.DeleteFunc(notes, func(note string) bool { return slices.Contains(before, note) }) // what all slots share
		}
		t.row(append(cells, g.leader(), dash(g.Site), term, since, eligible, strings.Join(notes, "; "))...)
	}
	t.Flush()
	fmt.Fprintf(&b, "\n%d of %d groups have a READY leader\n", ready, len(all.Groups))
	if len(all.Groups) > 0 && all.Groups[0].Slot != "" && all.Groups[0].Root == all.Root {
		all.writeMembers(&b, all.Groups[0].Group)
	}
	return b.String()
}

// writeMembers writes which slots of the group each member leads. A spare can lead, but leads none.
func (all groupsStatus) writeMembers(w io.Writer, g status.Group) {
	fmt.Fprintln(w)
	t := newTable(w, "NODE", "SITE", "LEADS", "SLOTS")
	for _, m := range g.Members {
		var slots []string
		for _, slot := range all.Groups {
			if slot.Leader == m.Node {
				slots = append(slots, slot.Slot)
			}
		}
		text := strings.Join(slots, ",")
		if text == "" && m.IsEligible() {
			text = "spare"
		}
		t.row(m.Node, m.Site, len(slots), dash(text))
	}
	for _, m := range g.Absent {
		t.row(m.Node, m.Site, "-", m.StateAt(time.Now()))
	}
	t.Flush()
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
