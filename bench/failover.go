package main

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/faultproxy"
	"zkelectd/internal/zkserver"
)

// tick is what production servers have by default: a session ends up to a tick after its timeout.
const tick = 2 * time.Second

// production is a server with that tick, which takes shorter sessions than it would by default.
var production = zkserver.Options{Tick: tick, MinSession: time.Second}

// failover measures what each way of losing the leader costs: from the loss to the next READY, and how long the old one's
// work goes on.
func failover(ctx context.Context, t *table, binary string, rounds int) error {
	for _, part := range []func() error{
		func() error { return stoppedHost(ctx, t, binary, rounds) },
		func() error { return cutOff(ctx, t, binary, max(3, rounds/10)) },
	} {
		if err := part(); err != nil {
			return err
		}
	}
	for _, timeout := range []time.Duration{2 * time.Second, 4 * time.Second, 6 * time.Second, 10 * time.Second, 20 * time.Second} {
		if err := lostAfter(ctx, t, binary, timeout, max(2, rounds/15)); err != nil {
			return fmt.Errorf("session timeout %s: %w", timeout, err)
		}
	}
	return nil
}

// stoppedHost stops the leader as an operator does.
func stoppedHost(ctx context.Context, t *table, binary string, rounds int) error {
	const timeout = 6 * time.Second
	whole, err := losses(ctx, binary, timeout, rounds, func(_ *faultproxy.Proxy, n *node) { n.cmd.Process.Signal(syscall.SIGTERM) }, nil)
	if err != nil {
		return err
	}
	p50 := quantile(whole, 0.5)
	t.add(fmt.Sprintf("leader stopped (SIGTERM) to next READY, p50 of %d", rounds), ms(p50), fmt.Sprintf("%.4f of the session timeout of %s", share(p50, timeout), timeout), "", true)
	t.add("leader stopped (SIGTERM) to next READY, worst", ms(whole[rounds-1]), fmt.Sprintf("%.4f of the session timeout", share(whole[rounds-1], timeout)), "", true)
	return nil
}

// lostAfter loses the leader's host: what is left is the session, until the server ends it.
func lostAfter(ctx context.Context, t *table, binary string, timeout time.Duration, rounds int) error {
	whole, err := losses(ctx, binary, timeout, rounds, func(_ *faultproxy.Proxy, n *node) { n.kill() }, nil)
	if err != nil {
		return err
	}
	worst := whole[rounds-1]
	most := longest(timeout)
	t.add(fmt.Sprintf("host lost, session timeout %s: loss to next READY, worst of %d", timeout, rounds), seconds(worst),
		fmt.Sprintf("%.2f of timeout, tick and lease wait (%s)", share(worst, most), seconds(most)), "<= 1.1", worst <= most*11/10)
	return nil
}

// cutOff cuts the leader off from the servers, while it and its child live.
func cutOff(ctx context.Context, t *table, binary string, rounds int) error {
	const timeout = 6 * time.Second
	lease := cluster.Lease(timeout)
	var dead []time.Duration
	whole, err := losses(ctx, binary, timeout, rounds, func(l *faultproxy.Proxy, _ *node) { l.SetMode(faultproxy.BlackHole) }, &dead)
	if err != nil {
		return err
	}
	slices.Sort(dead)
	worst, after := whole[rounds-1], dead[rounds-1]
	t.add(fmt.Sprintf("leader cut off: its work dead, worst of %d", rounds), seconds(after), fmt.Sprintf("%.2f of the lease of %s", share(after, lease), lease), "<= 1", after <= lease)
	most := longest(timeout)
	t.add("leader cut off: loss to next READY, worst", seconds(worst), fmt.Sprintf("%.2f of timeout, tick and lease wait (%s)", share(worst, most), seconds(most)), "<= 1.1", worst <= most*11/10)
	return nil
}

