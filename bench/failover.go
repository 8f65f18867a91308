package main

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/test/faultproxy"
	"zkelectd/internal/test/zkserver"
)

// tick is the default of production servers: a session ends up to a tick after its timeout.
const tick = 2 * time.Second

// production is a server with that tick that grants shorter session timeouts than by default.
var production = zkserver.Options{Tick: tick, MinSession: time.Second}

// failover measures, for each way of losing the leader, the time from the loss to the next READY, and how long the work
// of the old leader continues.
func failover(ctx context.Context, t *table, binary string, rounds int) error {
	for _, part := range []func() error{
		func() error { return stoppedHost(ctx, t, binary, rounds) },
		func() error { return cutOff(ctx, t, binary, max(3, rounds/10)) },
	} {
		if err := part(); err != nil {
			return err
		}
	}
	for _, timeout := range []time.Duration{2 * time.Second, 4 * time.Second, 6 * time.Second, 10 * time.Second,
		20 * time.Second} {
		if err := lostAfter(ctx, t, binary, timeout, max(2, rounds/15)); err != nil {
			return fmt.Errorf("session timeout %s: %w", timeout, err)
		}
	}
	return nil
}

// stoppedHost stops the leader with SIGTERM.
func stoppedHost(ctx context.Context, t *table, binary string, rounds int) error {
	const timeout = 6 * time.Second
	whole, _, err := losses(ctx, lossOptions{
		binary: binary, timeout: timeout, rounds: rounds, lose: func(_ *faultproxy.Proxy, n *node) {
			n.cmd.Process.Signal(syscall.SIGTERM)
		}, ends: true,
	})
	if err != nil {
		return err
	}
	p50 := quantile(whole, 0.5)
	t.add(fmt.Sprintf("leader stopped (SIGTERM) to next READY, p50 of %d", rounds), ms(p50),
		fmt.Sprintf("%.4f of the session timeout of %s", share(p50, timeout), timeout), "", true)
	t.add("leader stopped (SIGTERM) to next READY, worst", ms(whole[rounds-1]),
		fmt.Sprintf("%.4f of the session timeout", share(whole[rounds-1], timeout)), "", true)
	return nil
}

// lostAfter kills all processes of the leader's host at once: its session remains until the server ends it. lostHosts
// compares with locks.
func lostAfter(ctx context.Context, t *table, binary string, timeout time.Duration, rounds int) error {
	whole, _, err := losses(ctx, lossOptions{
		binary: binary, timeout: timeout, rounds: rounds, lose: func(_ *faultproxy.Proxy, n *node) { n.kill() },
	})
	if err != nil {
		return err
	}
	worst := whole[rounds-1]
	t.add(fmt.Sprintf("host lost, session timeout %s: loss to next READY, worst of %d", timeout, rounds), seconds(worst),
		fmt.Sprintf("%.2f of the session timeout", share(worst, timeout)), lostGoal, share(worst, timeout) <= 0.75)
	return nil
}

// cutOff disconnects the leader from the servers; the leader and its child keep running.
func cutOff(ctx context.Context, t *table, binary string, rounds int) error {
	const timeout = 6 * time.Second
	lease := cluster.Lease(timeout)
	whole, dead, err := losses(ctx, lossOptions{
		binary: binary, timeout: timeout, rounds: rounds, lose: func(p *faultproxy.Proxy,
			_ *node) {
			p.SetMode(faultproxy.BlackHole)
		},
		measureChild: true,
	})
	if err != nil {
		return err
	}
	worst, after := whole[rounds-1], dead[rounds-1]
	t.add(fmt.Sprintf("leader cut off: its work dead, worst of %d", rounds), seconds(after),
		fmt.Sprintf("%.2f of the lease of %s", share(after, lease), lease), "<= 1", after <= lease)
	t.add("leader cut off: loss to next READY, worst", seconds(worst), fmt.Sprintf("%.2f of the session timeout",
		share(worst, timeout)), lostGoal, share(worst, timeout) <= 0.75)
	return nil
}

