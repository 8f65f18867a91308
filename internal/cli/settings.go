package cli

import (
	"cmp"
	"context"
	"os"

	"github.com/spf13/cobra"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/operator"
	"zkelectd/internal/store"
	"zkelectd/internal/zk"
)

// sources returns the sources of the configuration of a command.
func sources(cmd *cobra.Command, child []string) config.Sources {
	return config.Sources{File: configFile(cmd), Env: os.Environ(), Flags: cmd.Flags(), Command: child}
}

// configFile returns the configuration file that --config or the environment names; empty for none.
func configFile(cmd *cobra.Command) string {
	return cmp.Or(cmd.Flags().Lookup("config").Value.String(), os.Getenv(config.EnvConfig))
}

// openGroup opens a session for the group with the root of the configuration.
func openGroup(ctx context.Context, cfg config.Config, from config.From) (group, error) {
	s, err := connect(ctx, cfg, from)
	if err != nil {
		return group{}, err
	}
	g := groupAt(s, cfg, cluster.NameOf(cfg.ZooKeeper.Root), cfg.ZooKeeper.Root)
	if err := g.adoptACL(ctx); err != nil {
		operator.Disconnect(ctx, s)
		return group{}, err
	}
	return g, nil
}

// adoptACL makes the session create znodes with the ACL of the group's root, if it has credentials.
func (g group) adoptACL(ctx context.Context) error {
	if g.cfg.ZooKeeper.Auth.File == "" {
		return nil
	}
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	return g.session.AdoptACL(ctx, g.paths.Root)
}

// connect opens a session that creates znodes with the ACL of the configuration. from has the sources of cfg, for errors.
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

// operator.AnswerTimeout bounds how long a command waits for a connection, and for one operation: a person waits for its output.

// withAnswerTimeout bounds one operation of a command on ZooKeeper.
func withAnswerTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, operator.AnswerTimeout)
}

// publish puts a policy in force.
func (g group) publish(ctx context.Context, p operator.Proposal) (cluster.Policy, error) {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	return operator.PublishPolicy(ctx, g.session, g.paths, p)
}
