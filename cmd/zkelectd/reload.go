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
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Have this host's daemon reload its configuration, and report the result",
		Long: `Reload sends SIGHUP to the daemon with this node id (--id, default: that of the
configuration) on this host, and waits until it has reloaded its configuration. A
changed policy is published for the whole group. An invalid configuration, a
policy.revision that is not higher than the one in force, or a policy without an
eligible member is refused, and the running configuration stays in force.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := load(cmd, nil)
			if err != nil {
				return err
			}
			cfg, readable := reloadAccess(cfg, os.Getenv)
			if !readable {
				return signalMainProcess(cmd, os.Getenv("MAINPID"))
			}
			return withGroupOf(cmd, cfg, func(ctx context.Context, g group) error {
				if force {
					rec, err := g.publish(ctx, operator.Proposal{Config: g.cfg, By: g.cfg.Node.ID, Revision: g.cfg.Policy.Revision, Force: true})
					if err != nil {
						return err
					}
					fmt.Fprintf(cmd.OutOrStdout(), "policy revision %d is in force\n", rec.Revision)
				}
				rec, err := g.signalAndWait(ctx, timeout)
				if err != nil {
					return err
				}
				if rec.Refused != "" {
					return fmt.Errorf("reload refused, the running configuration stays in force:\n%s", printableText(rec.Refused))
				}
				text := printable(rec.ID) + " has reloaded its configuration"
				if rec.Reloaded != "" { // older daemons do not report it
					text += ": " + printable(rec.Reloaded)
				}
				_, err = fmt.Fprintln(cmd.OutOrStdout(), text)
				return err
			})
		},
	}
	config.RegisterFlags(cmd.Flags())
	cmd.Flags().BoolVar(&force, "force", false, "first publish the policy of --config, even if no member is eligible under it")
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "how long to wait for the daemon")
	return cmd
}

// reloadAccess returns the configuration with which a reload reads the group. The systemd of Debian 12 does not pass a unit's
// credentials to its ExecReload=: then it reads without credentials. readable is false if the ACL does not permit that, so
// that the daemon's answer cannot be read.
func reloadAccess(cfg config.Config, getenv func(string) string) (as config.Config, readable bool) {
	if getenv("MAINPID") == "" || !errors.Is(operator.Access(cfg, getenv).Check(), fs.ErrPermission) {
		return cfg, true
	}
	anonymous := cfg
	anonymous.ZooKeeper.Auth.File, anonymous.ZooKeeper.ACL = "", string(zkstore.ACLOpen)
	return anonymous, cfg.ZooKeeper.ACL != string(zkstore.ACLPrivate) && operator.Access(anonymous, getenv).Check() == nil
}

// signalMainProcess has the main process of the unit reload. The configuration has already been checked.
func signalMainProcess(cmd *cobra.Command, main string) error {
	pid, err := strconv.Atoi(main)
	if err != nil || pid <= 1 {
		return fmt.Errorf("$MAINPID is %q, not a process", main)
	}
	if err := syscall.Kill(pid, syscall.SIGHUP); err != nil {
		return fmt.Errorf("cannot signal process %d, the unit's main process: %w", pid, err)
	}
	fmt.Fprintln(cmd.OutOrStdout(), "the daemon was signaled to reload its configuration; its log has the result, which cannot be read from here without credentials")
	return nil
}

// signalAndWait sends SIGHUP, and waits for the daemon to report the result.
func (g group) signalAndWait(ctx context.Context, timeout time.Duration) (cluster.Node, error) {
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
	ctx, cancel := context.WithTimeout(ctx, timeout)
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
			return before, fmt.Errorf("%s has not answered within %s; see its log", before.ID, timeout)
		}
	}
}

// node reads and watches the record of the daemon with the configuration's id.
func (g group) node(ctx context.Context) (cluster.Node, error) {
	ctx, cancel := withAnswerTimeout(ctx)
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
