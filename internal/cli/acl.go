package cli

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

	"zkelectd/internal/operator"
	"zkelectd/internal/zk"
)

func aclCommand() *cobra.Command {
	return parent(&cobra.Command{
		Use: "acl", Short: "Show and set the ACLs of the group's znodes, while the group runs",
		Long: `Acl compares the ACLs of the group's znodes with zookeeper.acl and zookeeper.auth.file of
the configuration (--config, environment), and sets them. docs/security.md has the steps
to close an open tree and to change the password without an outage.

Users are shown as NAME/HASH; the short hash distinguishes the passwords of a user.`,
	}, aclShowCommand(), aclApplyCommand())
}

func aclShowCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "show", Short: "Show the ACL of each znode, and the ACL with which each member creates znodes", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			return withTree(cmd, operator.AnswerTimeout, func(ctx context.Context, g group) error {
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
	groupFlags(cmd)
	outputFlag(cmd, &output)
	return cmd
}

func aclApplyCommand() *cobra.Command {
	var dry, open, force bool
	var limit time.Duration
	cmd := &cobra.Command{
		Use: "apply", Short: "Set the ACL of every znode to that of the configuration", Args: cobra.NoArgs,
		Long: `Apply sets the ACL of every znode of the group, including ephemeral ones, to that of
zookeeper.acl and zookeeper.auth.file of the configuration. The group keeps working; the
leader does not change. First reload every member with the same two settings: apply
refuses to lock a member out. It skips znodes that already have the ACL, so it can be
run again after an error.`,
	}
	groupFlags(cmd)
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print what would change, without changing it")
	cmd.Flags().BoolVar(&open, "open", false, "permit zookeeper.acl: open, so that anyone can change the group's znodes")
	cmd.Flags().BoolVar(&force, "force", false, "continue although members would be locked out")
	cmd.Flags().DurationVar(&limit, "timeout", time.Minute, "how long it may take in all")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return withTree(cmd, limit, func(ctx context.Context, g group) error {
			if zk.ACL(g.cfg.ZooKeeper.ACL).Open() && !open && !dry {
				return errors.New("zookeeper.acl is open: anyone could change the group's znodes, and lock the group out; name the configuration " +
					"of the members with --config, or add --open if you want that")
			}
			return g.applyACLs(ctx, cmd.OutOrStdout(), dry, force)
		})
	}
	return cmd
}

// withTree is [withGroup] with a session that creates znodes with the ACL of the configuration, and bounded by timeout.
func withTree(cmd *cobra.Command, timeout time.Duration, f func(context.Context, group) error) error {
	return withSelection(cmd, func(ctx context.Context, s selection) error {
		g, err := s.only()
		if err == nil {
			err = wholeGroup(g)
		}
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return f(ctx, g)
	})
}

// tree is the output of 'acl show'.
type tree struct {
	Root string `json:"root"`
	// ACL and Identities are those of the configuration, Configured is the resulting ACL.
	ACL        string         `json:"acl"`
	Identities []string       `json:"identities"`
	Configured string         `json:"configured"`
	Znodes     []zk.ZnodeACL  `json:"znodes"`
	Members    []zk.MemberACL `json:"members"`
}

func (g group) tree(ctx context.Context) (tree, error) {
	t := tree{Root: g.paths.Root, ACL: g.cfg.ZooKeeper.ACL, Identities: g.session.Tags(), Configured: g.session.ConfiguredACL()}
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
		fmt.Fprintf(tab, "%s\t%s\t%s\n", printable(z.Path), printable(acl), note)
	}
	fmt.Fprintln(tab, "\t\t\nMEMBER\tCREATES ZNODES AS\t")
	for _, m := range t.Members {
		fmt.Fprintf(tab, "%s\t%s\t%s\n", printable(m.Node), printable(creationACL(m)), memberNote(m))
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
func (g group) applyACLs(ctx context.Context, w io.Writer, dry, force bool) error {
	t, err := g.tree(ctx)
	if err != nil {
		return err
	}
	var locked []string
	for _, m := range t.Members {
		switch {
		case m.LockedOut:
			locked = append(locked, printable(m.Node))
		case !m.Configured:
			fmt.Fprintf(w, "%s creates znodes with %s: reload it with this configuration\n", printable(m.Node), printable(creationACL(m)))
		}
	}
	if len(locked) > 0 && !force {
		return fmt.Errorf("no ACL was changed: %s would be locked out because they have none of the identities in zookeeper.auth.file (%s); "+
			"add one of these identities to their file, reload them, and run this again", some(locked), strings.Join(t.Identities, ", "))
	}
	todo := slices.DeleteFunc(slices.Clone(t.Znodes), func(z zk.ZnodeACL) bool { return z.Configured })
	if dry {
		for _, z := range todo {
			fmt.Fprintf(w, "%s: would change %s\n", printable(z.Path), printable(z.ACL))
		}
		fmt.Fprintf(w, "%d of %d znodes would get %s\n", len(todo), len(t.Znodes), printable(t.Configured))
		return nil
	}
	changed := 0
	err = g.session.ApplyACLs(ctx, g.paths, whoami(), func(z zk.ZnodeACL) {
		if z.NewKeys {
			fmt.Fprintf(w, "%s: replaced the keys of failsafe mode, which others could read or write\n", printable(z.Path))
			return
		}
		changed++
		fmt.Fprintf(w, "%s: changed %s\n", printable(z.Path), printable(z.ACL))
	})
	fmt.Fprintf(w, "%d znodes now have %s\n", changed, printable(t.Configured))
	return err
}

// some lists the first names of a long list.
func some(names []string) string {
	const most = 10
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
