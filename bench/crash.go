package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"syscall"
	"time"

	"zkelectd/internal/boottime"
	"zkelectd/internal/cluster"
	"zkelectd/internal/status"
	"zkelectd/internal/test/zkserver"
)

// pair starts two nodes, a and b; a leads.
func pair(ctx context.Context, g *group, binary string, timeout time.Duration, env ...string) (map[string]*node, error) {
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

// killedDaemon measures the time from kill -9 of the leader's daemon until the next leader is READY. The guard kills the child and
// closes the session, so the time does not depend on the session timeout.
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
	t.add(fmt.Sprintf("daemon killed with -9 to next READY, p50 of %d", rounds), ms(quantile(whole, 0.5)), "session timeout "+timeout.String(), "", true)
	t.add("daemon killed with -9 to next READY, p99", ms(p99), fmt.Sprintf("%.3f of the session timeout", float64(p99)/float64(timeout)), "<= 250 ms", p99 <= 250*time.Millisecond)
	return nil
}

// stoppedDaemon measures how long after the end of the lease the child is dead if its daemon is stopped by SIGSTOP.
func stoppedDaemon(ctx context.Context, t *table, binary string, rounds int) error {
	const timeout = 2 * time.Second
	g, err := newGroup(ctx, zkserver.Options{})
	if err != nil {
		return err
	}
	defer g.close()
	const api = "127.0.0.1:17979"
	n, err := g.spawn(binary, "a", timeout, "ZKELECTD_HTTP_LISTEN="+api)
	if err != nil {
		return err
	}
	defer n.kill()
	var late []time.Duration
	var term int64
	for range rounds {
		// The guard has replaced the stopped daemon of the round before.
		if err := g.until(ctx, func(c cluster.Stored[cluster.Current], _ time.Time) bool {
			later := c.Readable() && c.Record.State == cluster.CurrentReady && c.Record.Term > term
			if later {
				term = c.Record.Term
			}
			return later
		}); err != nil {
			return err
		}
		daemon, err := n.daemon()
		if err != nil {
			return err
		}
		child, err := n.child()
		if err != nil {
			return err
		}
		ends, err := leaseEnd(ctx, api)
		if err != nil {
			return err
		}
		syscall.Kill(daemon, syscall.SIGSTOP)
		if err := gone(ctx, child); err != nil {
			return err
		}
		late = append(late, boottime.Now()-ends)
	}
	slices.Sort(late)
	worst := late[len(late)-1]
	t.add(fmt.Sprintf("daemon stopped: child dead after the lease's end, p50 of %d", rounds), ms(quantile(late, 0.5)), "lease "+(timeout*45/100).String(), "", true)
	t.add("daemon stopped: child dead after the lease's end, worst", ms(worst), fmt.Sprintf("%.3f of the lease", float64(worst)/float64(timeout*45/100)), "<= 100 ms", worst <= 100*time.Millisecond)
	return nil
}

// leaseEnd asks a daemon when its lease ends.
func leaseEnd(ctx context.Context, api string) (time.Duration, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+api+"/leader", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var d status.Daemon
	if err := json.NewDecoder(resp.Body).Decode(&d); err != nil {
		return 0, err
	}
	return boottime.Now() + time.Duration(d.LeaseRemaining), nil
}

// lostHost measures the time from the removal of the ephemerals of a leader whose host is lost until the next leader is READY. The
// time before that is the session timeout, since no process closes the session.
func lostHost(ctx context.Context, t *table, binary string, rounds int) error {
	const timeout = 2 * time.Second
	g, err := newGroup(ctx, zkserver.Options{})
	if err != nil {
		return err
	}
	defer g.close()
	nodes, err := pair(ctx, g, binary, timeout, "ZKELECTD_POLICY_FAILBACK=manual")
	defer func() {
		for _, n := range nodes {
			n.kill()
		}
	}()
	if err != nil {
		return err
	}
	var gaps, whole []time.Duration
	for i := range rounds {
		leader := []string{"a", "b"}[i%2]
		began := time.Now()
		nodes[leader].kill()
		gap, err := g.gap(ctx, leader)
		if err != nil {
			return err
		}
		gaps, whole = append(gaps, gap), append(whole, time.Since(began))
		if nodes[leader], err = g.spawn(binary, leader, timeout, "ZKELECTD_POLICY_FAILBACK=manual"); err != nil {
			return err
		}
		if err := g.members(ctx, 2); err != nil {
			return err
		}
	}
	slices.Sort(gaps)
	slices.Sort(whole)
	t.add(fmt.Sprintf("host lost: ephemerals removed to READY, p50 of %d", rounds), ms(quantile(gaps, 0.5)), "loss to READY: "+ms(quantile(whole, 0.5))+", session timeout "+timeout.String(), "", true)
	t.add("host lost: ephemerals removed to READY, p99", ms(quantile(gaps, 0.99)), fmt.Sprintf("%.3f of the whole failover", float64(quantile(gaps, 0.99))/float64(quantile(whole, 0.99))), "", true)
	return nil
}
