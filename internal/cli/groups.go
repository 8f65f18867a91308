package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/operator"
	"zkelectd/internal/operator/request"
	"zkelectd/internal/store"
	"zkelectd/internal/zk"
)

// groupFlags adds -g, and the flags for the connection, to a command for one group or for many.
func groupFlags(f *pflag.FlagSet) {
	config.RegisterConnection(f)
	f.StringP("group", "g", "", "the group, if there are several below zookeeper.root, and with slots the slot, as in ingest/3 (default: $ZKELECTD_GROUP)")
}

// selection is what a command acts on: one group, or all groups of zookeeper.root.
type selection struct {
	session *zk.Session
	host    config.Host
	groups  []group
	// base is the zookeeper.root of several groups, empty if the command acts on one.
	base string
}

// only returns the group of a command that acts on one: the whole group, if it has slots and none is named.
func (s selection) only() (group, error) {
	if s.base == "" {
		return s.groups[0], nil
	}
	var names []string
	for _, g := range s.groups {
		names = append(names, g.name)
	}
	return group{}, fmt.Errorf("there are %d groups below %s: name one of them with -g (or ZKELECTD_GROUP): %s", len(names), s.base, some(names))
}

// withOnly calls f with the group of a command that acts on one, and permits either a whole group or one leader.
func (s selection) withOnly(ctx context.Context, permit func(g group) error, f func(ctx context.Context, g group) error) error {
	g, err := s.only()
	if err == nil {
		err = permit(g)
	}
	if err == nil {
		err = g.adoptACL(ctx)
	}
	if err != nil {
		return err
	}
	return f(ctx, g)
}

// oneLeader is the permission of a command that is about one leader.
func oneLeader(g group) error {
	if !g.manyLeaders() {
		return nil
	}
	return fmt.Errorf("the group %s has a leader for each slot: name a slot, as in -g %s; %s lists them",
		g.name, cluster.ShellWord(g.name+"/0"), cluster.InGroup("'zkelectd status'", g.name))
}

// wholeGroup is the permission of a command that is about a whole group.
func wholeGroup(g group) error {
	if g.paths.Slot == "" {
		return nil
	}
	name := strings.TrimSuffix(g.name, "/"+g.paths.Slot)
	return fmt.Errorf("this concerns all slots of the group %s, not only slot %s: use -g %s", name, g.paths.Slot, cluster.ShellWord(name))
}

// choice is how a command names a group.
type choice struct {
	// name is the group's name, slot the number of a slot, and root the root znode. Each is empty if it is not named; the root is then
	// found by the name.
	name, slot, root string
	// create is set if the group need not exist.
	create bool
}

// chosen returns the group that the flags or the environment name. The leader-only work has both its name and its root in the
// environment.
func chosen(cmd *cobra.Command, getenv func(string) string) (choice, error) {
	flag := cmd.Flags().Lookup("group")
	root := cmd.Flags().Lookup("root")
	switch {
	case flag != nil && flag.Changed:
		return named(flag.Value.String())
	case flag == nil, root != nil && root.Changed:
		return choice{}, nil
	}
	name := getenv("ZKELECTD_GROUP")
	if name == "" {
		return choice{}, nil
	}
	by, err := named(name)
	by.root = getenv("ZKELECTD_ROOT")
	if slot := getenv("ZKELECTD_SLOT"); slot != "" && by.slot == "" {
		by.slot = slot
	}
	return by, err
}

// named returns the group that a person names, as NAME or NAME/SLOT.
func named(text string) (choice, error) {
	name, slot, slotted := strings.Cut(text, "/")
	if name == "" || slotted && cluster.SlotNumber(slot) < 0 {
		return choice{}, fmt.Errorf("-g %q: must be the name of a group, or with slots NAME/SLOT, with a slot from 0 to %d; --root takes a znode",
			text, cluster.MaxSlots-1)
	}
	return choice{name: name, slot: slot}, nil
}

