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
		Short: "Check a configuration and print the effective one",
		Long: `Check refuses a configuration with every fault at once, or prints the effective one.
If the group can be reached, it also warns if the policy names a site that no member is
at, or leaves no member eligible. Of child.unit it checks that systemd knows it and that
it is tied to the leadership of this host.`,
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
	cmd.Flags().BoolVar(&offline, "offline", false, "do not look at the group, nor at child.unit")
	return cmd
}

// checkGroup warns of what is odd about the configuration's policy in the group as it is. Where that cannot be reached
// there is nothing to say.
func checkGroup(ctx context.Context, w io.Writer, cfg config.Config) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if cfg.ZooKeeper.ConnectTimeout == 0 {
		cfg.ZooKeeper.ConnectTimeout = time.Second
	}
	s, paths, err := client(ctx, cfg)
	var snap cluster.Snapshot
	if err == nil {
		defer s.Close(ctx)
		snap, err = group{cfg, s, paths}.read(ctx)
	}
	if errors.Is(err, cluster.ErrNoAuth) {
		fmt.Fprintln(w, "warning:", plain(err.Error()))
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
		fmt.Fprintln(w, "warning:", plain(text))
	}
}
