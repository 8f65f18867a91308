package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"zkelectd/internal/cluster"
)

func historyCommand(c *command) {
	var n int
	var following, fencings bool
	c.Use = "history"
	c.Short = "List the last terms: who led, why, by whom, and how long the group had no leader"
	c.Long = fmt.Sprintf(`History lists the terms that the electors recorded, at most %d. The durations are
as an elector saw them: TO READY is from the decision to READY, LEADERLESS how long
there was no READY leader; "-" means that no elector saw both ends.

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
		return follow(ctx, g, time.Time{}, watched, &newTerms{notices: notices{w: os.Stderr}, out: w, output: output, last: n})
	}
	h, err := g.history(ctx, false)
	if err != nil {
		return err
	}
	terms := lastTerms(&h, n)
	if output == "json" {
		return printJSON(w, append([]cluster.PastTerm{}, terms...))
	}
	if err := printTerms(w, terms, output, true); err != nil {
		return err
	}
	return appendSchedules(ctx, w, g)
}

func lastTerms(h *cluster.History, n int) []cluster.PastTerm { return h.Terms[max(0, len(h.Terms)-n):] }

// newTerms is the display of history --follow: the last terms, then each new one. A gap misses no term, as the electors have recorded
// those in it.
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
		if p.Forced != nil {
			reason += " [" + p.Forced.String() + "]"
		}
		t.row(p.Term, p.Time.Local().Format(time.DateTime), p.Node, p.Site, p.Cause, dash(p.By), formatDuration(p.ToReady),
			formatDuration(p.Leaderless), reason)
	}
	return t.Flush()
}

// formatDuration returns a duration in as many digits as matter, "-" for none.
func formatDuration(d *cluster.Duration) string {
	if d == nil {
		return "-"
	}
	v := time.Duration(*d)
	if v < time.Second {
		return v.Round(100 * time.Microsecond).String()
	}
	return v.Round(10 * time.Millisecond).String()
}
