package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/operator/status"
)

func historyCommand(c *command) {
	var n int
	var following, fencings bool
	c.Use = "history"
	c.Short = "List the last terms: who led, why, by whom, and how long the group had no leader"
	c.Long = fmt.Sprintf(`History lists the terms that the electors recorded, at most %d. TO READY is
from the decision to READY, if the elector saw both. LEADERLESS is from the end of the
last leader's work to READY: "at most" from its last renewal if its host was lost, "at
least" if nobody knows when its work ended; "-" for the first leader.

With --follow it prints new terms as they come; -o json then prints an object per line.
With --fencing it lists what people have fenced with the command fence instead. What
candidates have fenced is in the REASON of their terms.`, cluster.MaxHistory)
	output := c.outputFlag()
	c.Flags().IntVarP(&n, "number", "n", 20, "how many of the last terms")
	c.Flags().BoolVar(&following, "follow", false, "print each new term, until interrupted")
	c.Flags().BoolVar(&fencings, "fencing", false, "list what people have fenced instead of terms")
	c.MarkFlagsMutuallyExclusive("follow", "fencing")
	c.endless = &following
	c.check = func([]string) error {
		if n < 1 {
			return fmt.Errorf("-n %d: must be 1 or more", n)
		}
		return nil
	}
	c.run = func(ctx context.Context, g group, _ []string) error {
		if fencings {
			return showFencings(ctx, c.OutOrStdout(), g, n, *output)
		}
		return showHistory(ctx, c.OutOrStdout(), g, n, *output, following)
	}
}

func showHistory(ctx context.Context, w io.Writer, g group, n int, output string, following bool) error {
	if following {
		watched := func(ctx context.Context, g group) (cluster.History, error) { return g.history(ctx, true) }
		return follow(ctx, g, time.Time{}, watched, &newTerms{notices: notices{w: os.Stderr}, out: w,
			output: output, last: n})
	}
	h, err := g.history(ctx, false)
	if err != nil {
		return err
	}
	if len(h.Terms) == 0 {
		if err := g.requireCreated(ctx); err != nil {
			return err
		}
	}
	terms := lastTerms(&h, n)
	if output == "json" {
		return printJSON(w, append([]cluster.PastTerm{}, terms...))
	}
	return printTerms(w, terms, output, true)
}

func lastTerms(h *cluster.History, n int) []cluster.PastTerm { return h.Terms[max(0, len(h.Terms)-n):] }

// newTerms is the display of history --follow: the last terms, then each new one. A gap misses no term, as the electors
// have recorded those in it.
type newTerms struct {
	notices
	out    io.Writer
	output string
	last   int              // how many terms it shows at first
	shown  *cluster.History // nil before the first
}

func (n *newTerms) show(h cluster.History) error {
	terms, head := lastTerms(&h, n.last), true
	if n.shown != nil {
		head = false
		terms = slices.DeleteFunc(slices.Clone(h.Terms), func(t cluster.PastTerm) bool {
			_, shown := n.shown.Find(t.Term)
			return shown
		})
	}
	n.shown = &h
	return printTerms(n.out, terms, n.output, head)
}

func printTerms(w io.Writer, terms []cluster.PastTerm, output string, head bool) error {
	if output == "json" {
		for _, t := range terms {
			if err := printJSONLine(w, t); err != nil {
				return err
			}
		}
		return nil
	}
	t := newTable(w)
	if head {
		t.row("TERM", "TIME", "NODE", "SITE", "CAUSE", "BY", "TO READY", "LEADERLESS", "REASON")
	}
	for _, p := range terms {
		reason := p.Reason
		if p.Outcome != string(cluster.CurrentReady) {
			reason += " [" + p.Outcome + "]"
		}
		if p.Wait != "" {
			reason += " [waited " + p.Wait + "]"
		}
		for _, r := range p.Fencing {
			reason += " [" + r.String() + "]"
		}
		if answers := cluster.AnswersIn(p.Ranking); answers != nil {
			reason += " [answers: " + cluster.DescribeAnswers(answers[:min(len(answers), shownAnswers)]) + "]"
		}
		if p.Forced != nil {
			reason += " [" + p.Forced.String() + "]"
		}
		t.row(p.Term, p.Time.Local().Format(time.DateTime), p.Node, p.Site, p.Cause, dash(p.By), formatDuration(p.ToReady),
			formatGap(p.Leaderless), reason)
	}
	return t.Flush()
}