// find returns the groups that a command acts on.
func find(ctx context.Context, s *zk.Session, h config.Host, by choice) (selection, error) {
	all, err := findGroups(ctx, s, h, by)
	if err != nil || by.slot == "" {
		return all, err
	}
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	all.groups[0], err = all.groups[0].slot(ctx, by.slot)
	return all, err
}

// slot returns the group restricted to a slot.
func (g group) slot(ctx context.Context, slot string) (group, error) {
	if g.kind != cluster.KindSlots {
		return g, fmt.Errorf("the group %s has one leader and no slots: leave out /%s", g.name, slot)
	}
	record, err := store.ReadSlots(ctx, g.session, g.paths, false)
	switch n := record.Record.Count; {
	case err != nil:
		return g, err
	case record.Exists && record.Err != nil:
		return g, record.Err
	case !record.Exists:
		return g, fmt.Errorf("the group %s has no slots yet: no daemon has joined it", g.name)
	case cluster.SlotNumber(slot) >= n:
		return g, fmt.Errorf("the group %s has no slot %s: it has %d, 0 to %d", g.name, slot, n, n-1)
	}
	g.paths.Slot = slot
	g.name += "/" + slot
	return g, nil
}

// findGroups returns the groups that a command acts on, without a slot.
func findGroups(ctx context.Context, s *zk.Session, h config.Host, by choice) (selection, error) {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	all := selection{session: s, host: h}
	if by.root != "" {
		all.addRoot(by.name, by.root)
		if by.slot != "" {
			all.groups[0].kind = cluster.KindSlots
		}
		return all, nil
	}
	if by.name != "" {
		g, err := all.named(ctx, by)
		if err == nil {
			err = all.add(g)
		}
		return all, err
	}
	base := h.Config.ZooKeeper.Root
	groups, single, err := store.Groups(ctx, s, base)
	if err != nil {
		return all, err
	}
	if !single {
		groups = all.withConfigured(groups)
	}
	switch {
	case len(groups) == 0: // a new root
		all.addRoot(cluster.NameOf(base), base)
	case single && groups[0].Err == nil:
		all.addRoot(groups[0].Name, groups[0].Root)
		all.groups[0].kind = cmp.Or(groups[0].Kind, all.groups[0].kind)
	case len(groups) == 1:
		err = all.add(groups[0])
	default:
		all.base = base
		for _, g := range groups {
			all.add(g) // the group keeps its error
		}
	}
	return all, err
}

// addRoot adds the group with a root that is named directly.
func (s *selection) addRoot(name, root string) {
	cfg, configured := s.host.Group(name)
	if configured = configured && s.host.Dir != "" && cfg.ZooKeeper.Root == root; !configured {
		cfg = s.host.Config
	}
	g := groupAt(s.session, cfg, name, root)
	g.host, g.configured = s.host, configured
	s.groups = append(s.groups, g)
}

// named returns the group that a command names.
func (s *selection) named(ctx context.Context, by choice) (store.NamedGroup, error) {
	base := s.host.Config.ZooKeeper.Root
	g, err := store.FindGroup(ctx, s.session, base, by.name)
	if !errors.Is(err, store.ErrNoGroup) {
		return g, err
	}
	own, configured := s.host.Group(by.name)
	if !configured && !by.create {
		return g, err
	}
	g = store.NamedGroup{Name: by.name, Root: cluster.IdentityPath(base, by.name), Kind: cluster.KindSingle}
	if configured {
		g.Root, g.Kind = own.ZooKeeper.Root, kindOf(own)
	}
	return g, nil
}

// errNotJoined is the error for a group that is configured, but has no znode yet.
var errNotJoined = &request.NotAffectedError{Reason: "no daemon has joined it yet"}

