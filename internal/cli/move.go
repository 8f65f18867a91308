package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator"
	"zkelectd/internal/operator/request"
)

// moveOptions are the flags of 'move' that other requests do not have.
type moveOptions struct {
	node, site string
	at         string
	due        time.Time // at, parsed
	scheduled  bool
	cancel     bool
}

func moveCommand(cmd *command) {
	var o moveOptions
	c := newRequestCommand(cmd, "move [NODE | SITE]", "Move leadership to a node or site, now or at a time", fmt.Sprintf(`Move hands leadership over as planned: the leader stops its child and releases
leadership, then the target takes over. A target that is not eligible is refused, with
the reason. The target ranks first until --for has passed, until it is no longer
eligible, or until 'zkelectd reelect' or another move; then policy decides again.
Without a target, the best other member by policy takes over, and ranks first for %s
or --for. To keep the old leader from being elected, drain it.

With --at, that happens at a later time: 02:00 or 02:00:30 is the next such time in the
zone of this host; otherwise write date, time and zone, as in 2026-11-24T02:00:00+01:00.
Each leader has at most one such move: another one replaces it. If the target is then not
eligible, or the group is paused, the move is dropped, and status says so. It is also
dropped if it cannot be carried out within %s of that time.
--scheduled lists these moves and how the last ones ended; --cancel cancels the one
that is scheduled.`, request.BestMoveFor, cluster.ScheduleGrace))
	c.Args = cobra.MaximumNArgs(1)
	f := c.Flags()
	f.StringVar(&o.node, "to", "", "the node to move leadership to; like NODE, but never a site")
	f.StringVar(&o.site, "site", "", "the site to move leadership to; its best node leads")
	f.StringVar(&o.at, "at", "", "when to move leadership, as in 02:00 or 2026-11-24T02:00:00+01:00 (default: now)")
	f.BoolVar(&o.scheduled, "scheduled", false, "list the moves that are scheduled, and how the last ones ended")
	f.BoolVar(&o.cancel, "cancel", false, "cancel the move that is scheduled")
	durationFlag(c.command, &c.duration, "for", 0, "how long the target ranks first (default: without end, or 10m without a target)")
	c.withWait("wait until the target is READY, and show the progress")
	f.BoolVar(&c.force, "force", false, "ignore policy, cordons and health for the target")
	c.MarkFlagsMutuallyExclusive("at", "scheduled", "cancel", "wait")
	for _, flag := range []string{"to", "site", "for", "force"} {
		c.MarkFlagsMutuallyExclusive("cancel", flag)
		c.MarkFlagsMutuallyExclusive("scheduled", flag)
	}
	c.check = func(args []string) (err error) {
		if len(args) > 0 && (o.cancel || o.scheduled) {
			return errors.New("--cancel and --scheduled take no target: each leader has at most one scheduled move")
		}
		if f.Changed("at") {
			o.due, err = parseTime(o.at, time.Now())
		}
		return err
	}
	c.submits(func(args []string) request.Request {
		best := len(args) == 0 && !f.Changed("to") && !f.Changed("site") && !o.cancel
		return request.Request{Kind: request.KindMove, Target: optional(args), Node: o.node, Site: o.site, Best: best, At: o.due, Cancel: o.cancel}
	}, moved)
	for _, flag := range []string{"reason", "dry-run"} {
		c.MarkFlagsMutuallyExclusive("scheduled", flag)
	}
	submit := c.runMany
	c.runMany = func(ctx context.Context, s selection, args []string) error {
		if o.scheduled {
			return s.listSchedules(ctx, c.OutOrStdout(), *c.output)
		}
		return submit(ctx, s, args)
	}
}

// moved is complete when the target of the request's move is READY.
func moved(s cluster.Snapshot, plan request.Plan) (bool, error) {
	m := plan.Control.Move
	if s.Ready() && m.Matches(s.Current.Record.Node, s.Current.Record.Site) {
		return true, nil
	}
	now := s.Control.Record.Move
	return false, checkEnded(s, plan, now != nil && now.ID == plan.ID)
}

// parseTime returns the time that a person means: a time of day, which is the next such one in the zone of now, or a time with
// date and zone.
func parseTime(text string, now time.Time) (time.Time, error) {
	for _, layout := range []string{"15:04", "15:04:05"} {
		of, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		year, month, day := now.Date()
		for {
			// A clock that is set forward skips some times of a day. Date then returns one that is an hour off.
			at := time.Date(year, month, day, of.Hour(), of.Minute(), of.Second(), 0, now.Location())
			if at.After(now) && at.Hour() == of.Hour() && at.Minute() == of.Minute() {
				return at, nil
			}
			day++
		}
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("--at %q: write a time of day, as in 02:00, or a date, time and zone, as in %s", text, now.Add(time.Hour).Truncate(time.Minute).Format(time.RFC3339))
	}
	if !at.After(now) {
		return time.Time{}, fmt.Errorf("--at %q is in the past: it is %s now; leave out --at to move leadership at once", text, now.Format(time.RFC3339))
	}
	return at, nil
}