// shownAnswers is how many answers to a roll call a line of the history has.
const shownAnswers = 3

// formatDuration returns a duration in as many digits as matter, "-" for none.
func formatDuration(d *cluster.Duration) string {
	if d == nil {
		return "-"
	}
	return d.Rounded()
}

// formatGap returns a gap for people, "-" for none.
func formatGap(g *cluster.Gap) string {
	if g == nil {
		return "-"
	}
	return g.Rounded()
}

func explainCommand(c *command) {
	c.Use = "explain"
	c.Short = "Show why the leader leads: every member, filter and ranker, and what would change it"
	term := c.Flags().Int64("term", 0, "a past term of 'zkelectd history', with its verdicts")
	output := c.outputFlag()
	c.run = func(ctx context.Context, g group, _ []string) error {
		if c.Flags().Changed("term") {
			return explainTerm(ctx, c.OutOrStdout(), g, *term, *output)
		}
		return explainNow(ctx, c.OutOrStdout(), g, *output)
	}
}

func explainNow(ctx context.Context, w io.Writer, g group, output string) error {
	q, err := g.submitter().Question(ctx)
	if err != nil {
		return err
	}
	e := whatif.Explain(q)
	e.Stuck = withLeaderView(ctx, g.name, status.Of(g.name, g.paths.Root, q.Snapshot)).Stuck
	if output == "json" {
		return printJSON(w, e)
	}
	_, err = io.WriteString(w, colorize(w, explanationTable(e)))
	return err
}

// lastChange describes the change of leader after which the members are ranked.
func lastChange(c cluster.Circumstances) string {
	if c.Node == "" {
		return string(c.Cause)
	}
	format, ok := map[cluster.Cause]string{
		cluster.CauseFailure: "the failure of %s", cluster.CauseSilent: "%s fell silent",
		cluster.CauseLapsed: "ZooKeeper did not answer %s in time", cluster.CauseStopped: "the stop of %s",
		cluster.CauseGaveUp:  "%s gave up",
		cluster.CauseRevoked: "the leadership of %s was revoked", cluster.CauseOverdue: "the takeover of %s was overdue",
		cluster.CausePreempt: "%s was preempted", cluster.CauseIneligible: "%s became ineligible",
		cluster.CauseUnhealthy: "%s became unhealthy",
		cluster.CauseMove:      "a move from %s", cluster.CauseDrain: "a drain of %s",
	}[c.Cause]
	if !ok {
		format = string(c.Cause) + " of %s"
	}
	return fmt.Sprintf(format, fmt.Sprintf("%s (%s)", c.Node, c.Site))
}

// explanationHead describes the leader, and how the members are ranked.
func explanationHead(b *strings.Builder, e whatif.Explanation) {
	if e.Leader == "" {
		fact(b, "Leader", "none")
		fact(b, "Why", e.NoLeader)
	} else {
		fmt.Fprintf(b, "Leader   %s (site %s), term %d\n", printable(e.Leader), printable(e.Site), e.Term)
		fmt.Fprintf(b, "Why      %s: %s\n", printable(e.Cause), printable(e.Reason))
	}
	fact(b, "Waiting", e.Waiting)
	writeAnswers(b, e.RollCall)
	fact(b, "Stuck", e.Stuck)
	for _, r := range e.Fencing {
		fact(b, "Fencing", r.String())
	}
	fmt.Fprintf(b, "Policy   %s, revision %d\n", e.PolicyType, e.Revision)
	if c := e.Circumstances; c.Cause != "" {
		fmt.Fprintf(b, "Ranked   after %s", printable(lastChange(c)))
		if len(c.Failed) > 0 {
			fmt.Fprintf(b, "; failed sites: %s", printable(strings.Join(c.Failed, ", ")))
		}
		fmt.Fprintln(b)
	}
	for _, note := range e.Notes {
		fact(b, "Problem", note)
	}
	fact(b, "Blocked", e.Blocked)
}

