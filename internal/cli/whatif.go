package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/policy"
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
if one of them would leave the group without a leader.

If zookeeper.root has several groups and none is named with -g, it prints the forecast
for each of them. A group with slots has one for each slot.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			return withSelectionLike(cmd, file, func(ctx context.Context, s selection) error {
				g, err := s.only()
				switch {
				case err != nil && file != "":
					return err // a policy is for one group
				case err != nil:
					return s.forecastGroups(ctx, cmd.OutOrStdout(), change, all, output)
				}
				return g.forecast(ctx, cmd.OutOrStdout(), file, change, all, output)
			})
		},
	}
	groupFlags(cmd)
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

// forecast prints the forecast for one group.
func (g group) forecast(ctx context.Context, w io.Writer, file string, change whatif.Change, losses bool, output string) error {
	q, err := g.submitter().Question(ctx)
	if err != nil {
		return err
	}
	known := newTargets()
	known.add(q.Snapshot)
	if err := known.check(change); err != nil {
		return err
	}
	if file != "" {
		cfg, err := config.Load(config.Sources{File: file})
		if err != nil {
			return err
		}
		if q.Policy, err = policy.New(cluster.Policy{Rules: cfg.Rules()}); err != nil {
			return err
		}
	}
	q.Change = change
	if q.Slots != nil {
		return g.forecastSlots(w, q, losses, output)
	}
	if losses {
		return whatifAll(w, q, output)
	}
	return printForecast(w, q, output)
}

// targets are the nodes and sites that a change can name.
type targets struct {
	mu           sync.Mutex
	nodes, sites map[string]bool
}

func newTargets() *targets {
	return &targets{nodes: make(map[string]bool), sites: make(map[string]bool)}
}

// add adds the members of a group.
func (t *targets) add(s cluster.Snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range s.Members {
		t.nodes[m.ID], t.sites[m.Node.Record.Site] = true, true
	}
}

// check returns an error if a change names an unknown node or site: that would be a typing error.
func (t *targets) check(c whatif.Change) error {
	for _, id := range slices.Concat(c.Without, c.Cordon, c.Drain) {
		if !t.nodes[id] {
			return fmt.Errorf("no member has the id %q", id)
		}
	}
	for _, site := range c.WithoutSites {
		if !t.sites[site] {
			return fmt.Errorf("no member is at the site %q", site)
		}
	}
	return nil
}

func newForecast(out whatif.Outcome, lost string) forecast {
	f := forecast{Lost: lost, Leader: out.Leader.ID, Site: out.Leader.Node.Record.Site, Note: out.Last.Note, Blocked: out.Blocked, Problems: out.Problems}
	if n := len(out.Steps); n > 0 {
		f.Cause, f.Reason = string(out.Steps[n-1].Cause), out.Steps[n-1].Reason
	}
	if !out.HasLeader() && f.Note == "" {
		f.Note = out.WhyNoLeader()
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

// lossName returns the node or site that is lost.
func lossName(l whatif.Loss) string {
	if l.Node == "" {
		return "site " + l.Site
	}
	return l.Node
}

func whatifAll(w io.Writer, q whatif.Question, output string) error {
	list := []forecast{}
	var bad []string
	for _, loss := range whatif.Losses(q) {
		f := newForecast(loss.Outcome, lossName(loss))
		if f.Leader == "" {
			bad = append(bad, f.Lost)
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
		return exitError{statusNo, errors.New("no daemon is registered")}
	case len(bad) > 0:
		return exitError{statusNo, fmt.Errorf("there would be no leader after the loss of: %s", strings.Join(bad, ", "))}
	}
	return nil
}
