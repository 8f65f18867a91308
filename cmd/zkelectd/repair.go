package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"zkelectd/internal/config"
	"zkelectd/internal/operator"
)

func repairCommand() *cobra.Command {
	var file string
	var dry bool
	cmd := &cobra.Command{
		Use:   "repair [policy] [control] [history]",
		Short: "Repair damaged records that daemons leave alone",
		Long: `Repair replaces damaged records. It replaces the policy with that of --file (default:
--config), and control and history with empty records; this ends all pauses, moves and
cordons. Without a name it repairs all of them. It leaves records that are not damaged,
and those of a newer version, as they are.

The elector repairs elected, fence and current; repair reports whether they are
damaged.`,
		ValidArgs: operator.Repairable,
	}
	config.RegisterConnection(cmd.Flags())
	cmd.Flags().StringVar(&file, "file", "", "the configuration file with the policy that replaces a damaged one (default: that of --config)")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print what would change, without changing it")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		local := func() (config.Config, error) {
			if file == "" {
				file = cmd.Flags().Lookup("config").Value.String()
			}
			if file == "" {
				return config.Config{}, errors.New("the policy is damaged: name a configuration file whose policy replaces it, with --file")
			}
			return config.Load(config.Sources{File: file})
		}
		return withGroup(cmd, func(ctx context.Context, g group) error {
			return g.repair(ctx, cmd.OutOrStdout(), local, dry, args)
		})
	}
	return cmd
}

func (g group) repair(ctx context.Context, w io.Writer, local func() (config.Config, error), dry bool, names []string) error {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	damage, err := operator.ReadDamage(ctx, g.session, g.paths)
	if err != nil {
		return err
	}
	plan, err := damage.PlanRepairs(operator.Replacement{Policy: local, By: whoami(), Wall: time.Now()}, names...)
	if err != nil {
		return err
	}
	if len(plan) == 0 {
		fmt.Fprintln(w, "nothing is damaged")
	}
	var refused []string
	for _, r := range plan {
		fmt.Fprintf(w, "%s: %s\n", r.Name, printable(r.Fault.Error()))
		switch {
		case r.Refused:
			refused = append(refused, r.Name)
		case r.Op != nil && !dry:
			if _, err := g.session.Do(ctx, *r.Op); err != nil {
				return fmt.Errorf("cannot repair znode %s: %w; run it again", r.Op.Path, err)
			}
		}
		if r.Op != nil && dry {
			fmt.Fprintf(w, "  would be %s\n", printable(r.Action))
		} else {
			fmt.Fprintf(w, "  %s\n", printable(r.Action))
		}
	}
	if len(refused) > 0 {
		return fmt.Errorf("not repaired: %s: upgrade this host", strings.Join(refused, ", "))
	}
	return nil
}
