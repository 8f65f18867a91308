package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/operator"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store"
	"zkelectd/internal/zk"
)

// aclOptions are the flags of acl.
type aclOptions struct {
	apply, rotate    bool
	dry, open, force bool
	limit            time.Duration
}

func aclCommand(c *command) {
	var o aclOptions
	c.Use = "acl"
	c.Short = "Show or set the ACLs of the group's znodes, while the group runs"
	c.Long = `Acl shows the ACL of each znode of the group, and the ACL with which each member creates
znodes, beside zookeeper.acl and zookeeper.auth.file of the configuration (--config,
environment). Users are shown as NAME/HASH; the short hash distinguishes the passwords of
a user. docs/security.md has the steps to close an open tree and to change the password
without an outage.

With --apply it sets the ACL of every znode, including ephemeral ones, to that of the
configuration. The group keeps working; the leader does not change. First reload every
member with the same two settings: apply refuses to lock a member out. It skips znodes
that already have the ACL, so it can be run again after an error.

With --rotate-keys it makes a new key, with which members authenticate the messages of
failsafe mode from then on. They read it by themselves, and the last key stays valid
beside it until the next rotation. So rotate once to replace a key, and twice, some
minutes apart, to make one invalid that somebody may know.`
	output := c.outputFlag()
	f := c.Flags()
	f.BoolVar(&o.apply, "apply", false, "set the ACL of every znode to that of the configuration")
	f.BoolVar(&o.dry, "dry-run", false, "with --apply: print what would change, without changing it")
	f.BoolVar(&o.open, "open", false, "with --apply: permit zookeeper.acl: open, so that anyone can change the "+
		"group's znodes")
	f.BoolVar(&o.force, "force", false, "with --apply: continue although members would be locked out")
	f.DurationVar(&o.limit, "timeout", time.Minute, "with --apply: how long it may take in all")
	f.BoolVar(&o.rotate, "rotate-keys", false, "make a new key for the messages of failsafe mode")
	c.MarkFlagsMutuallyExclusive("apply", "rotate-keys")
	c.check = func([]string) error {
		for _, name := range []string{"dry-run", "open", "force", "timeout"} {
			if f.Changed(name) && !o.apply {
				return fmt.Errorf("--%s is for --apply", name)
			}
		}
		return nil
	}
	c.runMany = func(ctx context.Context, s selection, _ []string) error {
		a := appliedACLs{result: c.result(output)}
		if o.rotate {
			rotate := func(ctx context.Context, g group) error { return g.rotateKeys(ctx, &a) }
			return a.finish(&a, s.withOnly(ctx, wholeGroup, rotate))
		}
		return o.run(ctx, &a, s)
	}
}

// appliedACLs is the output of 'acl --apply' and 'acl --rotate-keys'.
type appliedACLs struct {
	result
	Group string `json:"group"`
	// Configured is the ACL that the changed znodes have, and Changed are these. With --dry-run they would be changed.
	Configured string   `json:"configured,omitempty"`
	Changed    []string `json:"changed,omitempty"`
}

