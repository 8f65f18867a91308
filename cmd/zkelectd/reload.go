package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// reloading is a reload command.
type reloading struct {
	force, allowRemovals bool
	timeout              time.Duration
}

// signalAllowingRemovals asks a daemon to reload its configuration, even if files of groups are gone.
const signalAllowingRemovals = syscall.SIGUSR1

func (r reloading) signal() syscall.Signal {
	if r.allowRemovals {
		return signalAllowingRemovals
	}
	return syscall.SIGHUP
}

func reloadCommand() *cobra.Command {
	var r reloading
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Have this host's daemon reload its configuration, and report the result",
		Long: `Reload sends SIGHUP to the daemon with this node id (--id, default: that of the
configuration) on this host, and waits until it has reloaded its configuration. A
changed policy is published for the whole group. An invalid configuration, a
policy.revision that is not higher than the one in force, or a policy without an
eligible member is refused, and the running configuration stays in force.

With groups_dir, a refused group file leaves its group as it is. Files can vanish by
accident: if the directory is missing or empty, or if more than a fifth of the groups
(at least two) are gone, everything is refused. --allow-removals (SIGUSR1) ends these
groups on this host.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			src, err := commandSources(cmd, "")
			if err != nil {
				return err
			}
			h, refused, err := config.LoadCommand(src)
			if err != nil {
				return err
			}
			if err := r.checkFlags(h); err != nil {
				return err
			}
			cfg, readable := reloadAccess(h.Config, os.Getenv)
			if !readable {
				return signalMainProcess(cmd, os.Getenv("MAINPID"), r.signal())
			}
			if h.Config = cfg; h.Dir != "" {
				return r.many(cmd, h, refused)
			}
			return withGroupOf(cmd, cfg, h.From, func(ctx context.Context, g group) error { return r.one(ctx, cmd.OutOrStdout(), g) })
		},
	}
	config.RegisterFlags(cmd.Flags())
	concernsHost(cmd, "zookeeper.servers")
	cmd.Flags().BoolVar(&r.force, "force", false, "first publish the policy of --config, even if no member is eligible under it")
	cmd.Flags().BoolVar(&r.allowRemovals, "allow-removals", false, "end the groups whose files are gone, however many they are")
	durationFlag(cmd, &r.timeout, "timeout", 30*time.Second, "how long to wait for the daemon")
	return cmd
}

func (r reloading) checkFlags(h config.Host) error {
	switch {
	case r.allowRemovals && h.Dir == "":
		return errors.New("--allow-removals has no effect without groups_dir")
	case r.force && h.Dir != "":
		return errors.New("--force is for a daemon with one group: publish the policy of the group with policy apply --force -g")
	}
	return nil
}

// one reloads a daemon with one group.
func (r reloading) one(ctx context.Context, w io.Writer, g group) error {
	if r.force {
		rec, err := g.publish(ctx, operator.Proposal{Group: g.name, Config: g.cfg, By: g.cfg.Node.ID, Revision: g.cfg.Policy.Revision, Force: true})
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "policy revision %d is in force\n", rec.Revision)
	}
	before, err := g.node(ctx)
	if err != nil {
		return err
	}
	if host, err := os.Hostname(); err != nil || host != before.Host {
		return fmt.Errorf("%s runs on host %s: reload it there", before.ID, before.Host)
	}
	if err := signalDaemon(before.PID, before.ID, r.signal()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	rec, err := g.awaitReload(ctx, before)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return r.noAnswer(before)
	case err != nil:
		return err
	case rec.Refused != "":
		return refusedError(rec.Refused)
	}
	text := printable(rec.ID) + " has reloaded its configuration"
	if rec.Reloaded != "" { // older daemons do not report it
		text += ": " + printable(rec.Reloaded)
	}
	fmt.Fprintln(w, text)
	return g.printBlocked(ctx, w, "")
}

// printBlocked prints what holds a better member back, if anything does.
func (g group) printBlocked(ctx context.Context, w io.Writer, prefix string) error {
	q, err := g.submitter().Question(ctx)
	if err != nil {
		return err
	}
	for _, line := range operator.DescribeBlocked(q) {
		fmt.Fprintln(w, printable(prefix+line))
	}
	return nil
}

func (r reloading) noAnswer(of cluster.Node) error {
	return exitError{statusTimedOut, fmt.Errorf("%s has not answered within %s; see its log", of.ID, r.timeout)}
}

func refusedError(reason string) error {
	return refuse("reload refused, the running configuration stays in force:\n%s", printableText(reason))
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

// signalDaemon sends a signal to the process of a daemon with that name.
func signalDaemon(pid int, name string, sig syscall.Signal) error {
	err := syscall.Kill(pid, sig)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("cannot signal process %d of %s: %w", pid, printable(name), err)
	if errors.Is(err, syscall.EPERM) {
		err = fmt.Errorf("%w: it runs as another user; use sudo", err)
	}
	return err
}

// signalMainProcess has the main process of the unit reload. The configuration has already been checked.
func signalMainProcess(cmd *cobra.Command, main string, sig syscall.Signal) error {
	pid, err := strconv.Atoi(main)
	if err != nil || pid <= 1 {
		return fmt.Errorf("$MAINPID is %q, not a process", main)
	}
	if err := signalDaemon(pid, "the unit", sig); err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), "the daemon was signaled to reload its configuration; its log has the result, which cannot be read from here without credentials")
	return nil
}

// leftAfter is how long a record must be gone until the daemon has left the group: it may be registering again.
const leftAfter = 2 * time.Second

// errLeft is the result of a reload in a group that the daemon has left.
var errLeft = errors.New("the daemon has left the group")

// awaitReload waits for the daemon with the record before to report the result of a reload.
func (g group) awaitReload(ctx context.Context, before cluster.Node) (cluster.Node, error) {
	var again <-chan time.Time // nothing wakes a reader of a record that is gone
	for waited := false; ; {
		now, err := g.node(ctx)
		if err == nil && now.Reloads > before.Reloads {
			return now, nil
		}
		if gone := errors.As(err, new(notRegisteredError)); !gone {
			again, waited = nil, false
		} else if waited {
			return before, errLeft
		} else if again == nil {
			again = time.After(leftAfter)
		}
		select {
		case <-again:
			waited = true
		case <-g.session.Wake():
			g.session.TakeHints()
		case <-g.session.Done():
			return before, g.session.Err()
		case <-ctx.Done():
			return before, ctx.Err()
		}
	}
}

// notRegisteredError is the error for a node without a record.
type notRegisteredError struct{ id, znode string }

func (e notRegisteredError) Error() string {
	return fmt.Sprintf("no daemon %q is registered (znode %s); name it with --id", e.id, e.znode)
}

// node reads and watches the record of the daemon with the configuration's id.
func (g group) node(ctx context.Context) (cluster.Node, error) {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	path := g.paths.Node(g.cfg.Node.ID)
	data, stat, err := g.session.Get(ctx, path, true)
	if errors.Is(err, cluster.ErrNoNode) {
		return cluster.Node{}, notRegisteredError{g.cfg.Node.ID, path}
	}
	if err != nil {
		return cluster.Node{}, fmt.Errorf("cannot read znode %s: %w", path, err)
	}
	slot := cluster.ReadStored[cluster.Node](path, data, stat, true)
	return slot.Record, slot.Err
}
