package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/operator"
	"zkelectd/internal/store"
)

func policyCommand(c *command) {
	var apply, dry, force bool
	c.Use = "policy [FILE]"
	c.Short = "Print, edit or publish the policy of the group"
	c.AddCommand(entry{scope: aGroup, define: policyEditCommand, examples: []string{"policy edit",
		"policy edit -g billing"}}.command())
	c.Args = cobra.MaximumNArgs(1)
	c.Long = `Policy prints the policy in force, as a part of a configuration file.

With --apply it publishes the policy section of FILE, or without FILE that of the group in
--config. The files of the hosts are not changed; status shows which differ. With --dry-run
it only shows how that policy differs from the one in force, and who would lead, and exits
with 1 if it differs.

FILE is read as the file of a host with a single group. For the policy of a group in
groups_dir, which may come from defaults, use --config and -g without FILE.`
	output := c.outputFlag()
	f := c.Flags()
	f.BoolVar(&apply, "apply", false, "put the policy of a configuration file in force for the group")
	f.BoolVar(&dry, "dry-run", false, "with --apply: print what would change, without changing it; exit 1 if the "+
		"policy differs")
	f.BoolVar(&force, "force", false, "with --apply: publish it even if no member is eligible under it")
	c.check = func(args []string) error {
		if !apply && (len(args) > 0 || dry || force) {
			return errors.New("FILE, --dry-run and --force are for --apply")
		}
		policyFrom(c.Command, optional(args))
		return nil
	}
	c.run = func(ctx context.Context, g group, args []string) error {
		if !apply {
			return g.showPolicy(ctx, c.OutOrStdout(), *output)
		}
		cfg, err := g.localPolicy(optional(args))
		if err != nil {
			return err
		}
		p := operator.Proposal{Group: g.name, Config: cfg, By: whoami(), Force: force}
		a := appliedPolicy{result: c.result(output), Group: g.name}
		return a.finish(&a, g.applyPolicy(ctx, &a, p, dry, nil))
	}
}

func (g group) showPolicy(ctx context.Context, w io.Writer, output string) error {
	snap, err := g.read(ctx)
	if err == nil {
		err = g.checkPublished(snap.Policy)
	}
	switch rec := snap.Policy.Record; {
	case err != nil:
		return err
	case output == "json":
		return printJSON(w, rec)
	default:
		_, err = fmt.Fprintf(w, "# revision %d, published by %s at %s\n%s", rec.Revision, printable(rec.By),
			rec.Time.Local().Format(time.DateTime), printableText(config.RulesYAML(rec.Rules)))
		return err
	}
}

// checkPublished returns an error unless there is a policy in force that can be read.
func (g group) checkPublished(inForce cluster.Stored[cluster.Policy]) error {
	if !inForce.Exists {
		return fmt.Errorf("znode %s does not exist: no policy has been published yet; the first elector "+
			"publishes its own", g.paths.Policy())
	}
	return inForce.Err
}

// appliedPolicy is the output of 'policy --apply' and 'policy edit'.
type appliedPolicy struct {
	result
	Group string `json:"group"`
	// Revision is that of the policy in force afterwards, or with --dry-run the one that it would be.
	Revision int64 `json:"revision"`
	// InForce is set if the policy is in force, and not with --dry-run unless it was before.
	InForce bool `json:"in_force"`
	// Differences are where it differs from the one before.
	Differences []string `json:"differences,omitempty"`
}

// applyPolicy publishes a policy unless dry is set, and prints what changes, who leads then, and what holds a better
// member back. With dry it returns an error if the policy differs from the one in force. confirm, if it is not nil,
// is asked once all that is printed.
func (g group) applyPolicy(ctx context.Context, a *appliedPolicy, p operator.Proposal, dry bool,
	confirm func() error) error {
	q, err := g.submitter().Question(ctx)
	if err == nil {
		err = p.CheckOpened(q.Snapshot.Policy)
	}
	if err != nil {
		return err
	}
	a.Differences = config.RulesDiff(q.Snapshot.Policy.Record.Rules, p.Config.Rules())
	a.sayLines(a.Differences)
	rec, err := p.Next(q.Snapshot)
	if err != nil {
		return err
	}
	a.Revision = rec.Revision
	if dry && len(a.Differences) == 0 && q.Snapshot.Policy.Exists {
		a.InForce = true
		a.say("revision %d is in force already", rec.Revision)
		return nil
	}
	if q, err = operator.UnderPolicy(q, rec); err != nil {
		return err
	}
	if dry || confirm != nil {
		a.say("revision %d would be in force", rec.Revision)
		a.sayOutcome(g, q)
	}
	if dry {
		return exitError{statusNo, nil}
	}
	if confirm != nil {
		if err := confirm(); err != nil {
			return err
		}
	}
	if rec, err = g.publish(ctx, p); err != nil {
		return err
	}
	a.Revision, a.InForce = rec.Revision, true
	a.say("revision %d is in force, published by %s", rec.Revision, rec.By)
	if confirm == nil {
		a.sayOutcome(g, q)
	}
	return nil
}

