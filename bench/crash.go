package main

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"

	"zkelectd/internal/test/zkserver"
)

// pair starts two nodes, a and b; a leads.
func pair(ctx context.Context, g *group, binary string, timeout time.Duration, env ...string,
) (map[string]*node, error) {
	nodes := make(map[string]*node)
	for _, id := range []string{"a", "b"} {
		var err error
		if nodes[id], err = g.spawn(binary, id, timeout, env...); err != nil {
			return nodes, err
		}
		if err := g.members(ctx, len(nodes)); err != nil {
			return nodes, err
		}
		if err := g.leads(ctx, "a"); err != nil {
			return nodes, err
		}
	}
	return nodes, nil
}

// killedDaemon measures the time from kill -9 of the leader's daemon until the next leader is READY. The guard kills
// the child and closes the session, so the time does not depend on the session timeout.
func killedDaemon(ctx context.Context, t *table, binary string, rounds int) error {
	const timeout = 10 * time.Second
	g, err := newGroup(ctx, zkserver.Options{})
	if err != nil {
		return err
	}
	defer g.close()
	// Without failback, the new leader stays.
	nodes, err := pair(ctx, g, binary, timeout, "ZKELECTD_POLICY_FAILBACK=manual")
	defer func() {
		for _, n := range nodes {
			n.kill()
		}
	}()
	if err != nil {
		return err
	}
	var whole []time.Duration
	for i := range rounds {
		leader := []string{"a", "b"}[i%2]
		daemon, err := nodes[leader].daemon()
		if err != nil {
			return err
		}
		began := time.Now()
		syscall.Kill(daemon, syscall.SIGKILL)
		if _, err := g.gap(ctx, leader); err != nil {
			return err
		}
		whole = append(whole, time.Since(began))
		// Start a new guard, since the old one delays the restarts of a daemon that keeps dying.
		nodes[leader].stop()
		if nodes[leader], err = g.spawn(binary, leader, timeout, "ZKELECTD_POLICY_FAILBACK=manual"); err != nil {
			return err
		}
		if err := g.members(ctx, 2); err != nil {
			return err
		}
	}
	slices.Sort(whole)
	p99 := quantile(whole, 0.99)
	t.add(fmt.Sprintf("daemon killed with -9 to next READY, p50 of %d", rounds), ms(quantile(whole, 0.5)),
		"session timeout "+timeout.String(), "", true)
	t.add("daemon killed with -9 to next READY, p99", ms(p99), fmt.Sprintf("%.3f of the session timeout",
		float64(p99)/float64(timeout)), "<= 250 ms", p99 <= 250*time.Millisecond)
	return nil
}
