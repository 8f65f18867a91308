package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/operator"
)

// groupForecast is the forecast for one of several groups, or with --all for one loss in it.
type groupForecast struct {
	Group string `json:"group"`
	// Now is the node that leads now.
	Now string `json:"leader_now,omitempty"`
	forecast
	// Error is why there is no forecast.
	Error string `json:"error,omitempty"`
}

// groupsForecast is the output of whatif for several groups, without --all.
type groupsForecast struct {
	Groups   []groupForecast `json:"groups"`
	Evenness whatif.Balance  `json:"evenness"`
}

// forecastGroups prints the forecasts for all groups. It fails if there is none for a group, and with losses if one leaves a group
// without a leader.
func (s selection) forecastGroups(ctx context.Context, w io.Writer, change whatif.Change, losses bool, output string) error {
	known := newTargets()
	read := make([]groupQuestion, len(s.groups))
	s.each(ctx, func(ctx context.Context, i int, g group) { read[i] = g.question(ctx, change, known) })
	if err := known.check(change); err != nil {
		return err
	}
	if losses {
		return s.forecastLosses(w, read, output)
	}
	all, balance := forecastTogether(read)
	var err error
	if output == "json" {
		err = printJSON(w, groupsForecast{all, balance})
	} else if err = forecastTable(w, all, false); err == nil {
		_, err = fmt.Fprintf(w, "\n%s\n", balanceText(balance))
	}
	return errors.Join(err, checkForecasts(all, false))
}

// groupQuestion is what was read of one of several groups.
type groupQuestion struct {
	name     string
	question whatif.Question
	err      error
}

// question reads the group.
func (g group) question(ctx context.Context, change whatif.Change, known *targets) groupQuestion {
	q := groupQuestion{name: g.name, err: g.err}
	if q.err != nil {
		return q
	}
	q.question, q.err = g.submitter().Question(ctx)
	if q.err == nil {
		known.add(q.question.Snapshot)
		q.question.Change = change
	}
	return q
}

// slots returns the questions about all leaders of the group.
func (q groupQuestion) slots() []whatif.Question {
	own := q.question
	if own.Slots == nil {
		own.Options.Group = q.name
		return []whatif.Question{own}
	}
	var all []whatif.Question
	for _, slot := range own.Slots {
		slot.Policy, slot.Change, slot.Options.Group = own.Policy, own.Change, q.name+"/"+slot.Snapshot.Slot
		all = append(all, slot)
	}
	return all
}

// forecastTogether returns the forecasts for all groups, each of which takes into account who would lead the others.
func forecastTogether(read []groupQuestion) ([]groupForecast, whatif.Balance) {
	var questions []whatif.Question
	all := make([]groupForecast, 0, len(read))
	for _, g := range read {
		if g.err == nil {
			questions = append(questions, g.slots()...)
		}
	}
	outcomes := whatif.RunAll(questions)
	for i, q := range questions {
		all = append(all, groupForecast{Group: q.Options.Group, Now: operator.Leader(q.Snapshot), forecast: newForecast(outcomes[i], "")})
	}
	for _, g := range read {
		if g.err != nil {
			all = append(all, groupForecast{Group: g.name, Error: g.err.Error()})
		}
	}
	slices.SortStableFunc(all, func(a, b groupForecast) int { // slots stay in their order
		x, _, _ := strings.Cut(a.Group, "/")
		y, _, _ := strings.Cut(b.Group, "/")
		return strings.Compare(x, y)
	})
	return all, whatif.BalanceOf(outcomes)
}

// balanceText describes how evenly the groups are spread.
func balanceText(b whatif.Balance) string {
	if b.Groups == 0 || b.Nodes == 0 {
		return "Evenness  no group would have a leader"
	}
	text := fmt.Sprintf("Evenness  %d leaders on %d eligible nodes, at most %d on one: %.2f times the mean", b.Groups, b.Nodes, b.Most, b.Ratio)
	if fmt.Sprintf("%.2f", b.WeightedRatio) != fmt.Sprintf("%.2f", b.Ratio) {
		text += fmt.Sprintf(", %.2f times by weight", b.WeightedRatio)
	}
	return text
}

// forecastLosses prints the forecasts for each loss in each group. Each assumes that the other groups stay as they are.
func (s selection) forecastLosses(w io.Writer, read []groupQuestion, output string) error {
	var questions []whatif.Question
	var all []groupForecast
	for _, g := range read {
		if g.err == nil {
			questions = append(questions, g.slots()...)
		}
	}
	placed := whatif.WithPlacement(questions)
	for i, g := range read {
		if g.err != nil {
			all = append(all, groupForecast{Group: g.name, Error: g.err.Error()})
			continue
		}
		n := len(g.slots())
		q := g.question
		if q.Slots != nil {
			q.Slots = placed[:n]
		} else {
			q = placed[0]
		}
		placed = placed[n:]
		all = append(all, s.groups[i].losses(q)...)
	}
	var err error
	if output == "json" {
		err = printJSON(w, all)
	} else {
		err = forecastTable(w, all, true)
	}
	return errors.Join(err, checkForecasts(all, true))
}

// losses returns the forecast for each loss in the group.
func (g group) losses(q whatif.Question) []groupForecast {
	fail := func(err error) []groupForecast { return []groupForecast{{Group: g.name, Error: err.Error()}} }
	snap := q.Snapshot
	now := operator.Leader(snap)
	if q.Slots != nil {
		return g.slotForecasts(q, true)
	}
	if len(snap.Members) == 0 {
		return fail(errors.New("no daemon is registered"))
	}
	var all []groupForecast
	for _, loss := range whatif.Losses(q) {
		all = append(all, groupForecast{Group: g.name, Now: now, forecast: newForecast(loss.Outcome, lossName(loss))})
	}
	return all
}

func forecastTable(w io.Writer, all []groupForecast, losses bool) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	head := "GROUP\t"
	if losses {
		head += "LOST\t"
	}
	fmt.Fprintln(t, head+"LEADS NOW\tWOULD LEAD\tSITE\tWHY")
	for _, f := range all {
		fmt.Fprintf(t, "%s\t", printable(f.Group))
		if losses {
			fmt.Fprintf(t, "%s\t", printable(f.Lost))
		}
		why := f.why()
		if f.Error != "" {
			why = f.Error
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", printable(nobody(f.Now)), printable(nobody(f.Leader)), printable(f.Site), printable(why))
	}
	return t.Flush()
}

// checkForecasts returns an error if there is no forecast for a group, or if a loss leaves one without a leader.
func checkForecasts(all []groupForecast, losses bool) error {
	var failed, leaderless []string
	for _, f := range all {
		switch {
		case f.Error != "":
			failed = append(failed, f.Group)
		case losses && f.Leader == "":
			leaderless = append(leaderless, fmt.Sprintf("%s (%s)", f.Group, f.Lost))
		}
	}
	switch {
	case len(failed) > 0:
		return fmt.Errorf("there is no forecast for: %s", some(failed))
	case len(leaderless) > 0:
		return exitError{statusNo, fmt.Errorf("there would be no leader after a loss, in: %s", some(leaderless))}
	}
	return nil
}
