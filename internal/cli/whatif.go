package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/operator"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/policy"
)

// forecast is the forecast for one leader: that of a group, or of a slot. With --all there is one for each loss.
type forecast struct {
	Group string `json:"group"`
	// Lost is the node or site that is lost, with --all.
	Lost string `json:"lost,omitempty"`
	// Now is the node that leads now, Leader the one that would lead, empty for none. Cause and Reason say why; both
	// are empty if the current leader stays.
	Now    string `json:"leader_now,omitempty"`
	Leader string `json:"leader"`
	Site   string `json:"site,omitempty"`
	Cause  string `json:"cause,omitempty"`
	Reason string `json:"reason,omitempty"`
	// State is that of Now as in status, LeaseUnconfirmed why it has not confirmed its lease, although it was asked.
	State            string `json:"state_now"`
	LeaseUnconfirmed string `json:"lease_unconfirmed,omitempty"`
	// RollCall has the answers that have led to the decision in force. A forecast goes by what members publish: it
	// cannot ask them.
	RollCall []cluster.RankedAnswer `json:"roll_call,omitempty"`
	// Note says why there would be no leader, Blocked why a better member would not take over.
	Note     string   `json:"note,omitempty"`
	Blocked  string   `json:"preemption_blocked,omitempty"`
	Problems []string `json:"problems,omitempty"`
	// Error is why there is no forecast.
	Error string `json:"error,omitempty"`
}

// forecasts is the output of whatif without --all.
type forecasts struct {
	Groups   []forecast     `json:"groups"`
	Evenness whatif.Balance `json:"evenness"`
}

// whatifOptions are the flags of whatif.
type whatifOptions struct {
	change whatif.Change
	file   string
	losses bool
}

func whatifCommand(c *command) {
	var o whatifOptions
	c.Use = "whatif"
	c.Short = "Forecast who would lead if nodes were lost, cordoned or ranked by another policy"
	c.Long = `Whatif runs the elector on the current state of the group, with changes applied.
Nothing is written.

With --all it does so for the loss of each node and of each site, and exits with 1
if one of them would leave the group without a leader.

If zookeeper.root has several groups and none is named with -g, it prints the forecast
for each of them. A group with slots has one for each slot.`
	c.check = func([]string) error {
		policyFrom(c.Command, o.file)
		return nil
	}
	output := c.outputFlag()
	c.runMany = func(ctx context.Context, s selection, _ []string) error {
		return s.forecast(ctx, c.OutOrStdout(), o, *output)
	}
	f := c.Flags()
	f.StringVar(&o.file, "policy", "", "use the policy of this configuration file")
	f.StringSliceVar(&o.change.Without, "without", nil, "nodes to assume lost")
	f.StringSliceVar(&o.change.WithoutSites, "without-site", nil, "sites to assume lost")
	f.StringSliceVar(&o.change.Cordon, "cordon", nil, "nodes to assume cordoned")
	f.StringSliceVar(&o.change.Drain, "drain", nil, "nodes to assume drained")
	f.BoolVar(&o.losses, "all", false, "forecast the loss of each node and each site; exit 1 if one leaves no leader")
}

// groupQuestion is what was read of one group.
type groupQuestion struct {
	name     string
	question whatif.Question
	now      []status.Group // the status of each leader
	err      error
}

// forecast prints the forecasts for the groups. It fails if there is none for a group, and with --all if a loss leaves
// one without a leader.
func (s selection) forecast(ctx context.Context, w io.Writer, o whatifOptions, output string) error {
	if o.file != "" && s.base != "" {
		_, err := s.only() // a policy is for one group
		return err
	}
	read, err := s.questions(ctx, o)
	if err != nil {
		return err
	}
	var all []forecast
	var evenness whatif.Balance
	if o.losses {
		all = forecastLosses(read)
	} else {
		all, evenness = forecastTogether(read)
	}
	switch {
	case output == "json" && o.losses:
		err = printJSON(w, all)
	case output == "json":
		err = printJSON(w, forecasts{all, evenness})
	case s.base == "" && read[0].question.Slots == nil && !o.losses:
		err = all[0].print(w)
	default:
		err = forecastTable(w, all, o.losses)
		if err == nil && s.base != "" && !o.losses {
			_, err = fmt.Fprintf(w, "\n%s\n", balanceText(evenness))
		}
	}
	return errors.Join(err, checkForecasts(all, o.losses))
}