// lostGoal is how long a group may be without a leader if it cannot release, with the elector lost as well.
const lostGoal = "<= 0.75 of it"

// lossOptions configure [losses].
type lossOptions struct {
	binary  string
	timeout time.Duration // of the sessions
	rounds  int
	// lose makes the leader fail.
	lose func(*faultproxy.Proxy, *node)
	// ends says that the leader ends by itself. It is given the time to leave, as a host that is shut down is.
	ends bool
	// measureChild measures how long the child of the old leader lives.
	measureChild bool
}

// losses loses the leader of two nodes repeatedly. It returns the sorted times until the other node was READY and, with
// measureChild, the times until the old leader's child was dead.
func losses(ctx context.Context, opt lossOptions) (whole, dead []time.Duration, err error) {
	g, err := newGroup(ctx, production)
	if err != nil {
		return nil, nil, err
	}
	defer g.close()
	nodes := make(map[string]*proxiedNode)
	defer func() {
		for _, n := range nodes {
			n.close()
		}
	}()
	if nodes["a"], err = g.spawnProxied(opt, "a"); err != nil {
		return nil, nil, err
	}
	if err := g.leads(ctx, "a"); err != nil {
		return nil, nil, err
	}
	if nodes["b"], err = g.spawnProxied(opt, "b"); err != nil {
		return nil, nil, err
	}
	for i := range opt.rounds {
		leader := []string{"a", "b"}[i%2]
		if err := g.members(ctx, 2); err != nil {
			return nil, nil, err
		}
		if err := g.awaitHeir(ctx, leader, []string{"b", "a"}[i%2], 1); err != nil {
			return nil, nil, err
		}
		ready, childDead, err := g.loseLeader(ctx, opt, leader, nodes[leader])
		if err != nil {
			return nil, nil, err
		}
		whole, dead = append(whole, ready), append(dead, childDead)
		if opt.ends {
			nodes[leader].cmd.Wait()
		}
		nodes[leader].close()
		if err := g.incarnations(ctx, func(count int) bool { return count == 1 }); err != nil {
			return nil, nil, err
		}
		if nodes[leader], err = g.spawnProxied(opt, leader); err != nil {
			return nil, nil, err
		}
	}
	slices.Sort(whole)
	slices.Sort(dead)
	return whole, dead, nil
}

// loseLeader makes the leader fail, and returns the times until the next leader was READY and until its child was dead.
func (g *group) loseLeader(ctx context.Context, opt lossOptions, id string, n *proxiedNode) (ready,
	childDead time.Duration, err error) {
	child, err := n.child()
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	opt.lose(n.proxy, n.node)
	if opt.measureChild {
		if err := gone(ctx, child); err != nil {
			return 0, 0, err
		}
		childDead = time.Since(began)
	}
	_, err = g.gap(ctx, id)
	return time.Since(began), childDead, err
}

// proxiedNode is a node that reaches the server through a proxy.
type proxiedNode struct {
	*node
	proxy *faultproxy.Proxy
}

func (g *group) spawnProxied(opt lossOptions, id string) (*proxiedNode, error) {
	proxy, err := faultproxy.New(g.server.Addr())
	if err != nil {
		return nil, err
	}
	const stays = "ZKELECTD_POLICY_FAILBACK=manual" // as the leader
	n, err := g.spawnAt(fmt.Sprintf("127.0.0.1:%d", proxy.Port()), opt.binary, id, opt.timeout, stays)
	if err != nil {
		proxy.Close()
		return nil, err
	}
	return &proxiedNode{n, proxy}, nil
}

// close kills the node as if its host was lost, and closes the proxy.
func (n *proxiedNode) close() {
	if n != nil {
		n.kill()
		n.proxy.Close()
	}
}

func share(d, of time.Duration) float64 { return float64(d) / float64(of) }

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
