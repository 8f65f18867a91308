package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"zkelectd/internal/admission"
	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/operator"
	"zkelectd/internal/policy"
)

func checkCommand() *cobra.Command {
	var offline bool
	cmd := &cobra.Command{
		Use:   "check [flags] [-- command args...]",
		Short: "Check a configuration, and print the effective one",
		Long: `Check reports all errors of a configuration at once, or prints the effective one.
If the group can be reached, it also warns about problems of the policy there: a site
without members, or no eligible member. It checks that systemd knows child.unit and
that the unit starts only while this host leads.`,
		Args: childArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := load(cmd, args)
			if err != nil {
				return err
			}
			session := cfg.ZooKeeper.LeaseBase(cfg.ZooKeeper.SessionTimeout)
			if _, err := cluster.NewBudget(session, cfg.StopTimeout(session)); err != nil {
				return err
			}
			if !offline {
				if err := checkFiles(cfg); err != nil {
					return err
				}
				if cfg.Child.Unit != "" {
					if _, err := admission.CheckUnit(cmd.Context(), cfg.Child.Unit); err != nil {
						return err
					}
				}
				checkGroup(cmd.Context(), cmd.ErrOrStderr(), cfg)
			}
			_, err = cmd.OutOrStdout().Write([]byte(cfg.YAML()))
			return err
		},
	}
	config.RegisterFlags(cmd.Flags())
	cmd.Flags().BoolVar(&offline, "offline", false, "check neither the group nor child.unit")
	return cmd
}

// checkGroup warns about problems of the configuration's policy with the members of the group. It prints nothing if the
// group cannot be reached.
func checkGroup(ctx context.Context, w io.Writer, cfg config.Config) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if cfg.ZooKeeper.ConnectTimeout == 0 {
		cfg.ZooKeeper.ConnectTimeout = time.Second
	}
	s, paths, err := openSession(ctx, cfg)
	var snap cluster.Snapshot
	if err == nil {
		defer s.Close(ctx)
		snap, err = group{cfg, s, paths}.read(ctx)
	}
	if errors.Is(err, cluster.ErrNoAuth) {
		fmt.Fprintln(w, "warning:", printable(err.Error()))
	}
	if err != nil {
		return
	}
	compiled, err := policy.New(cluster.Policy{Rules: cfg.Rules()})
	if err != nil {
		return // refused with the configuration
	}
	warnings := compiled.Problems(snap.Members)
	if err := operator.CheckEligible(cfg, snap, cluster.Policy{Rules: cfg.Rules()}); err != nil {
		warnings = append(warnings, err.Error())
	}
	for _, text := range warnings {
		fmt.Fprintln(w, "warning:", printable(text))
	}
}
