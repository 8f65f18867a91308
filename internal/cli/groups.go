package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/elector"
	"zkelectd/internal/operator"
	"zkelectd/internal/operator/request"
	"zkelectd/internal/policy"
	"zkelectd/internal/store"
	"zkelectd/internal/zk"
)

// groupFlags adds -g, and the flags for the connection, to a command for one group or for many.
func groupFlags(f *pflag.FlagSet) {
	config.RegisterConnection(f)
	f.StringP("group", "g", "", "the group, if there are several below zookeeper.root, and with slots the slot, as "+
		"in ingest/3 (default: $ZKELECTD_GROUP)")
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
	return group{}, fmt.Errorf("there are %d groups below %s: name one of them with -g (or ZKELECTD_GROUP): %s",
		len(names), s.base, some(names))
}

// withOnly calls f with the group of a command that acts on one, and permits either a whole group or one leader.
func (s selection) withOnly(ctx context.Context, permit func(g group) error,
	f func(ctx context.Context, g group) error) error {
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
	return fmt.Errorf("this concerns all slots of the group %s, not only slot %s: use -g %s", name, g.paths.Slot,
		cluster.ShellWord(name))
}

// choice is how a command names a group.
type choice struct {
	// name is the group's name, slot the number of a slot, and root the root znode. Each is empty if it is not named;
	// the root is then found by the name.
	name, slot, root string
	// create is set if the group need not exist.
	create bool
}

