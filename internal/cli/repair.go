package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"zkelectd/internal/config"
	"zkelectd/internal/operator"
	"zkelectd/internal/store"
)

func repairCommand(c *command) {
	var file string
	var dry bool
	c.Use = "repair [RECORD...]"
	c.Short = "Repair damaged records that daemons leave alone"
	c.Long = `Repair replaces damaged records. It replaces the policy with that of --file (default:
--config), control and history with empty records, which ends all pauses, moves and
cordons, and the record that the root of a group is one. Without a name it repairs all of them. It leaves records that are not damaged,
and those of a newer version, as they are.

RECORD may also be roster, slots, elected, fence or current: the elector repairs these,
and repair reports whether they are damaged.

Before you restore ZooKeeper's data from a backup, stop the daemons: see "Restore
ZooKeeper's data" in docs/operations.md.`
	c.ValidArgs = operator.Repairable
	c.Flags().StringVar(&file, "file", "", "the configuration file with the policy that replaces a damaged one (default: that of --config)")
	c.Flags().BoolVar(&dry, "dry-run", false, "print what would change, without changing it")
	c.check = func([]string) error {
		policyFrom(c.Command, file)
		return nil
	}
	c.run = func(ctx context.Context, g group, args []string) error {
		local := func() (config.Config, error) { return g.localPolicy(file) }
		return g.repair(ctx, c.OutOrStdout(), local, dry, args)
	}
}

// localPolicy returns the configuration with the policy of a file; without one, that of the group in the command's configuration.
func (g group) localPolicy(file string) (config.Config, error) {
	switch {
	case file != "":
		return config.Load(config.Sources{File: file})
	case g.configured:
		return g.cfg, nil
	case g.host.From.File != "":
		return config.Load(config.Sources{File: g.host.From.File})
	}
	return config.Config{}, errors.New("name the file that has the policy, or its configuration with --config")
}

func (g group) repair(ctx context.Context, w io.Writer, local func() (config.Config, error), dry bool, names []string) error {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	plan, err := g.planRepairs(ctx, operator.Replacement{Policy: local, By: whoami(), Wall: time.Now()}, names...)
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

// planRepairs returns what is to be repaired in the group and in its slots.
func (g group) planRepairs(ctx context.Context, with operator.Replacement, names ...string) ([]operator.Repair, error) {
	damage, err := operator.ReadDamage(ctx, g.session, g.paths)
	if err != nil {
		return nil, err
	}
	plan, err := damage.PlanRepairs(with, names...)
	if err != nil || !g.manyLeaders() {
		return plan, err
	}
	record, err := store.ReadSlots(ctx, g.session, g.paths, false)
	if err != nil {
		return nil, err
	}
	for i := range record.Record.Count {
		own, err := operator.ReadDamage(ctx, g.session, g.paths.OfSlot(i))
		if err != nil {
			return nil, err
		}
		of, err := own.PlanRepairs(with, names...)
		if err != nil {
			return nil, err
		}
		for _, r := range of {
			if r.Name != "policy" && r.Name != "control" { // the slots share them
				r.Name = fmt.Sprintf("slot %d: %s", i, r.Name)
				plan = append(plan, r)
			}
		}
	}
	return plan, nil
}
