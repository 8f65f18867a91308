package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/policy"
	"zkelectd/internal/store"
)

func statusCommand(c *command) {
	var watch, check bool
	c.Use = "status"
	c.Short = "Show the group: the leader, why it leads, and every member"
	c.Long = `Status shows a group: its leader, why it leads, every member, and anything unusual. If
zookeeper.root has several groups and none is named with -g, it prints one line for
each: the leader, how many members are eligible, and anything unusual. For the jobs of exec,
as with --root /jobs, the line is about the last run: when it started, how it ended, how long
it took, on which host, and when the next one may start by the --once-per of that run. With
exec --max it is about the run that was started last, and each run in progress has a line.

A group with slots has a line for each slot; -g NAME also shows which ones each member
leads, -g NAME/SLOT all about one slot.

With --check it prints one line, and exits as a monitoring plugin (Nagios, Icinga): 0 if each
group has a READY leader and an eligible standby, 1 for a warning (a takeover, a lost host, a
hard pause, nobody could take over, any other problem), 2 if a group has had no leader for longer
than a failover takes, nobody can lead it, or each member that could lead has failed, 3 if that
is not known.`
	output := c.outputFlag(outputWide)
	c.Flags().BoolVar(&watch, "watch", false, "follow the status until interrupted: on a terminal it is drawn in "+
		"place, elsewhere printed again whenever it changes")
	c.Flags().BoolVar(&check, "check", false, "print one line with figures, and exit as a monitoring plugin: 0 ok, 1 "+
		"warning, 2 critical, 3 unknown")
	c.MarkFlagsMutuallyExclusive("check", "watch")
	c.MarkFlagsMutuallyExclusive("check", "output")
	c.endless = &watch
	c.runMany = func(ctx context.Context, s selection, _ []string) error {
		g, err := s.only()
		shown := screen{w: c.OutOrStdout(), output: *output}
		switch {
		case check:
			return s.checkStatus(ctx, c.OutOrStdout())
		case watch && err == nil:
			return followStatus(ctx, g, &shown)
		case watch:
			return err
		case err != nil || g.manyLeaders():
			return s.showGroups(ctx, c.OutOrStdout(), *output)
		}
		view, err := g.view(ctx)
		if err != nil {
			return err
		}
		if run := g.readLastRun(ctx, view); run != nil {
			return shown.show(jobStatus{view, run})
		}
		return shown.show(view)
	}
	c.RunE = func(_ *cobra.Command, args []string) error {
		err := c.connectAndRun(allGroups, args)
		if err != nil && check && !errors.As(err, new(exitError)) {
			return checkFailed(c.OutOrStdout(), err)
		}
		return err
	}
}

// tabular is a view that people read as a table.
type tabular interface {
	Table() string
	WideTable() string
}

// followStatus shows the status of a group: on a terminal in place, else each one that differs from the one before.
// What it has read is viewed again each time: ages change.
func followStatus(ctx context.Context, g group, shown *screen) error {
	viewer := status.NewViewer(g.name, g.paths.Root)
	read := func(ctx context.Context, g group) (func() tabular, error) {
		all, err := g.readLeaders(ctx, true)
		if err != nil || !g.manyLeaders() {
			return func() tabular { return viewer.Group(all.Shared) }, err
		}
		return func() tabular { return groupsStatus{Root: g.paths.Root, Groups: g.views(all)} }, nil
	}
	if terminal, ok := shown.w.(*os.File); ok && shown.output != "json" && os.Getenv("TERM") != "dumb" &&
		isTerminal(terminal) {
		d := newRedraw(terminal, func(view func() tabular) string { return shown.table(view()) })
		defer d.end()
		return follow(ctx, g, time.Time{}, read, d)
	}
	return follow(ctx, g, time.Time{}, read, &statusDisplay{notices: notices{w: os.Stderr}, screen: shown})
}

// statusDisplay is the display of status --watch in a pipe or file.
type statusDisplay struct {
	notices
	screen *screen
}

func (d *statusDisplay) show(view func() tabular) error { return d.screen.show(view()) }

// resumed has the status follow even if it is that of before, in JSON after the gap.
func (d *statusDisplay) resumed(from, to time.Time) error {
	d.screen.last = ""
	err := d.notices.resumed(from, to)
	if d.screen.output == "json" {
		err = errors.Join(err, printJSON(d.screen.w, newGap(from, to)))
	}
	return err
}

// view returns the status of a group with one leader, with a forecast if the policy permits one, and with the lease of
// the leader.
func (g group) view(ctx context.Context) (status.Group, error) {
	q, err := g.submitter().Question(ctx)
	if err != nil {
		snap, err := g.read(ctx)
		return withLeaderView(ctx, g.name, status.Of(g.name, g.paths.Root, snap)), err
	}
	q.Ask = nil // status must not start the ranking program
	return withLeaderView(ctx, g.name, operator.WithForecast(status.Of(g.name, g.paths.Root, q.Snapshot), q)), nil
}