// questions reads the groups. It fails if the change names what is in none of them, or if the only group cannot be
// read.
func (s selection) questions(ctx context.Context, o whatifOptions) ([]groupQuestion, error) {
	read := make([]groupQuestion, len(s.groups))
	s.each(ctx, func(ctx context.Context, i int, g group) {
		read[i] = groupQuestion{name: g.name, err: g.err}
		if q := &read[i]; q.err == nil {
			if q.question, q.err = g.submitter().Question(ctx); q.err == nil {
				q.now = g.leadersNow(ctx, q.question)
			}
		}
	})
	if s.base == "" && read[0].err != nil {
		return nil, read[0].err
	}
	var found []cluster.Snapshot
	for _, q := range read {
		found = append(found, q.question.Snapshot)
	}
	if err := checkKnown(o.change, found); err != nil {
		return nil, err
	}
	var inFile *policy.Policy
	if o.file != "" {
		cfg, err := policyOf(o.file, s.groups[0].name)
		if err != nil {
			return nil, err
		}
		if inFile, err = policy.New(cluster.Policy{Rules: cfg.Rules()}); err != nil {
			return nil, err
		}
	}
	for i := range read {
		read[i].change(o.change, inFile)
	}
	return read, nil
}

// leadersNow returns the status of each leader in question, with its lease.
func (g group) leadersNow(ctx context.Context, q whatif.Question) []status.Group {
	leaders := q.Leaders()
	now := make([]status.Group, len(leaders))
	inParallel(len(leaders), maxAsked, func(i int) {
		s := leaders[i].Snapshot
		now[i] = withLeaderView(ctx, cluster.SlotName(g.name, s.Slot), status.Of(g.name, g.paths.Root, s))
	})
	return now
}

// change applies a change to the questions about the group and its slots, and another policy unless it is nil.
func (q *groupQuestion) change(c whatif.Change, p *policy.Policy) {
	put := func(to *whatif.Question) {
		if to.Change = c; p != nil {
			to.Policy = p
		}
	}
	put(&q.question)
	for i := range q.question.Slots {
		put(&q.question.Slots[i])
	}
}

// leaders returns the questions about all leaders of the group.
func (q groupQuestion) leaders() []whatif.Question {
	if q.err != nil {
		return nil
	}
	return q.question.Leaders()
}

// add adds the outcomes for the leaders of the group.
func (q groupQuestion) add(all []forecast, lost string, outcomes []whatif.Outcome) []forecast {
	for i, own := range q.leaders() {
		all = append(all, newForecast(own, q.now[i], lost, outcomes[i]))
	}
	return all
}

func newForecast(q whatif.Question, now status.Group, lost string, out whatif.Outcome) forecast {
	f := forecast{
		Group: q.Options.Group, Lost: lost, Now: operator.Leader(q.Snapshot), Leader: out.Leader.ID,
		Site:  out.Leader.Node.Record.Site,
		State: now.State, LeaseUnconfirmed: now.LeaseUnconfirmed, Note: out.Last.Note, Blocked: out.Blocked,
		Problems: out.Problems,
		RollCall: cluster.AnswersIn(q.Snapshot.Elected.Record.Ranking),
	}
	if n := len(out.Steps); n > 0 {
		f.Cause, f.Reason = string(out.Steps[n-1].Cause), out.Steps[n-1].Reason
	}
	if !out.HasLeader() && f.Note == "" {
		f.Note = out.WhyNoLeader()
	}
	return f
}

// forecastTogether returns the forecasts for all groups, each of which takes into account who would lead the others.
func forecastTogether(read []groupQuestion) (all []forecast, evenness whatif.Balance) {
	var questions []whatif.Question
	for _, g := range read {
		questions = append(questions, g.leaders()...)
	}
	var outcomes []whatif.Outcome
	if len(read) > 1 {
		outcomes = whatif.RunAll(questions)
	} else {
		outcomes = read[0].question.Outcomes()
	}
	rest := outcomes
	for _, g := range read {
		if g.err != nil {
			all = append(all, forecast{Group: g.name, Error: g.err.Error()})
			continue
		}
		all, rest = g.add(all, "", rest), rest[len(g.leaders()):]
	}
	return all, whatif.BalanceOf(outcomes)
}