// chosen returns the group that the flags or the environment name. The leader-only work has both its name and its root
// in the environment.
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
		return choice{}, fmt.Errorf("-g %q: must be the name of a group, or with slots NAME/SLOT, with a slot from 0 "+
			"to %d; --root takes a znode",
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

// missingFrom describes a group that the configuration of a host names, if it does not exist.
func missingFrom(h config.Host, name, root string) store.MissingError {
	e := store.MissingError{Root: root, Servers: h.Config.ZooKeeper.Servers, File: h.From.File}
	if h.Dir != "" {
		e.Group = name
	}
	return e
}

// notCreated is the error for a group that is configured, but does not exist yet.
func notCreated(h config.Host, name, root string) error {
	missing := missingFrom(h, name, root)
	return &request.NotAffectedError{Reason: "it does not exist yet: " + missing.Advice()}
}

// requireCreated returns an error if the group does not exist.
func (g group) requireCreated(ctx context.Context) error {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	conn := g.session.Group(g.paths)
	defer conn.Close()
	return store.RequireCreated(ctx, conn, g.kind, missingFrom(g.host, g.name, g.paths.Root))
}

// withConfigured adds the groups of the configuration that have no record yet.
func (s *selection) withConfigured(found []store.NamedGroup) []store.NamedGroup {
	if s.host.Dir == "" {
		return found
	}
	for _, own := range s.host.Groups {
		if !slices.ContainsFunc(found, func(g store.NamedGroup) bool { return g.Name == own.Name }) {
			root := own.Config.ZooKeeper.Root
			found = append(found, store.NamedGroup{Name: own.Name, Root: root, Kind: kindOf(own.Config),
				Err: notCreated(s.host, own.Name, root)})
		}
	}
	slices.SortFunc(found, func(a, b store.NamedGroup) int { return strings.Compare(a.Name, b.Name) })
	return found
}

// add adds a group, with its own configuration if there is one. A configuration with another root than the group has is
// an error: its file could have been meant for another group.
func (s *selection) add(g store.NamedGroup) error {
	cfg, configured := s.host.Group(g.Name)
	if s.host.Dir == "" || !configured {
		cfg = s.host.Config
	} else if g.Err == nil && cfg.ZooKeeper.Root != g.Root {
		g.Err = fmt.Errorf("the root of the group %s is %s, but the configuration of this host says %s: correct its "+
			"zookeeper.root", g.Name, g.Root, cfg.ZooKeeper.Root)
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

func namesOf(h config.Host) (names []string) {
	for _, g := range h.Groups {
		names = append(names, g.Name)
	}
	return names
}

// adoptACL makes the session create znodes with the ACL of the group's root, if it has credentials.
func (g group) adoptACL(ctx context.Context) error {
	if !g.cfg.ZooKeeper.Authenticates() {
		return nil
	}
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	return g.session.AdoptACL(ctx, g.paths.Root)
}

// connect opens a session that creates znodes with the ACL of the configuration. from has the sources of cfg, for
// errors.
func connect(ctx context.Context, cfg config.Config, from config.From) (*zk.Session, error) {
	if err := operator.Access(cfg, os.Getenv).Check(); err != nil {
		return nil, accessError(err, from)
	}
	s, err := operator.Connect(ctx, cfg)
	if err != nil {
		return nil, connectError(err, from)
	}
	return s, nil
}

// group is a connection to a group, with the configuration of the command.
type group struct {
	cfg     config.Config
	session *zk.Session
	paths   cluster.Paths
	name    string
	kind    cluster.GroupKind
	// host is the configuration of the host. configured is set if it has a file for the group.
	host       config.Host
	configured bool
	err        error // why the group's record can't be used
}

// manyLeaders reports whether this is a whole group with slots.
func (g group) manyLeaders() bool { return g.kind == cluster.KindSlots && g.paths.Slot == "" }

// read returns a snapshot of the whole group.
func (g group) read(ctx context.Context) (cluster.Snapshot, error) {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	return store.ReadAll(ctx, g.session, g.paths, false)
}

// history returns the history, empty if there is none yet.
func (g group) history(ctx context.Context, watch bool) (cluster.History, error) {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	return operator.ReadHistory(ctx, g.session, g.paths, watch)
}

// operator.AnswerTimeout bounds how long a command waits for a connection, and for one operation: a person waits for
// its output.

// withAnswerTimeout bounds one operation of a command on ZooKeeper.
func withAnswerTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, operator.AnswerTimeout)
}

// publish puts a policy in force.
func (g group) publish(ctx context.Context, p operator.Proposal) (cluster.Policy, error) {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	published, err := operator.PublishPolicy(ctx, g.session, g.paths, p)
	return published.Policy, err
}

// connectError adds to the error of a connection where its address comes from, and how to name another one.
func connectError(err error, from config.From) error {
	where := "zookeeper.servers has its default"
	if source := from.Source("zookeeper.servers"); source != "" {
		where = "zookeeper.servers is from " + source
	} else if from.File != "" {
		where += ", as " + from.File + " does not set it"
	}
	return fmt.Errorf("%w; %s: to use others, add --zk or --config", err, where)
}

// accessError adds to the error of a file with credentials or certificates what a user can do who may not read it.
func accessError(err error, from config.From) error {
	if !errors.Is(err, fs.ErrPermission) || from.File != hostFile {
		return err
	}
	return fmt.Errorf("%w; use sudo, or --config with a file of your own", err)
}

// neighbors returns the group's name, and a function that reads who is elected in the groups that a policy refers to.
// What cannot be read is not known.
func (g group) neighbors() operator.Neighbors {
	return operator.Neighbors{Group: g.name, Others: func(ctx context.Context, r policy.Relations) elector.Placement {
		p := elector.Placement{Peers: make(map[string]string), Relations: make(policy.Graph)}
		read := make(map[string]bool)
		for next := r.Peers(); len(next) > 0; {
			peer := next[0]
			next = next[1:]
			if read[peer] || peer == g.name {
				continue
			}
			read[peer] = true
			node, relations, known := g.readPeer(ctx, peer)
			if !known {
				continue
			}
			if slices.Contains(r.Peers(), peer) {
				p.Peers[peer] = node
			}
			p.Relations[peer] = relations
			next = append(next, relations.Peers()...) // they may lead back to this group
		}
		return p
	}}
}

// readPeer returns the node that is elected in another group, or slot, and the groups that its policy refers to.
func (g group) readPeer(ctx context.Context, name string) (node string, r policy.Relations, known bool) {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	resource, slot := path.Split(name)
	if resource == "" {
		resource, slot = name, ""
	}
	found, err := store.FindGroup(ctx, g.session, path.Dir(g.paths.Root), path.Clean(resource))
	if err != nil || found.Err != nil {
		return "", r, false
	}
	paths := cluster.Paths{Root: found.Root, Slot: slot}
	data, stat, err := g.session.Get(ctx, paths.Elected(), false)
	elected := cluster.ReadStored[cluster.Elected](paths.Elected(), data, stat, err == nil)
	data, stat, err = g.session.Get(ctx, paths.Policy(), false)
	inForce := cluster.ReadStored[cluster.Policy](paths.Policy(), data, stat, err == nil)
	return elected.Record.Node, policy.RelationsOf(inForce.Record.Rules), true
}
