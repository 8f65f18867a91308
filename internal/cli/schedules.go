package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator"
)

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
