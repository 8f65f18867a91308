package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/guard"
	"zkelectd/internal/host"
	"zkelectd/internal/store"
	"zkelectd/internal/test/zkserver"
	"zkelectd/internal/zk"
)

// group is a server, a session that observes it, and daemons in this process or in processes of their own.
type group struct {
	guard   *guard.Client
	server  *zkserver.Server // nil if another process runs it
	addr    string
	paths   cluster.Paths
	session *zk.Session
	daemons []*host.Host
	wg      sync.WaitGroup
}

func newGroup(ctx context.Context, opt zkserver.Options) (*group, error) {
	server, err := zkserver.Start(ctx, opt)
	if err != nil {
		return nil, err
	}
	g := &group{server: server, addr: server.Addr(), paths: cluster.Paths{Root: "/bench"}}
	if g.session, err = zk.Open(ctx, zk.Options{Servers: []string{server.Addr()}, Timeout: max(opt.MaxSession,
		time.Minute)}); err != nil {
		g.close()
		return nil, err
	}
	return g, store.Init(ctx, g.session, g.paths, "the benchmark")
}

func (g *group) close() {
	for _, d := range g.daemons {
		d.Stop("the benchmark is over")
	}
	g.wg.Wait()
	if g.session != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		g.session.Close(ctx)
	}
	g.server.Stop()
}

// joinUnder runs a daemon without a child in this process, under a guard.
func (g *group) joinUnder(under host.Guard, id, site string, timeout time.Duration, env ...string) (*host.Host, error) {
	cfg, err := config.LoadHost(config.Sources{Env: append([]string{
		"ZKELECTD_NODE_ID=" + id, "ZKELECTD_NODE_SITE=" + site, "ZKELECTD_ZOOKEEPER_SERVERS=" + g.addr,
		"ZKELECTD_ZOOKEEPER_ROOT=" + g.paths.Root, "ZKELECTD_ZOOKEEPER_SESSION_TIMEOUT=" + timeout.String(),
		"ZKELECTD_ELECTION_SETTLE=0s",
	}, env...)})
	if err != nil {
		return nil, err
	}
	d := host.New(host.Options{Config: cfg, Guard: under,
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))})
	g.daemons = append(g.daemons, d)
	g.wg.Go(func() {
		if err := d.Run(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "bench: daemon", id, "ended:", err)
		}
	})
	return d, nil
}

// until calls f with leader/current and the time at which it was read, whenever it changes, until f returns true. It
// reads as little as possible, in order not to disturb the measurement.
func (g *group) until(ctx context.Context, f func(cluster.Stored[cluster.Current], time.Time) bool) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	path := g.paths.Current()
	for {
		data, stat, err := g.session.Get(ctx, path, true)
		if ctx.Err() != nil {
			return fmt.Errorf("waiting for the leader: %w", ctx.Err())
		}
		if f(cluster.ReadStored[cluster.Current](path, data, stat, err == nil), time.Now()) {
			return nil
		}
		select {
		case <-g.session.Wake():
			g.session.TakeHints()
		case <-ctx.Done():
		}
	}
}

// leads waits until a node is READY.
func (g *group) leads(ctx context.Context, id string) error {
	return g.until(ctx, func(c cluster.Stored[cluster.Current], _ time.Time) bool {
		return c.Readable() && c.Record.Node == id && c.Record.State == cluster.CurrentReady
	})
}

// gap waits until one daemon has lost leadership and another one is READY, and returns the time without a leader.
func (g *group) gap(ctx context.Context, from string) (time.Duration, error) {
	var gone, ready time.Time
	err := g.until(ctx, func(c cluster.Stored[cluster.Current], now time.Time) bool {
		if gone.IsZero() && (!c.Exists || c.Record.Node != from) {
			gone = now
		}
		ready = now
		return c.Readable() && c.Record.Node != from && c.Record.State == cluster.CurrentReady
	})
	return ready.Sub(gone), err
}
