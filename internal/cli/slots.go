package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/operator"
	"zkelectd/internal/operator/request"
	"zkelectd/internal/store"
)

// slotsState is the output of slots.
type slotsState struct {
	Root    string    `json:"root"`
	Count   int       `json:"count"`
	PerNode int       `json:"per_node"`
	Epoch   int64     `json:"epoch"`
	By      string    `json:"by"`
	Reason  string    `json:"reason,omitempty"`
	Time    time.Time `json:"time"`
	// Drift says how the configuration of this host differs; empty if it does not.
	Drift string `json:"drift,omitempty"`
}

// slotsOnly is the permission of slots.
func slotsOnly(g group) error {
	if g.kind != cluster.KindSlots {
		return fmt.Errorf("the group %s has one leader, and no slots; that cannot be changed: start a group with "+
			"another name and with slots", g.name)
	}
	return wholeGroup(g)
}

func slotsCommand(c *command) {
	var size cluster.SlotSize
	var reason string
	c.Use = "slots [COUNT]"
	c.Short = "Show or change how many leaders a group has"
	c.Args = cobra.MaximumNArgs(1)
	c.Long = `Slots shows how many slots a group has, and how many of them one node can lead. With
COUNT, it changes that.

For that no daemon may be in the group: slot 3 of 8 and slot 3 of 12 are different work,
so no work of the old slots may run beside that of the new ones. The command says which
daemons are in the group. Afterwards start them again.

If the last leader of a slot was lost, the first leaders of all slots wait until its
lease is over. The configuration of the hosts is not changed, and need not agree;
correct it.`
	output := c.outputFlag()
	f := c.Flags()
	f.IntVar(&size.PerNode, "per-node", 0, "how many slots one node can lead at most (default: as before, or if that "+
		"was all of them, all)")
	f.StringVar(&reason, "reason", "", fmt.Sprintf("the reason, shown by 'slots'; at most %d bytes", request.MaxReason))
	c.check = func(args []string) (err error) {
		switch size.Count, err = strconv.Atoi(optional(args)); {
		case len(args) == 0 && (f.Changed("per-node") || f.Changed("reason")):
			return errors.New("--per-node and --reason need COUNT: the number of slots")
		case len(args) > 0 && err != nil:
			return fmt.Errorf("%q is not a number of slots", args[0])
		case len(reason) > request.MaxReason:
			return fmt.Errorf("the reason has %d bytes: at most %d", len(reason), request.MaxReason)
		}
		return nil
	}
	c.run = func(ctx context.Context, g group, args []string) error {
		if len(args) == 0 {
			return g.showSlots(ctx, c.OutOrStdout(), *output)
		}
		changed := changedSlots{result: c.result(output)}
		return changed.finish(&changed, g.setSlots(ctx, &changed, size, reason))
	}
}

func (g group) showSlots(ctx context.Context, w io.Writer, output string) error {
	read, err := g.readRecord(ctx)
	if err == nil {
		err = read.Err
	}
	if err != nil {
		return err
	}
	return g.slotsState(read).print(w, output)
}

// readRecord returns the record of slots, which exists.
func (g group) readRecord(ctx context.Context) (cluster.Stored[cluster.Slots], error) {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	read, err := store.ReadSlots(ctx, g.session, g.paths, false)
	if err == nil && (!read.Exists || errors.Is(read.Err, cluster.ErrNoSlots)) {
		err = fmt.Errorf("the group %s has no slots yet: no daemon has joined it; set slots in its configuration", g.name)
	}
	return read, err
}

func (g group) slotsState(read cluster.Stored[cluster.Slots]) slotsState {
	rec := read.Record
	return slotsState{
		Root: g.paths.Root, Count: rec.Count, PerNode: rec.PerNode, Epoch: rec.Epoch, By: rec.By, Reason: rec.Reason,
		Time:  rec.Time,
		Drift: operator.SlotsDrift(g.name, g.cfg.Slots, read),
	}
}

func (s slotsState) print(w io.Writer, output string) error {
	if output == "json" {
		return printJSON(w, s)
	}
	t := newTable(w)
	t.row("Group", s.Root)
	t.row("Slots", fmt.Sprintf("%s; epoch %d", cluster.SlotSize{Count: s.Count, PerNode: s.PerNode}, s.Epoch))
	set := fmt.Sprintf("by %s at %s", s.By, s.Time.Local().Format(time.DateTime))
	if s.Reason != "" {
		set += ": " + s.Reason
	}
	t.row("Set", set)
	if s.Drift != "" {
		t.row("Drift", s.Drift)
	}
	return t.Flush()
}

// changedSlots is the output of slots with COUNT.
type changedSlots struct {
	result
	slotsState
}

