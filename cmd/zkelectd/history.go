package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
)

func historyCommand() *cobra.Command {
	var n int
	var output string
	var follow bool
	cmd := &cobra.Command{
		Use:   "history",
		Short: "List the last terms: who led, why, by whom, and how long the group had no leader",
		Long: fmt.Sprintf(`History lists the terms that the electors recorded, at most %d. The durations are
as an elector saw them: TO READY is from the decision to READY, LEADERLESS how long
there was no READY leader; "-" means that no elector saw both ends.

With --follow it prints new terms as they come; -o json then prints an object per line.`, cluster.MaxHistory),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			if n < 1 {
				return fmt.Errorf("-n %d: must be 1 or more", n)
			}
			return withGroup(cmd, func(ctx context.Context, g group) error {
				return showHistory(ctx, cmd.OutOrStdout(), g, n, output, follow)
			})
		},
	}
	config.RegisterConnection(cmd.Flags())
	cmd.Flags().IntVarP(&n, "number", "n", 20, "how many of the last terms")
	cmd.Flags().BoolVar(&follow, "follow", false, "print each new term")
	outputFlag(cmd, &output)
	return cmd
}

func showHistory(ctx context.Context, w io.Writer, g group, n int, output string, follow bool) error {
	h, err := g.history(ctx, follow)
	if err != nil {
		return err
	}
	terms := h.Terms[max(0, len(h.Terms)-n):]
	if output == "json" && !follow {
		return printJSON(w, append([]cluster.PastTerm{}, terms...))
	}
	if err := printTerms(w, terms, output, true); err != nil || !follow {
		return err
	}
	for {
		select {
		case <-g.session.Wake():
			g.session.TakeHints()
		case <-g.session.Done():
			return g.session.Err()
		case <-ctx.Done():
			return nil
		}
		next, err := g.history(ctx, true)
		if err != nil {
			if g.session.Err() == nil && ctx.Err() == nil {
				continue // no connection; the session wakes us when it is back
			}
			return err
		}
		for _, t := range next.Terms {
			if _, shown := h.Find(t.Term); !shown {
				if err := printTerms(w, []cluster.PastTerm{t}, output, false); err != nil {
					return err
				}
			}
		}
		h = next
	}
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
	t := tabwriter.NewWriter(w, 5, 0, 2, ' ', 0)
	if head {
		fmt.Fprintln(t, "TERM\tTIME\tNODE\tSITE\tCAUSE\tBY\tTO READY\tLEADERLESS\tREASON")
	}
	for _, p := range terms {
		by, reason := p.By, p.Reason
		if by == "" {
			by = "-"
		}
		if p.Outcome != string(cluster.CurrentReady) {
			reason += " [" + p.Outcome + "]"
		}
		if p.Wait != "" {
			reason += " [waited " + p.Wait + "]"
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", p.Term, p.Time.Local().Format("2006-01-02 15:04:05"), printable(p.Node), printable(p.Site), printable(string(p.Cause)),
			printable(by), formatDuration(p.ToReady), formatDuration(p.Leaderless), printable(reason))
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