// listedSchedule is one scheduled move in the output of 'move --scheduled'.
type listedSchedule struct {
	Group   string `json:"group"`
	Slot    string `json:"slot,omitempty"`
	Request int64  `json:"request"`
	// State is scheduled, carried-out, dropped, canceled or replaced. Detail says why it was dropped, or who ended it.
	State  string `json:"state"`
	Detail string `json:"detail,omitempty"`
	// Due is when it is or was due, by the clock of the host where it was submitted.
	Due    time.Time `json:"due"`
	Target string    `json:"target"`
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
	// Ended is when it ended; nil while it is scheduled.
	Ended *time.Time `json:"ended,omitempty"`
}

// stateScheduled is the state of a move that is not over.
const stateScheduled = "scheduled"

// listSchedules lists the scheduled moves of the groups that a command line names.
func (s selection) listSchedules(ctx context.Context, w io.Writer, output string) error {
	found, errs := make([][]listedSchedule, len(s.groups)), make([]error, len(s.groups))
	s.each(ctx, func(ctx context.Context, i int, g group) {
		if errs[i] = g.err; g.err == nil {
			found[i], errs[i] = g.schedules(ctx)
		}
		switch {
		case operator.NotAffected(errs[i]):
			errs[i] = nil // no daemon has joined it
		case errs[i] != nil:
			errs[i] = fmt.Errorf("%s: %w", g.name, errs[i])
		}
	})
	all := slices.Concat(found...)
	if output == "json" {
		return errors.Join(errors.Join(errs...), printJSON(w, append([]listedSchedule{}, all...)))
	}
	if len(all) == 0 {
		fmt.Fprintln(w, "no move is scheduled")
	} else if err := printSchedules(w, all); err != nil {
		return err
	}
	return errors.Join(errs...)
}

// schedules returns the scheduled moves of the group, or of the slot: those that are to come, then those that are over.
func (g group) schedules(ctx context.Context) ([]listedSchedule, error) {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	data, stat, err := g.session.Get(ctx, g.paths.Control(), false)
	if err != nil && !errors.Is(err, cluster.ErrNoNode) {
		return nil, fmt.Errorf("cannot read znode %s: %w", g.paths.Control(), err)
	}
	read := g.paths.ReadControl(data, stat, err == nil)
	if read.Exists && read.Err != nil {
		return nil, read.Err
	}
	var all []listedSchedule
	for _, m := range read.Record.Scheduled {
		all = append(all, listedSchedule{Slot: m.Slot, Request: m.ID, State: stateScheduled, Due: m.At, Target: m.Target(), By: m.By, Reason: m.Reason})
	}
	for _, e := range slices.Backward(read.Record.EndedSchedules) {
		all = append(all, listedSchedule{
			Slot: e.Slot, Request: e.ID, State: string(e.Outcome), Detail: e.Detail, Due: e.At, Target: e.Target, By: e.By, Reason: e.Reason, Ended: &e.Time,
		})
	}
	if g.paths.Slot != "" {
		all = slices.DeleteFunc(all, func(l listedSchedule) bool { return l.Slot != g.paths.Slot })
	}
	for i := range all {
		all[i].Group = g.name
		if all[i].Slot != "" && g.paths.Slot == "" {
			all[i].Group += "/" + all[i].Slot
		}
	}
	return all, nil
}

func printSchedules(w io.Writer, all []listedSchedule) error {
	now := time.Now()
	t := newTable(w, "GROUP", "MOVE TO", "DUE", "BY", "REASON", "STATE")
	for _, l := range all {
		due, state := l.Due.Local().Format("2006-01-02 15:04:05 MST"), l.State
		if l.State == stateScheduled {
			due = cluster.DescribeTime(l.Due, now)
		}
		if l.Detail != "" {
			state += ": " + l.Detail
		}
		t.row(l.Group, l.Target, due, l.By, dash(l.Reason), state)
	}
	return t.Flush()
}

// appendSchedules prints the scheduled moves below the history, if there are any: one that was dropped has no term. That they cannot be
// read is shown by status.
func appendSchedules(ctx context.Context, w io.Writer, g group) error {
	all, err := g.schedules(ctx)
	if err != nil || len(all) == 0 {
		return nil
	}
	fmt.Fprintln(w, "\nScheduled moves:")
	return printSchedules(w, all)
}
