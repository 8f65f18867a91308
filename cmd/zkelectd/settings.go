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

// load makes the configuration of a command, whose child is the words after --.
func load(cmd *cobra.Command, child []string) (config.Config, error) {
	return config.Load(sources(cmd, child))
}

// sources are where the configuration of a command comes from.
func sources(cmd *cobra.Command, child []string) config.Sources {
	return config.Sources{File: configFile(cmd), Env: os.Environ(), Flags: cmd.Flags(), Command: child}
}

func configFile(cmd *cobra.Command) string { return cmd.Flags().Lookup("config").Value.String() }

// client opens a session of its own for a command. With credentials it creates znodes with the ACL of the group's root.
func client(ctx context.Context, cfg config.Config) (*zkstore.Session, cluster.Paths, error) {
	s, paths, err := connect(ctx, cfg)
	if err != nil || cfg.ZooKeeper.Auth.File == "" {
		return s, paths, err
	}
	ctx, cancel := brief(ctx)
	defer cancel()
	if err := s.AdoptACL(ctx, paths.Root); err != nil {
		closeQuietly(ctx, s)
		return nil, paths, err
	}
	return s, paths, nil
}

// connect opens a session that creates znodes as the configuration says.
func connect(ctx context.Context, cfg config.Config) (*zkstore.Session, cluster.Paths, error) {
	limit := cfg.ZooKeeper.ConnectTimeout
	if limit == 0 {
		limit = 10 * time.Second // a person waits for the answer
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

// withGroup runs f on a session that is closed afterwards.
func withGroup(cmd *cobra.Command, f func(ctx context.Context, s *zkstore.Session, p cluster.Paths) error) error {
	return withConfig(cmd, func(ctx context.Context, g group) error { return f(ctx, g.session, g.paths) })
}

// group is a connection to one, with the configuration of the command.
type group struct {
	cfg     config.Config
	session *zkstore.Session
	paths   cluster.Paths
}

func withConfig(cmd *cobra.Command, f func(ctx context.Context, g group) error) error {
	cfg, err := load(cmd, nil)
	if err != nil {
		return err
	}
	return inGroup(cmd, cfg, f)
}

// inGroup calls f with a session to the group of a configuration.
func inGroup(cmd *cobra.Command, cfg config.Config, f func(ctx context.Context, g group) error) error {
	s, paths, err := client(cmd.Context(), cfg)
	if err != nil {
		return err
	}
	defer closeQuietly(cmd.Context(), s)
	return f(cmd.Context(), group{cfg, s, paths})
}

func closeQuietly(ctx context.Context, s *zkstore.Session) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	s.Close(ctx) // the server ends it anyway
}

// read reads the whole group once.
func (g group) read(ctx context.Context) (cluster.Snapshot, error) {
	ctx, cancel := brief(ctx)
	defer cancel()
	return zkstore.ReadAll(ctx, g.session, g.paths, false)
}

// history reads the history, empty if there is none yet.
func (g group) history(ctx context.Context, watch bool) (cluster.History, error) {
	ctx, cancel := brief(ctx)
	defer cancel()
	return operator.ReadHistory(ctx, g.session, g.paths, watch)
}

// answerLimit is how long a command waits for one answer of ZooKeeper: a person waits for its own.
const answerLimit = 10 * time.Second

// brief bounds what a command asks of ZooKeeper at once.
func brief(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, answerLimit)
}

// publish makes a policy the one in force.
func (g group) publish(ctx context.Context, p operator.Proposal) (cluster.Policy, error) {
	ctx, cancel := brief(ctx)
	defer cancel()
	return operator.PublishPolicy(ctx, g.session, g.paths, p)
}

// logger logs to standard error, at a level that a reload can change, and waits for no reader but at the end: flush.
func logger(cfg config.Config) (log *slog.Logger, level *slog.LevelVar, flush func()) {
	level = new(slog.LevelVar)
	level.UnmarshalText([]byte(cfg.Log.Level)) // checked with the configuration
	opt := &slog.HandlerOptions{Level: level}
	out := asynclog.New(os.Stderr, func(lost int64) { log.Warn("lines are missing here: nobody read them in time", "lines", lost) })
	log = slog.New(slog.NewTextHandler(out, opt))
	if cfg.Log.Format == "json" {
		log = slog.New(slog.NewJSONHandler(plainJSON{out}, opt))
	}
	return log, level, func() { out.Close(time.Second) }
}