// forecastLosses returns the forecasts for each loss in each group. Each assumes that the other groups stay as they
// are.
func forecastLosses(read []groupQuestion) []forecast {
	all := []forecast{}
	if len(read) > 1 {
		var questions []whatif.Question
		for _, g := range read {
			questions = append(questions, g.leaders()...)
		}
		questions = whatif.WithPlacement(questions)
		for i := range read {
			n := len(read[i].leaders())
			if q := &read[i].question; n > 0 && q.Slots != nil {
				q.Slots = questions[:n]
			} else if n > 0 {
				*q = questions[0]
			}
			questions = questions[n:]
		}
	}
	for _, g := range read {
		q, err := g.question, g.err
		if err == nil && len(q.Snapshot.Members) == 0 {
			err = errors.New("no daemon is registered")
		}
		if err != nil {
			all = append(all, forecast{Group: g.name, Error: err.Error()})
			continue
		}
		for _, loss := range whatif.Losses(q) {
			all = g.add(all, lossName(loss), loss.Outcomes)
		}
	}
	return all
}

// lossName returns the node or site that is lost.
func lossName(l whatif.Loss) string {
	if l.Node == "" {
		return "site " + l.Site
	}
	return l.Node
}

// nodesAndSites returns the nodes and sites of the members of groups.
func nodesAndSites(groups ...cluster.Snapshot) (nodes, sites []string) {
	for _, s := range groups {
		for _, m := range s.Members {
			nodes, sites = append(nodes, m.ID), append(sites, m.Node.Record.Site)
		}
	}
	return nodes, sites
}

// checkKnown returns an error if a change names an unknown node or site: that would be a typing error.
func checkKnown(c whatif.Change, groups []cluster.Snapshot) error {
	nodes, sites := nodesAndSites(groups...)
	for _, id := range slices.Concat(c.Without, c.Cordon, c.Drain) {
		if !slices.Contains(nodes, id) {
			return refuse("no member has the id %q", id)
		}
	}
	for _, site := range c.WithoutSites {
		if !slices.Contains(sites, site) {
			return refuse("no member is at the site %q", site)
		}
	}
	return nil
}

func (f forecast) why() string {
	switch {
	case f.Error != "":
		return f.Error
	case f.Leader == "":
		return f.Note
	case f.Cause != "":
		return f.Cause + ": " + f.Reason
	case f.LeaseUnconfirmed != "":
		return "it stays elected, but its lease is not confirmed: " + f.LeaseUnconfirmed
	case f.State == string(cluster.CurrentReady):
		return "it already leads"
	}
	return "it stays elected, and does not lead yet"
}

// leadsNow returns the node that leads now, with what is missing if it only should.
func (f forecast) leadsNow() string {
	switch {
	case f.LeaseUnconfirmed != "":
		return f.Now + ", unconfirmed"
	case f.Now != "" && f.State != string(cluster.CurrentReady):
		return "none, " + f.Now + " elected"
	}
	return nobody(f.Now)
}

// print prints the forecast for the only leader.
func (f forecast) print(w io.Writer) error {
	if f.Leader == "" {
		_, err := fmt.Fprintf(w, "Leader   none\nWhy      %s\n", printable(f.why()))
		return err
	}
	fmt.Fprintf(w, "Leader   %s (site %s)\nWhy      %s\n", printable(f.Leader), printable(f.Site), printable(f.why()))
	if writeAnswers(w, f.RollCall); len(f.RollCall) > 0 {
		fmt.Fprintln(w, "         by which the present decision was made; this forecast goes by what members publish")
	}
	fact(w, "Blocked", f.Blocked)
	for _, p := range f.Problems {
		fact(w, "Problem", p)
	}
	return nil
}

func forecastTable(w io.Writer, all []forecast, losses bool) error {
	lost := func(f forecast) []any { return []any{f.Group} }
	head := []any{"GROUP"}
	if losses {
		lost = func(f forecast) []any { return []any{f.Group, f.Lost} }
		head = append(head, "LOST")
	}
	t := newTable(w, append(head, "LEADS NOW", "WOULD LEAD", "SITE", "WHY")...)
	for _, f := range all {
		t.row(append(lost(f), f.leadsNow(), nobody(f.Leader), f.Site, f.why())...)
	}
	return t.Flush()
}

// balanceText describes how evenly the groups are spread.
func balanceText(b whatif.Balance) string {
	if b.Groups == 0 || b.Nodes == 0 {
		return "Evenness  no group would have a leader"
	}
	text := fmt.Sprintf("Evenness  %d leaders on %d eligible nodes, at most %d on one: %.2f times the mean", b.Groups,
		b.Nodes, b.Most, b.Ratio)
	if fmt.Sprintf("%.2f", b.WeightedRatio) != fmt.Sprintf("%.2f", b.Ratio) {
		text += fmt.Sprintf(", %.2f times by weight", b.WeightedRatio)
	}
	return text
}

// checkForecasts returns an error if there is no forecast for a group, or if a loss leaves one without a leader.
func checkForecasts(all []forecast, losses bool) error {
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
