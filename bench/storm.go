package main

import (
	"context"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"zkelectd/internal/guard"
	"zkelectd/internal/test/faultproxy"
	"zkelectd/internal/test/zkserver"
)

// The clients of a storm, the timeout of their sessions, and how long each fault lasts.
const (
	stormSize    = 200
	stormTimeout = 10 * time.Second
	stormLasts   = time.Minute
)

// storm measures how often clients connect while a server refuses all of them, admits half of them, or is very slow,
// and when it is well again: the daemons of a group, and as many plain clients, one after the other.
func storm(ctx context.Context, t *table, guardClient *guard.Client) error {
	ours, err := stormOfDaemons(ctx, guardClient)
	if err != nil {
		return err
	}
	plain, err := stormOfClients(ctx)
	if err != nil {
		return err
	}
	for i, o := range ours {
		p := plain[i]
		row := func(what string, a, b, goal float64) {
			t.add(fmt.Sprintf("%d clients, %s: %s", stormSize, o.fault, what), fmt.Sprintf("%.2f", a),
				fmt.Sprintf("%.2f of plain clients", b), fmt.Sprintf("<= %g", goal), a <= goal)
		}
		row("connections a second and client", o.rate, p.rate, 1.5)
		row("the most in a second, for each client", float64(o.peak)/stormSize, float64(p.peak)/stormSize, 3)
		t.add(fmt.Sprintf("%d clients, %s: all are back after", stormSize, o.fault), ms(o.back), ms(p.back)+
			" of plain clients", "", true)
	}
	return nil
}

// squall is what one fault has caused.
type squall struct {
	fault string
	rate  float64 // connections a second and client during the fault
	peak  int64   // the most connections in a second, also after its end
	back  time.Duration
}

// squalls causes each fault in turn. back waits until all clients are connected again.
func squalls(ctx context.Context, p *faultproxy.Proxy, back func(context.Context) error) (all []squall, err error) {
	p.SetDelay(2 * time.Second)
	for _, f := range []struct {
		name  string
		begin func()
	}{
		{"all are refused", func() { p.SetMode(faultproxy.Refuse) }},
		{"half are refused", func() { p.SetLimit(stormSize / 2); p.Reset(true) }},
		{"each packet takes 2 s", func() { p.SetMode(faultproxy.Slow) }},
	} {
		s := squall{fault: f.name}
		before := p.Accepted()
		counting, stop := context.WithCancel(ctx)
		peaks := make(chan int64, 1)
		go func() { peaks <- peak(counting, p) }()
		f.begin()
		if err := sleep(ctx, stormLasts); err != nil {
			stop()
			return nil, err
		}
		s.rate = float64(p.Accepted()-before) / stormSize / stormLasts.Seconds()
		ended := time.Now()
		p.SetMode(faultproxy.Pass)
		p.SetLimit(0)
		err := back(ctx)
		s.back = time.Since(ended)
		stop()
		s.peak = <-peaks
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		all = append(all, s)
		if err := sleep(ctx, stormTimeout); err != nil { // what it has caused ends
			return nil, err
		}
	}
	return all, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// peak returns the most connections in a second, until ctx ends.
func peak(ctx context.Context, p *faultproxy.Proxy) (most int64) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	last := p.Accepted()
	for {
		select {
		case <-tick.C:
			now := p.Accepted()
			most, last = max(most, now-last), now
		case <-ctx.Done():
			return most
		}
	}
}

func stormOfDaemons(ctx context.Context, guardClient *guard.Client) ([]squall, error) {
	g, err := newGroup(ctx, zkserver.Options{Tick: tick, MaxSession: 2 * scaleTimeout})
	if err != nil {
		return nil, err
	}
	defer g.close()
	p, err := faultproxy.New(g.server.Addr())
	if err != nil {
		return nil, err
	}
	defer p.Close()
	g.addr, g.guard = p.Addr(), guardClient
	c := &crowd{group: g, sessions: make(map[string]guard.Credentials)}
	for i := range stormSize {
		id := fmt.Sprintf("host-%04d", i)
		if _, err := c.joinUnder(sessionKeeper{c.guard, c, id}, id, "dc1", stormTimeout,
			"ZKELECTD_POLICY_FAILBACK=manual"); err != nil {
			return nil, err
		}
	}
	all := func(ctx context.Context) error { return g.members(ctx, stormSize) }
	if err := all(ctx); err != nil {
		return nil, err
	}
	return squalls(ctx, p, func(ctx context.Context) error {
		if err := all(ctx); err != nil {
			return err
		}
		_, err := c.leader(ctx)
		return err
	})
}

func stormOfClients(ctx context.Context) ([]squall, error) {
	server, err := zkserver.Start(ctx, zkserver.Options{Tick: tick, MaxSession: 2 * scaleTimeout})
	if err != nil {
		return nil, err
	}
	defer server.Stop()
	p, err := faultproxy.New(server.Addr())
	if err != nil {
		return nil, err
	}
	defer p.Close()
	var clients []*zk.Conn
	for range stormSize {
		conn, _, err := zk.Connect([]string{p.Addr()}, stormTimeout, zk.WithLogger(silent{}))
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		clients = append(clients, conn)
	}
	all := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
		defer cancel()
		for _, conn := range clients {
			for conn.State() != zk.StateHasSession {
				if err := sleep(ctx, 20*time.Millisecond); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if err := all(ctx); err != nil {
		return nil, err
	}
	return squalls(ctx, p, all)
}