// sayOutcome prints who leads under a policy, and its problems.
func (a *appliedPolicy) sayOutcome(g group, q whatif.Question) {
	a.sayLines(operator.DescribeOutcome(q))
	for _, problem := range append(q.Policy.Problems(&q.Snapshot), g.host.UnknownGroups(q.Policy.Rules)...) {
		a.warn("%s", problem)
	}
}

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
	c.Args, c.ValidArgs = cobra.ArbitraryArgs, operator.Repairable
	output := c.outputFlag()
	c.Flags().StringVar(&file, "file", "", "the configuration file with the policy that replaces a damaged one "+
		"(default: that of --config)")
	c.Flags().BoolVar(&dry, "dry-run", false, "print what would change, without changing it")
	c.check = func([]string) error {
		policyFrom(c.Command, file)
		return nil
	}
	c.run = func(ctx context.Context, g group, args []string) error {
		local := func() (config.Config, error) { return g.localPolicy(file) }
		r := repairs{result: c.result(output)}
		return r.finish(&r, g.repair(ctx, &r, local, dry, args))
	}
}

// localPolicy returns the configuration with the policy of a file; without one, that of the group in the command's
// configuration.
func (g group) localPolicy(file string) (config.Config, error) {
	switch {
	case file != "":
		return policyOf(file, g.name)
	case g.configured:
		return g.cfg, checkHasPolicy(g.cfg, g.host.From.File, g.name)
	case g.host.From.File != "":
		return policyOf(g.host.From.File, g.name)
	}
	return config.Config{}, errors.New("name the file that has the policy, or its configuration with --config")
}

// policyOf returns the configuration with the policy of a file. group is the name in commands for people.
func policyOf(file, group string) (config.Config, error) {
	cfg, err := config.Load(config.Sources{File: file})
	if err != nil {
		return cfg, err
	}
	return cfg, checkHasPolicy(cfg, file, group)
}

// checkHasPolicy returns an error for a configuration that leaves the policy to the group: its defaults are not meant.
func checkHasPolicy(cfg config.Config, file, group string) error {
	if !cfg.Policy.LeftToGroup() {
		return nil
	}
	return refuse("%s has no policy, because policy.source is group: %s changes that of the group, and %s replaces "+
		"one that is damaged",
		cmp.Or(file, "this configuration"), cluster.InGroup("'zkelectd policy edit'", group),
		cluster.InGroup("'zkelectd repair policy --file policy.yaml'", group))
}

// repairs is the output of repair.
type repairs struct {
	result
	Records []repairedRecord `json:"records,omitempty"`
}

// repairedRecord is a damaged record.
type repairedRecord struct {
	Record string `json:"record"`
	Error  string `json:"error"`
	Action string `json:"action"`
	// Done is set if this command has repaired it.
	Done bool `json:"done"`
}

func (g group) repair(ctx context.Context, to *repairs, local func() (config.Config, error), dry bool,
	names []string) error {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	plan, err := g.planRepairs(ctx, operator.Replacement{Policy: local, By: whoami(), Wall: time.Now()}, names...)
	if err != nil {
		return err
	}
	if len(plan) == 0 {
		to.say("nothing is damaged")
	}
	var refused []string
	for _, r := range plan {
		to.say("%s: %s", r.Name, r.Fault)
		switch {
		case r.Refused:
			refused = append(refused, r.Name)
		case r.Op != nil && !dry:
			if _, err := g.session.Do(ctx, *r.Op); err != nil {
				return fmt.Errorf("cannot repair znode %s: %w; run it again", r.Op.Path, err)
			}
		}
		if r.Op != nil && dry {
			to.say("  would be %s", r.Action)
		} else {
			to.say("  %s", r.Action)
		}
		to.Records = append(to.Records, repairedRecord{r.Name, r.Fault.Error(), r.Action, r.Op != nil && !dry})
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
