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
	"zkelectd/internal/elector"
	"zkelectd/internal/policy"
	"zkelectd/internal/whatif"
)

// foreseen is the output of whatif, one for each loss with --all.
type foreseen struct {
	// Lost is the node or site, with --all.
	Lost string `json:"lost,omitempty"`
	// Leader would lead, empty if nobody would; Cause and Reason say why; both are empty if the present leader stays.
	Leader string `json:"leader"`
	Site   string `json:"site,omitempty"`
	Cause  string `json:"cause,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Note says why nobody would lead, Holding why a better member would not take over.
	Note     string   `json:"note,omitempty"`
	Holding  string   `json:"holding,omitempty"`
	Problems []string `json:"problems,omitempty"`
}

func whatifCommand() *cobra.Command {
	var change whatif.Change
	var file, output string
	var all bool
	cmd := &cobra.Command{
		Use:   "whatif",
		Short: "Say who would lead if nodes were lost, cordoned or ranked otherwise; nothing is written",
		Long: `Whatif lets the elector decide on the group as it is, with changes applied.

With --all it does so for the loss of every single node and of every single site,
and exits with 1 if one of them would leave no leader.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			return withConfig(cmd, func(ctx context.Context, g group) error {
				snap, err := g.read(ctx)
				if err != nil {
					return err
				}
				q, err := g.supposing(ctx, snap, file, change)
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
	f.StringVar(&file, "policy", "", "rank by the policy of this configuration file")
	f.StringSliceVar(&change.Without, "without", nil, "nodes that are lost")
	f.StringSliceVar(&change.WithoutSites, "without-site", nil, "sites that are lost")
	f.StringSliceVar(&change.Cordon, "cordon", nil, "nodes that are cordoned")
	f.StringSliceVar(&change.Drain, "drain", nil, "nodes that are drained")
	f.BoolVar(&all, "all", false, "every single node and every single site lost; exit 1 if one leaves no leader")
	outputFlag(cmd, &output)
	return cmd
}

// supposing asks about the group under changes. Names that nothing has are slips.
func (g group) supposing(ctx context.Context, snap cluster.Snapshot, file string, change whatif.Change) (whatif.Question, error) {
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
			return q, fmt.Errorf("no member is on the site %q", site)
		}
	}
	q.Change = change
	return q, nil
}

func foresee(out whatif.Outcome, lost string) foreseen {
	f := foreseen{Lost: lost, Leader: out.Leader.ID, Site: out.Leader.Node.Record.Site, Note: out.Last.Note, Holding: out.Last.Blocked, Problems: out.Problems}
	if n := len(out.Steps); n > 0 {
		f.Cause, f.Reason = string(out.Steps[n-1].Cause), out.Steps[n-1].Reason
	}
	if !out.Led() && f.Note == "" {
		f.Note = elector.Refusals(out.Last.Ranking)
	}
	return f
}

func (f foreseen) why() string {
	switch {
	case f.Leader == "":
		return f.Note
	case f.Cause == "":
		return "it leads already"
	}
	return f.Cause + ": " + f.Reason
}

func printForecast(w io.Writer, q whatif.Question, output string) error {
	f := foresee(whatif.Run(q), "")
	if output == "json" {
		return printJSON(w, f)
	}
	if f.Leader == "" {
		fmt.Fprintf(w, "Leader   none\nWhy      %s\n", plain(f.why()))
		return nil
	}
	fmt.Fprintf(w, "Leader   %s (site %s)\nWhy      %s\n", plain(f.Leader), plain(f.Site), plain(f.why()))
	if f.Holding != "" {
		fmt.Fprintf(w, "Holding  %s\n", plain(f.Holding))
	}
	for _, p := range f.Problems {
		fmt.Fprintf(w, "Problem  %s\n", plain(p))
	}
	return nil
}

func whatifAll(w io.Writer, q whatif.Question, output string) error {
	list := []foreseen{}
	var bad []string
	for _, loss := range whatif.Losses(q) {
		name := loss.Node
		if name == "" {
			name = "site " + loss.Site
		}
		f := foresee(loss.Outcome, name)
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
				leader = "NOBODY"
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", plain(f.Lost), plain(leader), plain(f.Site), plain(f.why()))
		}
		t.Flush()
	}
	switch {
	case len(list) == 0:
		return exitCode{1, errors.New("no daemon is registered")}
	case len(bad) > 0:
		return exitCode{1, fmt.Errorf("nobody would lead after the loss of: %s", strings.Join(bad, ", "))}
	}
	return nil
}
