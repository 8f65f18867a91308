package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/operator"
	"zkelectd/internal/policy"
	"zkelectd/internal/whatif"
)

func policyCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "policy", Short: "Show, compare or publish the policy of the group", Args: cobra.NoArgs}
	cmd.AddCommand(policyShowCommand(), policyDiffCommand(), policyApplyCommand(), policyTypesCommand())
	return cmd
}

func policyShowCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "show", Short: "Print the policy in force, as a part of a configuration file", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			return withGroup(cmd, func(ctx context.Context, g group) error {
				rec, err := g.policyInForce(ctx)
				if err != nil {
					return err
				}
				if output == "json" {
					return printJSON(cmd.OutOrStdout(), rec)
				}
				fmt.Fprintf(cmd.OutOrStdout(), "# revision %d, published by %s at %s\n%s", rec.Revision, printable(rec.By), rec.Time.Local().Format(time.DateTime), printableText(config.RulesYAML(rec.Rules)))
				return nil
			})
		},
	}
	config.RegisterConnection(cmd.Flags())
	outputFlag(cmd, &output)
	return cmd
}

func (g group) policyInForce(ctx context.Context) (cluster.Policy, error) {
	snap, err := g.read(ctx)
	switch {
	case err != nil:
		return cluster.Policy{}, err
	case !snap.Policy.Exists:
		return cluster.Policy{}, fmt.Errorf("znode %s does not exist: no policy has been published yet; the first elector publishes its own", g.paths.Policy())
	}
	return snap.Policy.Record, snap.Policy.Err
}

func policyDiffCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "diff FILE", Short: "Compare the policy in force with that of a configuration file; exit 1 if they differ", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := config.Load(config.Sources{File: args[0]})
			if err != nil {
				return exitError{2, err}
			}
			var lines []string
			err = withGroup(cmd, func(ctx context.Context, g group) error {
				rec, err := g.policyInForce(ctx)
				lines = config.RulesDiff(rec.Rules, cfg.Rules())
				return err
			})
			if err != nil {
				return exitError{2, err}
			}
			printLines(cmd.OutOrStdout(), lines)
			if len(lines) > 0 {
				return exitError{1, nil}
			}
			return nil
		},
	}
	config.RegisterConnection(cmd.Flags())
	return cmd
}

func printLines(w io.Writer, lines []string) {
	for _, line := range lines {
		fmt.Fprintln(w, printable(line))
	}
}

func policyApplyCommand() *cobra.Command {
	var dry, force bool
	cmd := &cobra.Command{
		Use: "apply FILE", Short: "Put the policy of a configuration file in force for the group",
		Long: `Apply publishes the policy section of a configuration file, with the settings of its
election section that are part of the policy. A policy.revision in the file must be
higher than the one in force. The files of the hosts are not changed; status shows
which differ.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := config.Load(config.Sources{File: args[0]})
			if err != nil {
				return err
			}
			return withGroup(cmd, func(ctx context.Context, g group) error {
				w := cmd.OutOrStdout()
				snap, err := g.read(ctx)
				if err != nil {
					return err
				}
				lines := config.RulesDiff(snap.Policy.Record.Rules, cfg.Rules())
				printLines(w, lines)
				p := operator.Proposal{Config: cfg, By: whoami(), Revision: cfg.Policy.Revision, Force: force}
				if dry {
					return forecastPolicy(ctx, w, g, snap, p)
				}
				rec, err := g.publish(ctx, p)
				if err != nil {
					return err
				}
				fmt.Fprintf(w, "revision %d is in force, published by %s\n", rec.Revision, printable(rec.By))
				return nil
			})
		},
	}
	config.RegisterConnection(cmd.Flags())
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print what would change, without changing it")
	cmd.Flags().BoolVar(&force, "force", false, "publish it even if no member is eligible under it")
	return cmd
}

// forecastPolicy prints what a policy would change.
func forecastPolicy(ctx context.Context, w io.Writer, g group, snap cluster.Snapshot, p operator.Proposal) error {
	rec, err := p.Next(snap)
	if err != nil {
		return err
	}
	q, err := g.submitter().Question(ctx, snap)
	if err != nil {
		return err
	}
	if q.Policy, err = policy.New(rec); err != nil {
		return err
	}
	f := newForecast(whatif.Run(q), "")
	fmt.Fprintf(w, "revision %d would be in force; leader then: %s (%s): %s\n", rec.Revision, printable(f.Leader), printable(f.Site), printable(f.why()))
	return nil
}
