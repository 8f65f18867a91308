package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"zkelectd/internal/cluster"
	"zkelectd/internal/cluster/zkstore"
	"zkelectd/internal/config"
	"zkelectd/internal/operator"
)

func reloadCommand() *cobra.Command {
	var force bool
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Have this host's daemon read its configuration again, and say how that went",
		Long: `Reload sends SIGHUP to the daemon with this node id (--id, default: that of the
configuration) on this host, and waits until it has read its configuration again. A
changed policy is published for the whole group. A configuration with a fault, a
policy.revision that does not rise, or a policy under which nobody may lead is refused,
and the running one stays.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := load(cmd, nil)
			if err != nil {
				return err
			}
			cfg, asked := forReload(cfg, os.Getenv)
			if !asked {
				return told(cmd, os.Getenv("MAINPID"))
			}
			return inGroup(cmd, cfg, func(ctx context.Context, g group) error {
				if force {
					rec, err := g.publish(ctx, operator.Proposal{Config: g.cfg, By: g.cfg.Node.ID, Revision: g.cfg.Policy.Revision, Force: true})
					if err != nil {
						return err
					}
					fmt.Fprintf(cmd.OutOrStdout(), "policy revision %d is in force\n", rec.Revision)
				}
				rec, err := g.signalled(ctx, limit)
				if err != nil {
					return err
				}
				if rec.Refused != "" {
					return fmt.Errorf("reload refused, the running configuration stays:\n%s", plainText(rec.Refused))
				}
				said := plain(rec.ID) + " has read its configuration"
				if rec.Reloaded != "" { // as older daemons do not say
					said += ": " + plain(rec.Reloaded)
				}
				_, err = fmt.Fprintln(cmd.OutOrStdout(), said)
				return err
			})
		},
	}
	config.RegisterFlags(cmd.Flags())
	cmd.Flags().BoolVar(&force, "force", false, "publish the policy of --config first, even if no member is eligible under it")
	cmd.Flags().DurationVar(&limit, "timeout", 30*time.Second, "how long to wait for the daemon")
	return cmd
}

// forReload is how a reload gets at the group. Systemd, as of Debian 12, keeps a unit's credentials from its ExecReload=: then
// it reads as anybody does, and where nobody may, the daemon can't be asked how it went.
func forReload(cfg config.Config, getenv func(string) string) (as config.Config, asked bool) {
	if getenv("MAINPID") == "" || !errors.Is(operator.Access(cfg, getenv).Check(), fs.ErrPermission) {
		return cfg, true
	}
	anybody := cfg
	anybody.ZooKeeper.Auth.File, anybody.ZooKeeper.ACL = "", string(zkstore.ACLOpen)
	return anybody, cfg.ZooKeeper.ACL != string(zkstore.ACLPrivate) && operator.Access(anybody, getenv).Check() == nil
}

// told has the unit's main process reload, whose configuration has no fault by itself.
func told(cmd *cobra.Command, main string) error {
	pid, err := strconv.Atoi(main)
	if err != nil || pid <= 1 {
		return fmt.Errorf("$MAINPID is %q, no process", main)
	}
	if err := syscall.Kill(pid, syscall.SIGHUP); err != nil {
		return fmt.Errorf("cannot signal process %d, the unit's main process: %w", pid, err)
	}
	fmt.Fprintln(cmd.OutOrStdout(), "the daemon is told to read its configuration; how that goes is in its log, as the credentials can't be read from here")
	return nil
}

// signalled sends SIGHUP and waits for the daemon to say how it went.
func (g group) signalled(ctx context.Context, limit time.Duration) (cluster.Node, error) {
	before, err := g.node(ctx)
	if err != nil {
		return before, err
	}
	if host, err := os.Hostname(); err != nil || host != before.Host {
		return before, fmt.Errorf("%s runs on host %s: reload it there", before.ID, before.Host)
	}
	if err := syscall.Kill(before.PID, syscall.SIGHUP); err != nil {
		return before, fmt.Errorf("cannot signal process %d of %s: %w", before.PID, before.ID, err)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		now, err := g.node(ctx)
		if err == nil && now.Reloads > before.Reloads {
			return now, nil
		}
		select {
		case <-g.session.Wake():
			g.session.TakeHints()
		case <-g.session.Done():
			return before, g.session.Err()
		case <-ctx.Done():
			return before, fmt.Errorf("%s has not answered within %s; see its log", before.ID, limit)
		}
	}
}

// node reads what the daemon with the configuration's id says of itself, and watches it.
func (g group) node(ctx context.Context) (cluster.Node, error) {
	ctx, cancel := brief(ctx)
	defer cancel()
	path := g.paths.Node(g.cfg.Node.ID)
	data, stat, err := g.session.Get(ctx, path, true)
	if errors.Is(err, cluster.ErrNoNode) {
		return cluster.Node{}, fmt.Errorf("no daemon %q is registered (znode %s); name it with --id", g.cfg.Node.ID, path)
	}
	if err != nil {
		return cluster.Node{}, fmt.Errorf("cannot read znode %s: %w", path, err)
	}
	slot := cluster.ReadSlot[cluster.Node](path, data, stat, true)
	return slot.Record, slot.Err
}