// screen prints views, each unless it equals the one before.
type screen struct {
	w      io.Writer
	output string
	last   string
}

// table returns the table that people have asked for.
func (s *screen) table(view tabular) string {
	text := view.Table()
	if s.output == outputWide {
		text = view.WideTable()
	}
	return withConnection(text, os.Args[1:])
}

func (s *screen) show(view tabular) error {
	var b strings.Builder
	if err := printJSON(&b, view); err != nil {
		return err
	}
	text := b.String() // a table also changes with the time
	if text == s.last {
		return nil
	}
	first := s.last == ""
	s.last = text
	if s.output != "json" {
		text = s.table(view)
	}
	if !first && s.output != "json" {
		fmt.Fprintln(s.w)
	}
	_, err := io.WriteString(s.w, colorize(s.w, text))
	return err
}

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
	// LastRun is that of the job, if the group is that of a job of exec; with slots, the one that was started last in
	// any of them.
	LastRun *lastRun `json:"last_run,omitempty"`

	joined bool // a daemon has joined the group
}

// readsAtOnce bounds how many groups a command reads at once.
const readsAtOnce = 16

// maxAsked is how many leaders a command asks at once.
const maxAsked = 32

// inParallel calls f for each number below n, at most limit of them at a time.
func inParallel(n, limit int, f func(i int)) {
	var all errgroup.Group
	all.SetLimit(limit)
	for i := range n {
		all.Go(func() error {
			f(i)
			return nil
		})
	}
	_ = all.Wait() // f has no error
}

// each calls f for every group, several at a time.
func (s selection) each(ctx context.Context, f func(ctx context.Context, i int, g group)) {
	inParallel(len(s.groups), readsAtOnce, func(i int) { f(ctx, i, s.groups[i]) })
}

// summaries returns the status of each group, and of each slot.
func (s selection) summaries(ctx context.Context) []groupStatus {
	summaries := make([][]groupStatus, len(s.groups))
	s.each(ctx, func(ctx context.Context, i int, g group) {
		summaries[i] = g.summaries(ctx)
	})
	all := slices.Concat(summaries...)
	inParallel(len(all), maxAsked, func(i int) {
		if g := &all[i]; g.State == string(cluster.CurrentReady) {
			g.Group = withLeaderView(ctx, g.Name, g.Group).Judged(time.Now())
		}
	})
	return all
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
	all, err := operator.ReadLeaders(ctx, g.session, g.name, g.paths, g.manyLeaders(), watch)
	if errors.Is(err, store.ErrNoGroup) {
		err = cmp.Or(g.requireCreated(ctx), err) // which says what may have been meant
	}
	return all, err
}

// summaries returns the status of the group, or of each of its slots; only one with an error if it cannot be read.
func (g group) summaries(ctx context.Context) []groupStatus {
	var read operator.Leaders
	err := g.err
	if err == nil {
		read, err = g.readLeaders(ctx, false)
	}
	if err != nil {
		none := status.Group{Name: cluster.GroupOf(g.name), Root: g.paths.Root, State: status.StateNone,
			Members: []status.Member{}}
		return []groupStatus{{Name: g.name, Kind: g.kind, Group: none, Error: err.Error(),
			joined: !operator.NotAffected(err) && !errors.Is(err, store.ErrNoGroup)}}
	}
	views := g.views(read)
	own := make([]status.Group, len(views))
	for i, view := range views {
		own[i] = view.Group
	}
	run := g.readLastRun(ctx, own...)
	for i := range views {
		views[i].LastRun = run
	}
	return views
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
		all[i] = groupStatus{Name: cluster.SlotName(read.Name, s.Slot), Group: view, Kind: g.kind,
			Eligible: view.EligibleMembers(), joined: true}
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
	var jobs []groupStatus
	all.Groups = slices.Clone(all.Groups)
	all.Groups = slices.DeleteFunc(all.Groups, func(g groupStatus) bool {
		if g.LastRun == nil {
			return false
		}
		if g.Slot == "" || g.Slot == "0" {
			jobs = append(jobs, g)
		}
		return g.Slot == "" || g.State == status.StateNone // a slot is shown while a job runs in it
	})
	if len(jobs) > 0 {
		writeJobs(&b, jobs)
		if len(all.Groups) == 0 {
			return b.String()
		}
		fmt.Fprintln(&b)
	}
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
		eligible := fmt.Sprintf("%d/%d", g.Eligible, max(len(g.Members), g.Expected))
		notes := g.notes()
		if g.Slot == "0" {
			before = notes
		} else if g.Slot != "" {
			// what all slots share
			notes = slices.DeleteFunc(notes, func(note string) bool { return slices.Contains(before, note) })
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
	if lost := status.Lost(g.Absent); len(lost) > 0 {
		all = append(all, "lost: "+strings.Join(lost, ", "))
	}
	return append(all, g.Problems...)
}
