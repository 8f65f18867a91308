package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"zkelectd/internal/cluster/zkstore"
	"zkelectd/internal/config"
)

func aclCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "acl", Short: "Show who may use the group's znodes, and change that in a running group", Args: cobra.NoArgs,
		Long: `Acl compares the ACLs of the group's znodes with zookeeper.acl and zookeeper.auth.file of
the configuration (--config, environment), and sets them. docs/security.md has the steps
for closing an open tree and for a new password, without an outage.

Users are shown as NAME/HASH: the short hash tells two passwords of a user apart.`,
	}
	cmd.AddCommand(aclShowCommand(), aclApplyCommand())
	return cmd
}

func aclShowCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "show", Short: "Show the ACL of every znode, and by which each member creates them", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			return withTree(cmd, answerLimit, func(ctx context.Context, g group) error {
				tree, err := g.tree(ctx)
				if err != nil {
					return err
				}
				if output == "json" {
					return printJSON(cmd.OutOrStdout(), tree)
				}
				return tree.table(cmd.OutOrStdout())
			})
		},
	}
	config.RegisterConnection(cmd.Flags())
	outputFlag(cmd, &output)
	return cmd
}

func aclApplyCommand() *cobra.Command {
	var dry, open, force bool
	var limit time.Duration
	cmd := &cobra.Command{
		Use: "apply", Short: "Set the ACL of every znode to what the configuration says", Args: cobra.NoArgs,
		Long: `Apply sets the ACL of every znode of the group, ephemerals included, to what zookeeper.acl
and zookeeper.auth.file of the configuration say. The group goes on working: no leader
changes. First reload every member with the same two settings: apply refuses to go on
where a member would be locked out. What is right already is left alone, so that apply
can be repeated after an error.`,
	}
	config.RegisterConnection(cmd.Flags())
	cmd.Flags().BoolVar(&dry, "dry-run", false, "say what would be changed, and change nothing")
	cmd.Flags().BoolVar(&open, "open", false, "with zookeeper.acl: open, let everybody change the group's znodes")
	cmd.Flags().BoolVar(&force, "force", false, "go on although members would be locked out")
	cmd.Flags().DurationVar(&limit, "timeout", time.Minute, "how long it may take")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return withTree(cmd, limit, func(ctx context.Context, g group) error {
			if zkstore.ACL(g.cfg.ZooKeeper.ACL).Open() && !open && !dry {
				return errors.New("zookeeper.acl is open: everybody could change the group's znodes, and lock the group out; name the configuration " +
					"that the members have with --config, or add --open if that is what you want")
			}
			return g.applyACLs(ctx, cmd.OutOrStdout(), dry, force)
		})
	}
	return cmd
}

// withTree calls f with a session that creates znodes as the configuration says, for no longer than limit.
func withTree(cmd *cobra.Command, limit time.Duration, f func(context.Context, group) error) error {
	cfg, err := load(cmd, nil)
	if err != nil {
		return err
	}
	s, paths, err := connect(cmd.Context(), cfg)
	if err != nil {
		return err
	}
	defer closeQuietly(cmd.Context(), s)
	ctx, cancel := context.WithTimeout(cmd.Context(), limit)
	defer cancel()
	return f(ctx, group{cfg, s, paths})
}

// tree is what 'acl show' prints.
type tree struct {
	Root string `json:"root"`
	// ACL and Identities are of the configuration, Configured is the ACL that follows from them.
	ACL        string              `json:"acl"`
	Identities []string            `json:"identities"`
	Configured string              `json:"configured"`
	Znodes     []zkstore.ZnodeACL  `json:"znodes"`
	Members    []zkstore.MemberACL `json:"members"`
}

func (g group) tree(ctx context.Context) (tree, error) {
	t := tree{Root: g.paths.Root, ACL: g.cfg.ZooKeeper.ACL, Identities: g.session.Tags(), Configured: g.session.ConfiguredACL()}
	var err error
	if t.Znodes, err = g.session.ACLs(ctx, g.paths); err != nil {
		return t, err
	}
	snap, err := g.read(ctx)
	t.Members = g.session.MemberACLs(snap, zkstore.ACL(t.ACL))
	return t, err
}

func (t tree) table(w io.Writer) error {
	fmt.Fprintf(w, "Group       %s\nConfigured  %s, %s\n\n", plain(t.Root), t.ACL, plain(t.Configured))
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "ZNODE\tACL\t")
	for _, z := range t.Znodes {
		note := "differs"
		if z.Configured {
			note = ""
		}
		acl := z.ACL
		if z.Error != "" {
			acl = z.Error
		}
		fmt.Fprintf(tab, "%s\t%s\t%s\n", plain(z.Path), plain(acl), note)
	}
	fmt.Fprintln(tab, "\t\t\nMEMBER\tCREATES ZNODES AS\t")
	for _, m := range t.Members {
		fmt.Fprintf(tab, "%s\t%s\t%s\n", plain(m.Node), plain(creates(m)), standing(m))
	}
	return tab.Flush()
}

// creates describes by which ACL a member creates znodes.
func creates(m zkstore.MemberACL) string {
	if m.ACL == "" {
		return "unknown"
	}
	return strings.TrimSuffix(m.ACL+", "+strings.Join(m.Identities, ", "), ", ")
}

func standing(m zkstore.MemberACL) string {
	switch {
	case m.LockedOut:
		return "would be locked out"
	case !m.Configured:
		return "differs"
	}
	return ""
}

// applyACLs sets the ACLs, unless that locks a member out.
func (g group) applyACLs(ctx context.Context, w io.Writer, dry, force bool) error {
	t, err := g.tree(ctx)
	if err != nil {
		return err
	}
	var locked []string
	for _, m := range t.Members {
		switch {
		case m.LockedOut:
			locked = append(locked, plain(m.Node))
		case !m.Configured:
			fmt.Fprintf(w, "%s creates znodes as %s: reload it with this configuration\n", plain(m.Node), plain(creates(m)))
		}
	}
	if len(locked) > 0 && !force {
		return fmt.Errorf("nothing was changed: no identity of zookeeper.auth.file (%s) is known to %s, which would be locked out; "+
			"give these members a file that holds one, reload them, and run it again", strings.Join(t.Identities, ", "), some(locked))
	}
	todo := slices.DeleteFunc(slices.Clone(t.Znodes), func(z zkstore.ZnodeACL) bool { return z.Configured })
	if dry {
		for _, z := range todo {
			fmt.Fprintf(w, "%s: would change %s\n", plain(z.Path), plain(z.ACL))
		}
		fmt.Fprintf(w, "%d of %d znodes would get %s\n", len(todo), len(t.Znodes), plain(t.Configured))
		return nil
	}
	changed := 0
	err = g.session.ApplyACLs(ctx, g.paths, func(z zkstore.ZnodeACL) {
		changed++
		fmt.Fprintf(w, "%s: changed %s\n", plain(z.Path), plain(z.ACL))
	})
	fmt.Fprintf(w, "%d znodes have got %s\n", changed, plain(t.Configured))
	return err
}

// some lists the first few of many.
func some(names []string) string {
	const most = 10
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