// run shows or sets the ACLs. Its session creates znodes with the ACL of the configuration, not with that of the
// group's root.
func (o aclOptions) run(ctx context.Context, a *appliedACLs, s selection) error {
	g, err := s.only()
	if err == nil {
		err = wholeGroup(g)
	}
	if err != nil {
		return err
	}
	if !o.apply {
		o.limit = operator.AnswerTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	if o.apply {
		if zk.ACL(g.cfg.ZooKeeper.ACL).Open() && !o.open && !o.dry {
			return errors.New("zookeeper.acl is open: anyone could change the group's znodes, and lock the group " +
				"out; name the configuration " +
				"of the members with --config, or add --open if you want that")
		}
		return a.finish(a, g.applyACLs(ctx, a, o.dry, o.force))
	}
	tree, err := g.tree(ctx)
	if err != nil {
		return err
	}
	if a.json {
		return printJSON(a.out, tree)
	}
	return tree.table(a.out)
}

// rotateKeys makes a new key for the messages of failsafe mode.
func (g group) rotateKeys(ctx context.Context, a *appliedACLs) error {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	if err := store.RotateFailsafeKeys(ctx, g.session, g.paths, whoami()); err != nil {
		return err
	}
	a.Group = g.name
	a.say("%s has a new key; the last one stays valid until the next rotation", g.name)
	return nil
}

// tree is the output of acl.
type tree struct {
	Root string `json:"root"`
	// ACL is that of the configuration, Identities are whom it names, Configured is the result.
	ACL        string         `json:"acl"`
	Identities []string       `json:"identities"`
	Configured string         `json:"configured"`
	Znodes     []zk.ZnodeACL  `json:"znodes"`
	Members    []zk.MemberACL `json:"members"`
}

func (g group) tree(ctx context.Context) (tree, error) {
	t := tree{Root: g.paths.Root, ACL: g.cfg.ZooKeeper.ACL, Identities: g.session.NamedTags(),
		Configured: g.session.ConfiguredACL()}
	var err error
	if t.Znodes, err = g.session.ACLs(ctx, g.paths); err != nil {
		return t, err
	}
	snap, err := g.read(ctx)
	t.Members = g.session.MemberACLs(snap, zk.ACL(t.ACL))
	return t, err
}

func (t tree) table(w io.Writer) error {
	fmt.Fprintf(w, "Group       %s\nConfigured  %s, %s\n\n", printable(t.Root), t.ACL, printable(t.Configured))
	tab := newTable(w, "ZNODE", "ACL", "")
	for _, z := range t.Znodes {
		note := "differs"
		if z.Configured {
			note = ""
		}
		tab.row(z.Path, cmp.Or(z.Error, z.ACL), note)
	}
	fmt.Fprintln(tab, "\t\t\nMEMBER\tCREATES ZNODES AS\t")
	for _, m := range t.Members {
		tab.row(m.Node, creationACL(m), memberNote(m))
	}
	return tab.Flush()
}

// creationACL describes the ACL with which a member creates znodes.
func creationACL(m zk.MemberACL) string {
	if m.ACL == "" {
		return "unknown"
	}
	return strings.TrimSuffix(m.ACL+", "+strings.Join(m.Identities, ", "), ", ")
}

// memberNote says what is wrong with the ACL of a member, "" for nothing.
func memberNote(m zk.MemberACL) string {
	switch {
	case m.LockedOut:
		return "would be locked out"
	case !m.Configured:
		return "differs"
	}
	return ""
}

// applyACLs sets the ACLs, unless that would lock a member out.
func (g group) applyACLs(ctx context.Context, a *appliedACLs, dry, force bool) error {
	t, err := g.tree(ctx)
	if err != nil {
		return err
	}
	a.Group, a.Configured = g.name, t.Configured
	var locked []string
	for _, m := range t.Members {
		switch {
		case m.LockedOut:
			locked = append(locked, printable(m.Node))
		case !m.Configured:
			a.say("%s creates znodes with %s: reload it with this configuration", m.Node, creationACL(m))
		}
	}
	if len(locked) > 0 && !force {
		return refuse("no ACL was changed: %s would be locked out because they have none of the identities in this "+
			"configuration (%s); "+
			"give them the same zookeeper.auth.file or zookeeper.identities, reload them, and run this again",
			some(locked), strings.Join(t.Identities, ", "))
	}
	todo := slices.DeleteFunc(slices.Clone(t.Znodes), func(z zk.ZnodeACL) bool { return z.Configured })
	if dry {
		for _, z := range todo {
			a.Changed = append(a.Changed, z.Path)
			a.say("%s: would change %s", z.Path, z.ACL)
		}
		a.say("%d of %d znodes would get %s", len(todo), len(t.Znodes), t.Configured)
		return nil
	}
	set := func(z zk.ZnodeACL) {
		if z.NewKeys {
			a.say("%s: replaced the keys of failsafe mode, which others could read or write", z.Path)
			return
		}
		a.Changed = append(a.Changed, z.Path)
		a.say("%s: changed %s", z.Path, z.ACL)
	}
	err = g.applyUntilClosed(ctx, set)
	a.say("%d znodes now have %s", len(a.Changed), t.Configured)
	return err
}

// applyUntilClosed sets the ACLs until no member whose zookeeper.acl is auto creates open znodes any more: each looks
// at the root from time to time, and counts what others have created until then.
func (g group) applyUntilClosed(ctx context.Context, set func(zk.ZnodeACL)) error {
	again := time.NewTicker(status.CheckInterval / 10)
	defer again.Stop()
	for {
		snap, err := g.read(ctx)
		if err != nil {
			return err
		}
		var open []string
		for _, m := range g.session.MemberACLs(snap, zk.ACL(g.cfg.ZooKeeper.ACL)) {
			if m.CreatesOpen && !g.session.CreatesOpen() {
				open = append(open, printable(m.Node))
			}
		}
		if err := g.session.ApplyACLs(ctx, g.paths, whoami(), set); err != nil || len(open) == 0 {
			return err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("%s may still create open znodes, as they have not looked at the root again: run "+
				"the command again", some(open))
		}
	}
}

// some lists the first names of a long list.
func some(names []string) string {
	const most = 10
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
