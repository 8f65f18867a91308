package cli

import (
	"context"
	"errors"
	"io"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/operator"
	"zkelectd/internal/operator/status"
)

// readSlots returns the group with its slots. With watch, it sets watches.
func (g group) readSlots(ctx context.Context, watch bool) (operator.SlotGroup, error) {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	return operator.ReadSlotGroup(ctx, g.session, g.name, g.paths, watch)
}

// slotView returns the status of the group with its slots, from what was read.
func (g group) slotView(read operator.SlotGroup) status.SlotGroup {
	view := read.Status(g.cfg)
	if drift := operator.SlotsDrift(g.name, g.cfg.Slots, read.Shared.Slots); drift != "" {
		view.Problems = append(view.Problems, drift)
	}
	return view
}

// showSlotStatus prints the status of a group with slots, and with watch again whenever it changes.
func showSlotStatus(ctx context.Context, w io.Writer, g group, output string, watch bool) error {
	shown := screen{w: w, output: output}
	if watch {
		watched := func(ctx context.Context, g group) (operator.SlotGroup, error) { return g.readSlots(ctx, true) }
		return followStatus(ctx, g, watched, &shown, g.slotView)
	}
	read, err := g.readSlots(ctx, false)
	if err != nil {
		return err
	}
	view := g.slotView(read)
	return shown.show(view, view.Table, view.WideTable)
}

// followSlots calls f with the group and its slots, and again after each change, until ctx is done or f returns an error. It returns
// nil if ctx is done.
func (g group) followSlots(ctx context.Context, f func(operator.SlotGroup) error) error {
	for {
		read, err := g.readSlots(ctx, true)
		if err == nil {
			if err := f(read); err != nil {
				return err
			}
		} else if g.session.Err() == nil && ctx.Err() == nil && !errors.Is(err, cluster.ErrUnknown) && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		select {
		case <-g.session.Wake():
			g.session.TakeHints()
		case <-g.session.Done():
			return g.session.Err()
		case <-ctx.Done():
			return nil
		}
	}
}

// slotSummaries returns the status of each slot, or one line with an error.
func (g group) slotSummaries(ctx context.Context) []groupStatus {
	none := groupStatus{Name: g.name, Kind: g.kind, Group: status.Group{Name: cluster.GroupOf(g.name), Root: g.paths.Root, State: status.StateNone, Members: []status.Member{}}}
	read, err := operator.SlotGroup{}, g.err
	if err == nil {
		read, err = g.readSlots(ctx, false)
	}
	if err == nil && len(read.Snapshots) == 0 {
		err = read.Shared.Slots.Err
		if err == nil {
			err = errNotJoined
		}
	}
	if none.joined = !operator.NotAffected(err); err != nil {
		none.Error = err.Error()
		return []groupStatus{none}
	}
	questions, err := read.Questions(g.cfg, nil)
	var all []groupStatus
	for i, s := range read.Snapshots {
		one := groupStatus{Name: g.name + "/" + s.Slot, Kind: g.kind, Group: status.Of(g.name, g.paths.Root, s), joined: true}
		if err == nil {
			one.Group = operator.WithForecast(one.Group, questions[i])
		}
		one.Eligible = one.EligibleMembers()
		if drift := operator.SlotsDrift(g.name, g.cfg.Slots, s.Slots); i == 0 && drift != "" {
			one.Problems = append(one.Problems, drift)
		}
		all = append(all, one)
	}
	return all
}

// slotForecasts returns the forecast for each slot; with losses, one for each loss in each slot that it concerns.
func (g group) slotForecasts(q whatif.Question, losses bool) []groupForecast {
	if len(q.Snapshot.Members) == 0 && losses {
		return []groupForecast{{Group: g.name, Error: "no daemon is registered"}}
	}
	questions := make([]whatif.Question, len(q.Slots))
	for i, own := range q.Slots {
		own.Policy, own.Change = q.Policy, q.Change
		questions[i] = own
	}
	var all []groupForecast
	add := func(lost string, outcomes []whatif.Outcome) {
		for i, out := range outcomes {
			s := questions[i].Snapshot
			all = append(all, groupForecast{Group: g.name + "/" + s.Slot, Now: operator.Leader(s), forecast: newForecast(out, lost)})
		}
	}
	if !losses {
		add("", whatif.RunSlots(questions))
		return all
	}
	for _, loss := range whatif.SlotLosses(questions) {
		add(lossName(loss.Loss), loss.Outcomes)
	}
	return all
}

// forecastSlots prints the forecast for each slot.
func (g group) forecastSlots(w io.Writer, q whatif.Question, losses bool, output string) error {
	all := g.slotForecasts(q, losses)
	var err error
	if output == "json" {
		err = printJSON(w, all)
	} else {
		err = forecastTable(w, all, losses)
	}
	return errors.Join(err, checkForecasts(all, losses))
}