func (g group) setSlots(ctx context.Context, changed *changedSlots, size cluster.SlotSize, reason string) error {
	read, err := g.readRecord(ctx)
	switch {
	case err != nil:
		return err
	case read.Newer() != nil:
		return read.Err
	}
	before := read.Record.SlotSize
	if size.PerNode == 0 {
		if size.PerNode = size.Count; before.PerNode < before.Count {
			size.PerNode = min(before.PerNode, size.Count)
		}
	}
	if err := size.Check(); err != nil {
		return err
	}
	if read.Readable() && before == size {
		changed.slotsState = g.slotsState(read)
		changed.say("the group %s has %s already", g.name, size)
		return nil
	}
	limited, cancel := withAnswerTimeout(ctx)
	defer cancel()
	if err := g.checkNoMembers(limited); err != nil {
		return err
	}
	next := read.Record.Changed(size, whoami(), reason, time.Now())
	wait, err := store.SetSlots(limited, g.session, g.paths, read, next)
	show := cluster.InGroup("'zkelectd slots'", g.name)
	switch {
	case errors.Is(err, cluster.ErrNotEmpty), errors.Is(err, cluster.ErrBadVersion):
		return fmt.Errorf("nothing was changed: a daemon or a command has used the group %s at the same time: see "+
			"%s, and run this again if it is still wanted",
			g.name, show)
	case errors.Is(err, cluster.ErrUnknown):
		return fmt.Errorf("the connection was lost while znode %s was written; %s shows whether it was: %w",
			g.paths.Slots(), show, err)
	case err != nil:
		return fmt.Errorf("cannot change the slots of the group %s: %w", g.name, err)
	}
	read.Record = next
	changed.slotsState = g.slotsState(read)
	changed.say("the group %s has %s now, in epoch %d; start its daemons", g.name, size, next.Epoch)
	if wait > 0 {
		changed.say("not all slots had been released: the first leaders wait %s for leases that may still be running",
			wait.Round(10*time.Millisecond))
	}
	return nil
}

// checkNoMembers returns an error that names the daemons that are in the group, nil if there are none.
func (g group) checkNoMembers(ctx context.Context) error {
	snap, err := store.ReadAll(ctx, g.session, g.paths.OfSlot(0), false)
	if err != nil || len(snap.Members) == 0 {
		return err
	}
	var ids []string
	for _, m := range snap.Members {
		ids = append(ids, m.ID)
	}
	slices.Sort(ids)
	return g.hasMembers("changed", ids)
}

// initializeSlots creates the slots of the configuration, none of which has a leader. It returns what to say of it. It
// refuses another number of slots than the group has.
func (g group) initializeSlots(ctx context.Context) (string, error) {
	size := cluster.SlotSize{Count: g.cfg.Slots.Count, PerNode: g.cfg.Slots.Limit()}
	if !g.cfg.Slots.Enabled() {
		return "", fmt.Errorf("the group %s has slots, but this configuration has none: name one that "+
			"has with --config", g.name)
	}
	if err := store.Init(ctx, g.session, g.paths.OfSlot(0), whoami()); err != nil {
		return "", err
	}
	read, err := store.ReadSlots(ctx, g.session, g.paths, false)
	missing := !read.Exists || errors.Is(read.Err, cluster.ErrNoSlots)
	switch {
	case err != nil:
		return "", err
	case !missing && read.Err != nil:
		return "", operator.SlotsUnknown(read, g.paths.Slots())
	case !missing && read.Record.SlotSize != size:
		return "", refuse("nothing was changed: the group %s has %s already, not %s: use that here as well, or run %s",
			g.name, read.Record.SlotSize, size,
			cluster.InGroup("'zkelectd slots %s --per-node %s'", g.name, size.Count, size.PerNode))
	}
	for i := 1; i < size.Count; i++ {
		if err := store.Init(ctx, g.session, g.paths.OfSlot(i), whoami()); err != nil {
			return "", err
		}
	}
	if missing {
		if err := store.DoSplit(ctx, g.session, g.paths, g.paths.SlotsTx("", read, cluster.NewSlots(size, whoami(),
			time.Now()))); err != nil {
			return "", fmt.Errorf("cannot write znode %s: %w", g.paths.Slots(), err)
		}
	}
	return fmt.Sprintf(" with %s: its first leaders need not wait", size), nil
}

