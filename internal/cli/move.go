package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"zkelectd/internal/cluster"
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
	c.withFor("how long the target ranks first (default: without end, or 10m without a target)")
	c.withWait("wait until the target is READY, and show the progress")
	c.withForce("ignore policy, cordons and health for the target")
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
