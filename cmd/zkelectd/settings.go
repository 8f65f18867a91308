package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"zkelectd/internal/asynclog"
	"zkelectd/internal/cluster"
	"zkelectd/internal/cluster/zkstore"
	"zkelectd/internal/config"
	"zkelectd/internal/operator"
)

// load returns the configuration of a command; child is the command line after --.
func load(cmd *cobra.Command, child []string) (config.Config, error) {
	return config.Load(sources(cmd, child))
}

// sources returns the sources of the configuration of a command.
func sources(cmd *cobra.Command, child []string) config.Sources {
	return config.Sources{File: configFile(cmd), Env: os.Environ(), Flags: cmd.Flags(), Command: child}
}

func configFile(cmd *cobra.Command) string { return cmd.Flags().Lookup("config").Value.String() }

// openSession opens a session for a command. With credentials it creates znodes with the ACL of the group's root.
func openSession(ctx context.Context, cfg config.Config) (*zkstore.Session, cluster.Paths, error) {
	s, paths, err := connect(ctx, cfg)
	if err != nil || cfg.ZooKeeper.Auth.File == "" {
		return s, paths, err
	}
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	if err := s.AdoptACL(ctx, paths.Root); err != nil {
		closeQuietly(ctx, s)
		return nil, paths, err
	}
	return s, paths, nil
}

// connect opens a session that creates znodes with the ACL of the configuration.
func connect(ctx context.Context, cfg config.Config) (*zkstore.Session, cluster.Paths, error) {
	limit := cfg.ZooKeeper.ConnectTimeout
	if limit == 0 {
		limit = answerTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	paths := cluster.Paths{Root: cfg.ZooKeeper.Root}
	access := operator.Access(cfg, os.Getenv)
	if err := access.Check(); err != nil {
		return nil, paths, err
	}
	s, err := zkstore.Open(ctx, zkstore.Options{
		Servers: cfg.ZooKeeper.Servers, Timeout: cfg.ZooKeeper.SessionTimeout, Access: access, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, paths, fmt.Errorf("%w; check --zk (or ZKELECTD_ZOOKEEPER_SERVERS)", err)
	}
	return s, paths, nil
}

// group is a connection to a group, with the configuration of the command.
type group struct {
	cfg     config.Config
	session *zkstore.Session
	paths   cluster.Paths
}

// withGroup calls f with a connection to the group of the configuration, which is closed afterwards.
func withGroup(cmd *cobra.Command, f func(ctx context.Context, g group) error) error {
	cfg, err := load(cmd, nil)
	if err != nil {
		return err
	}
	return withGroupOf(cmd, cfg, f)
}

// withGroupOf is withGroup for a configuration that is already loaded.
func withGroupOf(cmd *cobra.Command, cfg config.Config, f func(ctx context.Context, g group) error) error {
	s, paths, err := openSession(cmd.Context(), cfg)
	if err != nil {
		return err
	}
	defer closeQuietly(cmd.Context(), s)
	return f(cmd.Context(), group{cfg, s, paths})
}

func closeQuietly(ctx context.Context, s *zkstore.Session) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	s.Close(ctx) // if it fails, the server ends the session
}

// read returns a snapshot of the whole group.
func (g group) read(ctx context.Context) (cluster.Snapshot, error) {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	return zkstore.ReadAll(ctx, g.session, g.paths, false)
}

// history returns the history, empty if there is none yet.
func (g group) history(ctx context.Context, watch bool) (cluster.History, error) {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	return operator.ReadHistory(ctx, g.session, g.paths, watch)
}

// answerTimeout bounds how long a command waits for a connection, and for one operation: a person waits for its output.
const answerTimeout = 10 * time.Second

// withAnswerTimeout bounds one operation of a command on ZooKeeper.
func withAnswerTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, answerTimeout)
}

// publish puts a policy in force.
func (g group) publish(ctx context.Context, p operator.Proposal) (cluster.Policy, error) {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	return operator.PublishPolicy(ctx, g.session, g.paths, p)
}

// logger returns a logger to standard error, with a level that a reload can change. It never waits for a reader of its
// output, except in flush at the end.
func logger(cfg config.Config) (log *slog.Logger, level *slog.LevelVar, flush func()) {
	level = new(slog.LevelVar)
	level.UnmarshalText([]byte(cfg.Log.Level)) // checked with the configuration
	opt := &slog.HandlerOptions{Level: level}
	out := asynclog.New(os.Stderr, func(lost int64) { log.Warn("log lines dropped: standard error is not read fast enough", "lines", lost) })
	log = slog.New(slog.NewTextHandler(out, opt))
	if cfg.Log.Format == "json" {
		log = slog.New(slog.NewJSONHandler(printableJSON{out}, opt))
	}
	return log, level, func() { out.Close(time.Second) }
}