func initCommand(c *command) {
	var limit int
	c.Use = "init"
	c.Short = "Create a new group that has no leader"
	c.Long = `Init creates the znodes of a new group, once, on one host: the daemons do not create a
group that they have never been in. With groups_dir and without -g it creates those of
its groups that do not exist yet. Run it only if the group has no leader: its first
leader then starts at once.

It fails if anything shows that the group is or was in use:
members, an election, a leader, a history. A group that is already initialized is
left as it is.

With --max it creates the group of jobs of 'exec --max': --root names it.`
	output := c.outputFlag()
	c.Flags().IntVar(&limit, "max", 0, "create the group --root for 'exec --max' with this limit: so many "+
		"jobs run at once")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		h, err := loadHost(cmd)
		if err != nil {
			return err
		}
		forJobs := cmd.Flags().Changed("max")
		size := cluster.SlotSize{Count: limit, PerNode: 1}
		if forJobs && (size.Check() != nil || !cmd.Flags().Changed("root")) {
			return fmt.Errorf("--max needs a limit from 1 to %d, and --root with the group of the jobs, such "+
				"as /jobs/backup", cluster.MaxSlots)
		}
		by, err := chosen(cmd, os.Getenv)
		if err != nil {
			return err
		}
		created := createdGroups{result: c.result(output), Groups: []createdGroup{}}
		switch ofHost := h.Dir != "" && !cmd.Flags().Changed("root"); {
		case ofHost && by == (choice{}):
			return created.finish(&created, created.initializeAll(cmd, h))
		case ofHost && !slices.ContainsFunc(h.Groups, func(g config.Group) bool { return g.Name == by.name }):
			return fmt.Errorf("the group %s has no file in %s on this host: write it first, or name its "+
				"root with --root", by.name, h.Dir)
		case h.Dir != "" && by.name == "": // the root of one group, such as a job
			h.Dir, h.Groups = "", nil
		}
		by.create = true
		base := h.Config.ZooKeeper.Root
		if by.name == "" {
			base = path.Dir(base) // the root of the only group
		}
		return created.finish(&created, withChoice(cmd, h, by, func(ctx context.Context, s selection) error {
			return s.withOnly(ctx, wholeGroup, func(ctx context.Context, g group) error {
				if forJobs {
					g.cfg.Slots = config.Slots{Count: size.Count, PerNode: size.PerNode}
				}
				return g.initialize(ctx, &created, base)
			})
		}))
	}
}

// createdGroups is the output of init.
type createdGroups struct {
	result
	Groups []createdGroup `json:"groups"`
}

type createdGroup struct {
	Group string `json:"group"`
	Root  string `json:"root"`
	// Existed is set if it was initialized before.
	Existed bool `json:"existed,omitempty"`
}

// initializeAll creates those groups of a host that are not in use.
func (created *createdGroups) initializeAll(cmd *cobra.Command, h config.Host) error {
	s, err := connect(cmd.Context(), h.Config, h.From)
	if err != nil {
		return err
	}
	defer operator.Disconnect(cmd.Context(), s)
	var errs []error
	for _, one := range h.Groups {
		g := groupAt(s, one.Config, one.Name, one.Config.ZooKeeper.Root)
		err := g.adoptACL(cmd.Context())
		if err == nil {
			err = g.initialize(cmd.Context(), created, h.Config.ZooKeeper.Root)
		}
		if errors.As(err, new(*cluster.InUseError)) {
			created.say("the group %s is in use, and left as it is", one.Name)
		} else if err != nil {
			errs = append(errs, ofGroup(h, one, err))
		}
	}
	return errors.Join(errs...)
}

// isPrincipalOfHost reports whether an identity has a host's name, as in sasl:zkelectd/host1.
func isPrincipalOfHost(tag string) bool {
	return strings.HasPrefix(tag, "sasl:") && strings.Contains(tag, "/")
}

// initialize creates the group, whose name is recorded below base. The records of its identity come last: with the
// first one a daemon that waits for the group joins it.
func (g group) initialize(ctx context.Context, created *createdGroups, base string) error {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	g.kind = kindOf(g.cfg) // not that of the tree: the daemons would refuse it
	err := g.requireCreated(ctx)
	existed := err == nil
	if missing, ok := errors.AsType[*store.MissingError](err); ok {
		if missing.Similar != "" {
			created.warn("there is a group at %s as well: if that one is meant, correct zookeeper.root, and remove "+
				"this one with %s",
				missing.Similar, cluster.InGroup("'zkelectd group delete --root %s'", "", g.paths.Root))
		}
		err = g.session.CheckEnsemble(ctx)
	}
	if err != nil {
		return fmt.Errorf("nothing was created at %s: %w; start the servers that do not answer, or correct "+
			"zookeeper.servers", g.paths.Root, err)
	}
	own := cluster.Identity{Root: g.paths.Root, Kind: g.kind, ID: store.NewGroupID()}
	if err := store.VerifyIdentity(ctx, g.session, base, g.name, own); err != nil {
		return err
	}
	var initialized string
	if g.manyLeaders() {
		initialized, err = g.initializeSlots(ctx)
	} else {
		initialized, err = ": its first leader need not wait", store.Init(ctx, g.session, g.paths, whoami())
	}
	if err != nil {
		return err
	}
	if err := store.EnsureIdentity(ctx, g.session, base, g.name, own); err != nil {
		return err
	}
	if existed {
		created.say("the group %s was initialized before, and is left as it is: it has had no leader yet", g.paths.Root)
	} else {
		created.say("the group %s is initialized%s", g.paths.Root, initialized)
		if tags := g.session.Tags(); len(tags) == 1 && isPrincipalOfHost(tags[0]) && len(g.cfg.ZooKeeper.Identities) == 0 {
			created.warn("only %s has access to it: if other members have principals of their own, list all of them in "+
				"zookeeper.identities on each host, and run 'zkelectd acl --apply' here", tags[0])
		}
	}
	created.Groups = append(created.Groups, createdGroup{g.name, g.paths.Root, existed})
	return nil
}