// writeAnswers writes the answers of members to the roll call for a decision, if there was one.
func writeAnswers(w io.Writer, answers []cluster.RankedAnswer) {
	if len(answers) > 0 {
		fact(w, "Answers", cluster.DescribeAnswers(answers))
	}
}

// fact writes a line of a description, unless the text is empty.
func fact(w io.Writer, name, text string) {
	if text != "" {
		fmt.Fprintf(w, "%-8s %s\n", name, printable(text))
	}
}

func explanationTable(e whatif.Explanation) string {
	var b strings.Builder
	explanationHead(&b, e)
	fmt.Fprintln(&b)
	columns := informativeRankers(e)
	head := []any{"RANK", "NODE", "SITE"}
	for _, i := range columns {
		head = append(head, strings.ToUpper(e.Members[0].Scores[i].Ranker))
	}
	t := newTable(&b, append(head, "FILTERS")...)
	for _, m := range e.Members {
		cells := []any{rankText(m.Rank), m.Node, m.Site}
		for _, i := range columns {
			cells = append(cells, dash(m.Scores[i].Words))
		}
		var why []string
		for _, r := range m.Refusals {
			why = append(why, r.Filter+": "+r.Reason)
		}
		t.row(append(cells, cmp.Or(strings.Join(why, "; "), "passed"))...)
	}
	t.Flush()
	fmt.Fprintln(&b)
	for _, line := range e.Changes {
		fmt.Fprintf(&b, "- %s\n", printable(line))
	}
	return b.String()
}

// rankText returns a rank, or a dash for a member that is not eligible.
func rankText(rank int) string {
	if rank > 0 {
		return strconv.Itoa(rank)
	}
	return "-"
}

// informativeRankers returns the indexes of the rankers that have words for any member.
func informativeRankers(e whatif.Explanation) []int {
	var list []int
	if len(e.Members) == 0 {
		return nil
	}
	for i := range e.Members[0].Scores {
		for _, m := range e.Members {
			if m.Scores[i].Words != "" {
				list = append(list, i)
				break
			}
		}
	}
	return list
}

func explainTerm(ctx context.Context, w io.Writer, g group, term int64, output string) error {
	h, err := g.history(ctx, false)
	if err != nil {
		return err
	}
	t, ok := h.Find(term)
	if !ok {
		return fmt.Errorf("term %d is not in the history; %s lists those that are", term,
			cluster.InGroup("'zkelectd history -n %s'", g.name, cluster.MaxHistory))
	}
	if output == "json" {
		return printJSON(w, t)
	}
	fmt.Fprintf(w, "Leader   %s (site %s), term %d: %s\n", printable(t.Node), printable(t.Site), t.Term,
		printable(t.Outcome))
	fmt.Fprintf(w, "Why      %s: %s\n", printable(string(t.Cause)), printable(t.Reason))
	for _, r := range t.Fencing {
		fact(w, "Fencing", r.String())
	}
	writeAnswers(w, cluster.AnswersIn(t.Ranking))
	fact(w, "Waited", t.Wait)
	fmt.Fprintf(w, "Policy   revision %d, decided by %s at %s\n\n", t.PolicyRevision, printable(t.Elector),
		t.Time.Local().Format("2006-01-02 15:04:05"))
	tab := newTable(w, "RANK", "NODE", "SITE", "VERDICT")
	for _, v := range t.Ranking {
		tab.row(rankText(v.Rank), v.Node, v.Site, v.Reason)
	}
	tab.Flush()
	if t.RankingOmitted > 0 {
		fmt.Fprintf(w, "and %d more\n", t.RankingOmitted)
	}
	return nil
}