// withConfigured adds the groups of the configuration that have no record yet.
func (s *selection) withConfigured(found []store.NamedGroup) []store.NamedGroup {
	if s.host.Dir == "" {
		return found
	}
	for _, own := range s.host.Groups {
		if !slices.ContainsFunc(found, func(g store.NamedGroup) bool { return g.Name == own.Name }) {
			found = append(found, store.NamedGroup{Name: own.Name, Root: own.Config.ZooKeeper.Root, Kind: kindOf(own.Config), Err: errNotJoined})
		}
	}
	slices.SortFunc(found, func(a, b store.NamedGroup) int { return strings.Compare(a.Name, b.Name) })
	return found
}

// add adds a group, with its own configuration if there is one. A configuration with another root than the group has is an error:
// its file could have been meant for another group.
func (s *selection) add(g store.NamedGroup) error {
	cfg, configured := s.host.Group(g.Name)
	if s.host.Dir == "" || !configured {
		cfg = s.host.Config
	} else if g.Err == nil && cfg.ZooKeeper.Root != g.Root {
		g.Err = fmt.Errorf("the root of the group %s is %s, but the configuration of this host says %s: correct its zookeeper.root", g.Name, g.Root, cfg.ZooKeeper.Root)
	}
	next := groupAt(s.session, cfg, g.Name, g.Root)
	next.kind, next.err = cmp.Or(g.Kind, next.kind), g.Err
	next.host, next.configured = s.host, configured && s.host.Dir != ""
	s.groups = append(s.groups, next)
	return g.Err
}

// groupAt returns a group with its own root in its configuration.
func groupAt(s *zk.Session, cfg config.Config, name, root string) group {
	cfg.ZooKeeper.Root = root
	return group{cfg: cfg, session: s, paths: cluster.Paths{Root: root}, name: name, kind: kindOf(cfg)}
}

// kindOf returns the kind of a group with that configuration.
func kindOf(c config.Config) cluster.GroupKind {
	if c.Slots.Enabled() {
		return cluster.KindSlots
	}
	return cluster.KindSingle
}

// loadHost returns the configuration of a command for one group or for many.
func loadHost(cmd *cobra.Command) (config.Host, error) {
	src, err := commandSources(cmd)
	if err != nil {
		return config.Host{}, err
	}
	return loadFrom(cmd, src)
}

// loadFrom returns the configuration of a command from its sources.
func loadFrom(cmd *cobra.Command, src config.Sources) (config.Host, error) {
	h, ignored, err := config.LoadCommand(src)
	if ignored != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: files of groups are ignored, %s shows why\n", cluster.InGroup("'zkelectd check --config %s'", "", src.File))
	}
	return h, err
}

// withSelection calls f with a session, and the groups that the command acts on.
func withSelection(cmd *cobra.Command, f func(context.Context, selection) error) error {
	h, err := loadHost(cmd)
	if err != nil {
		return err
	}
	by, err := chosen(cmd, os.Getenv)
	if err != nil {
		return err
	}
	return withChoice(cmd, h, by, f)
}

// withChoice is withSelection for a choice that is already made.
func withChoice(cmd *cobra.Command, h config.Host, by choice, f func(context.Context, selection) error) error {
	s, err := connect(cmd.Context(), h.Config, h.From)
	if err != nil {
		return err
	}
	defer operator.Disconnect(cmd.Context(), s)
	all, err := find(cmd.Context(), s, h, by)
	if err != nil {
		return err
	}
	return f(cmd.Context(), all)
}

// slotsOf returns the names of a group's slots, as -g takes them.
func slotsOf(ctx context.Context, s *zk.Session, g store.NamedGroup) (names []string) {
	record, err := store.ReadSlots(ctx, s, cluster.Paths{Root: g.Root}, false)
	if err != nil {
		return nil
	}
	for i := range record.Record.Count {
		names = append(names, fmt.Sprintf("%s/%d", g.Name, i))
	}
	return names
}

func configuredNames(h config.Host) (names []string) {
	if h.Dir == "" {
		return nil
	}
	return namesOf(h)
}

func namesOf(h config.Host) (names []string) {
	for _, g := range h.Groups {
		names = append(names, g.Name)
	}
	return names
}