// longest is how long a leader may be missed that can't release: until the server ends its session, and until every lease is
// over.
func longest(timeout time.Duration) time.Duration { return timeout + tick + cluster.LeaseWait(timeout) }

// trust measures what it costs not to take the end of a session for the end of the work, for each loss that ends a session.
func trust(ctx context.Context, t *table, binary string, rounds int) error {
	for _, loss := range []struct {
		name string
		lose func(*faultproxy.Proxy, *node)
	}{
		{"daemon killed", func(_ *faultproxy.Proxy, n *node) { kill(n) }},
		{"host lost", func(_ *faultproxy.Proxy, n *node) { n.kill() }},
		{"leader cut off", func(l *faultproxy.Proxy, _ *node) { l.SetMode(faultproxy.BlackHole) }},
	} {
		for _, timeout := range []time.Duration{4 * time.Second, 6 * time.Second, 10 * time.Second} {
			var p50 [2]time.Duration
			for i, setting := range []string{"false", "true"} {
				whole, err := losses(ctx, binary, timeout, rounds, loss.lose, nil, "ZKELECTD_ELECTION_TRUST_SESSION_END="+setting)
				if err != nil {
					return fmt.Errorf("%s, session timeout %s: %w", loss.name, timeout, err)
				}
				p50[i] = quantile(whole, 0.5)
			}
			t.add(fmt.Sprintf("%s, session timeout %s: loss to next READY, p50 of %d", loss.name, timeout, rounds), seconds(p50[0]),
				fmt.Sprintf("%.2f of %s with trust_session_end", share(p50[0], p50[1]), seconds(p50[1])), "", true)
		}
	}
	return nil
}

// kill kills the daemon alone: its guard lives.
func kill(n *node) {
	if pid, err := n.daemon(); err == nil {
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

// losses loses the leader of two, again and again, and returns how long it took until the other was READY, sorted. With
// dead it also notes after how long the old leader's child was dead.
func losses(ctx context.Context, binary string, timeout time.Duration, rounds int, lose func(*faultproxy.Proxy, *node), dead *[]time.Duration, env ...string) ([]time.Duration, error) {
	env = append(env, "ZKELECTD_ELECTION_FAILBACK_MODE=manual") // the leader stays
	g, err := newGroup(ctx, production)
	if err != nil {
		return nil, err
	}
	defer g.close()
	nodes, proxies := make(map[string]*node), make(map[string]*faultproxy.Proxy)
	start := func(id string) error {
		var err error
		if proxies[id], err = faultproxy.New(g.server.Addr()); err != nil {
			return err
		}
		nodes[id], err = g.spawnAt(fmt.Sprintf("127.0.0.1:%d", proxies[id].Port()), binary, id, timeout, env...)
		return err
	}
	end := func(id string) {
		if nodes[id] != nil {
			nodes[id].kill()
		}
		if proxies[id] != nil {
			proxies[id].Close()
		}
	}
	defer end("a")
	defer end("b")
	if err := start("a"); err != nil {
		return nil, err
	}
	if err := g.leads(ctx, "a"); err != nil {
		return nil, err
	}
	if err := start("b"); err != nil {
		return nil, err
	}
	var whole []time.Duration
	for i := range rounds {
		leader := []string{"a", "b"}[i%2]
		if err := g.members(ctx, 2); err != nil {
			return nil, err
		}
		child, err := nodes[leader].child()
		if err != nil {
			return nil, err
		}
		began := time.Now()
		lose(proxies[leader], nodes[leader])
		if dead != nil {
			if err := gone(ctx, child); err != nil {
				return nil, err
			}
			*dead = append(*dead, time.Since(began))
		}
		if _, err := g.gap(ctx, leader); err != nil {
			return nil, err
		}
		whole = append(whole, time.Since(began))
		end(leader)
		if err := start(leader); err != nil {
			return nil, err
		}
	}
	slices.Sort(whole)
	return whole, nil
}

func share(d, of time.Duration) float64 { return float64(d) / float64(of) }

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
