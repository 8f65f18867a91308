package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/policy"
	"zkelectd/internal/whatif"
)

// forecast is the output of whatif; with --all there is one for each loss.
type forecast struct {
	// Lost is the node or site that is lost, with --all.
	Lost string `json:"lost,omitempty"`
	// Leader is the node that would lead, empty for none. Cause and Reason say why; both are empty if the current leader stays.
	Leader string `json:"leader"`
	Site   string `json:"site,omitempty"`
	Cause  string `json:"cause,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Note says why there would be no leader, Blocked why a better member would not take over.
	Note     string   `json:"note,omitempty"`
	Blocked  string   `json:"preemption_blocked,omitempty"`
	Problems []string `json:"problems,omitempty"`
}

func whatifCommand() *cobra.Command {
	var change whatif.Change
	var file, output string
	var all bool
	cmd := &cobra.Command{
		Use:   "whatif",
		Short: "Forecast who would lead if nodes were lost, cordoned or ranked by another policy",
		Long: `Whatif runs the elector on the current state of the group, with changes applied.
Nothing is written.

With --all it does so for the loss of each node and of each site, and exits with 1
if one of them would leave the group without a leader.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			return withGroup(cmd, func(ctx context.Context, g group) error {
				snap, err := g.read(ctx)
				if err != nil {
					return err
				}
				q, err := g.question(ctx, snap, file, change)
				if err != nil {
					return err
				}
				if all {
					return whatifAll(cmd.OutOrStdout(), q, output)
				}
				return printForecast(cmd.OutOrStdout(), q, output)
			})
		},
	}
	config.RegisterConnection(cmd.Flags())
	f := cmd.Flags()
	f.StringVar(&file, "policy", "", "use the policy of this configuration file")
	f.StringSliceVar(&change.Without, "without", nil, "nodes to assume lost")
	f.StringSliceVar(&change.WithoutSites, "without-site", nil, "sites to assume lost")
	f.StringSliceVar(&change.Cordon, "cordon", nil, "nodes to assume cordoned")
	f.StringSliceVar(&change.Drain, "drain", nil, "nodes to assume drained")
	f.BoolVar(&all, "all", false, "forecast the loss of each node and each site; exit 1 if one leaves no leader")
	outputFlag(cmd, &output)
	return cmd
}

// question returns the question of what a change would do to the group. Unknown nodes and sites are usage errors.
func (g group) question(ctx context.Context, snap cluster.Snapshot, file string, change whatif.Change) (whatif.Question, error) {
	q, err := g.submitter().Question(ctx, snap)
	if err != nil {
		return q, err
	}
	if file != "" {
		cfg, err := config.Load(config.Sources{File: file})
		if err != nil {
			return q, err
		}
		if q.Policy, err = policy.New(cluster.Policy{Revision: int64(cfg.Policy.Revision), Rules: cfg.Rules()}); err != nil {
			return q, err
		}
	}
	nodes, sites := make(map[string]bool), make(map[string]bool)
	for _, m := range snap.Members {
		nodes[m.ID], sites[m.Node.Record.Site] = true, true
	}
	for _, list := range [][]string{change.Without, change.Cordon, change.Drain} {
		for _, id := range list {
			if !nodes[id] {
				return q, fmt.Errorf("no member has the id %q", id)
			}
		}
	}
	for _, site := range change.WithoutSites {
		if !sites[site] {
			return q, fmt.Errorf("no member is at the site %q", site)
		}
	}
	q.Change = change
	return q, nil
}

func newForecast(out whatif.Outcome, lost string) forecast {
	f := forecast{Lost: lost, Leader: out.Leader.ID, Site: out.Leader.Node.Record.Site, Note: out.Last.Note, Blocked: out.Last.Blocked, Problems: out.Problems}
	if n := len(out.Steps); n > 0 {
		f.Cause, f.Reason = string(out.Steps[n-1].Cause), out.Steps[n-1].Reason
	}
	if !out.HasLeader() && f.Note == "" {
		f.Note = out.Refusals()
	}
	return f
}

func (f forecast) why() string {
	switch {
	case f.Leader == "":
		return f.Note
	case f.Cause == "":
		return "it already leads"
	}
	return f.Cause + ": " + f.Reason
}

func printForecast(w io.Writer, q whatif.Question, output string) error {
	f := newForecast(whatif.Run(q), "")
	if output == "json" {
		return printJSON(w, f)
	}
	if f.Leader == "" {
		fmt.Fprintf(w, "Leader   none\nWhy      %s\n", printable(f.why()))
		return nil
	}
	fmt.Fprintf(w, "Leader   %s (site %s)\nWhy      %s\n", printable(f.Leader), printable(f.Site), printable(f.why()))
	if f.Blocked != "" {
		fmt.Fprintf(w, "Blocked  %s\n", printable(f.Blocked))
	}
	for _, p := range f.Problems {
		fmt.Fprintf(w, "Problem  %s\n", printable(p))
	}
	return nil
}

func whatifAll(w io.Writer, q whatif.Question, output string) error {
	list := []forecast{}
	var bad []string
	for _, loss := range whatif.Losses(q) {
		name := loss.Node
		if name == "" {
			name = "site " + loss.Site
		}
		f := newForecast(loss.Outcome, name)
		if f.Leader == "" {
			bad = append(bad, name)
		}
		list = append(list, f)
	}
	if output == "json" {
		if err := printJSON(w, list); err != nil {
			return err
		}
	} else {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "LOST\tLEADER THEN\tSITE\tWHY")
		for _, f := range list {
			leader := f.Leader
			if leader == "" {
				leader = "NONE"
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", printable(f.Lost), printable(leader), printable(f.Site), printable(f.why()))
		}
		t.Flush()
	}
	switch {
	case len(list) == 0:
		return exitError{1, errors.New("no daemon is registered")}
	case len(bad) > 0:
		return exitError{1, fmt.Errorf("there would be no leader after the loss of: %s", strings.Join(bad, ", "))}
	}
	return nil
}
