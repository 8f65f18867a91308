package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/operator"
)

func policyCommand() *cobra.Command {
	return parent(&cobra.Command{Use: "policy", Short: "Show, compare or publish the policy of the group"}, policyShowCommand(), policyDiffCommand(), policyApplyCommand())
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
	groupFlags(cmd)
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
		Use: "diff [FILE]", Short: "Compare the policy in force with that of a configuration file; exit 1 if they differ", Args: cobra.MaximumNArgs(1),
		Long: `Diff compares the policy in force with that of FILE, or without FILE with that of the
group in --config.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var lines []string
			err := withGroupLike(cmd, optional(args), func(ctx context.Context, g group) error {
				cfg, err := g.localPolicy(optional(args))
				if err != nil {
					return err
				}
				rec, err := g.policyInForce(ctx)
				lines = config.RulesDiff(rec.Rules, cfg.Rules())
				return err
			})
			if err != nil {
				return exitError{statusError, err}
			}
			printLines(cmd.OutOrStdout(), lines)
			if len(lines) > 0 {
				return exitError{statusNo, nil}
			}
			return nil
		},
	}
	groupFlags(cmd)
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
		Use: "apply [FILE]", Short: "Put the policy of a configuration file in force for the group",
		Long: `Apply publishes the policy section of FILE, or without FILE that of the group in --config.
The files of the hosts are not changed; status shows which differ.

FILE is read as the file of a host with a single group. For the policy of a group in
groups_dir, which may come from defaults, use --config and -g without FILE.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withGroupLike(cmd, optional(args), func(ctx context.Context, g group) error {
				cfg, err := g.localPolicy(optional(args))
				if err != nil {
					return err
				}
				p := operator.Proposal{Group: g.name, Config: cfg, By: whoami(), Force: force}
				return g.applyPolicy(ctx, cmd.OutOrStdout(), p, dry)
			})
		},
	}
	groupFlags(cmd)
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print what would change, without changing it")
	cmd.Flags().BoolVar(&force, "force", false, "publish it even if no member is eligible under it")
	return cmd
}

// applyPolicy publishes a policy unless dry is set, and prints what changes, who leads then, and what holds a better member back.
func (g group) applyPolicy(ctx context.Context, w io.Writer, p operator.Proposal, dry bool) error {
	q, err := g.submitter().Question(ctx)
	if err != nil {
		return err
	}
	printLines(w, config.RulesDiff(q.Snapshot.Policy.Record.Rules, p.Config.Rules()))
	rec, err := p.Next(q.Snapshot)
	if err != nil {
		return err
	}
	if q, err = operator.UnderPolicy(q, rec); err != nil {
		return err
	}
	if dry {
		fmt.Fprintf(w, "revision %d would be in force\n", rec.Revision)
	} else if rec, err = g.publish(ctx, p); err != nil {
		return err
	} else {
		fmt.Fprintf(w, "revision %d is in force, published by %s\n", rec.Revision, printable(rec.By))
	}
	printLines(w, operator.DescribeOutcome(q))
	return nil
}
