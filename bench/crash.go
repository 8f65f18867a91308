package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"zkelectd/internal/zkserver"
)

// node is a zkelectd process.
type node struct{ cmd *exec.Cmd }

func (g *group) spawn(binary, id string, timeout time.Duration) (*node, error) {
	cmd := exec.Command(binary, "run", "--zk", g.server.Addr(), "--root", g.paths.Root, "--id", id, "--session-timeout", timeout.String(),
		"--log-level", "error", "--", "sleep", "100000")
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), "ZKELECTD_CHILD_STOP_TIMEOUT=100ms")
	return &node{cmd}, cmd.Start()
}

func (n *node) kill() {
	n.cmd.Process.Signal(syscall.SIGKILL)
	n.cmd.Wait()
}

// crash measures what follows when the ephemerals of a leader that was killed with -9 vanish: the time until the next
// is READY. The time before that is the session timeout.
func crash(ctx context.Context, t *table, binary string, rounds int) error {
	const timeout = time.Second
	g, err := newGroup(ctx, zkserver.Options{})
	if err != nil {
		return err
	}
	defer g.close()
	names := []string{"a", "b"}
	nodes := make(map[string]*node)
	defer func() {
		for _, n := range nodes {
			n.kill()
		}
	}()
	for _, id := range names {
		if nodes[id], err = g.spawn(binary, id, timeout); err != nil {
			return err
		}
		if err := g.members(ctx, len(nodes)); err != nil {
			return err
		}
	}
	if err := g.leads(ctx, "a"); err != nil {
		return err
	}
	var gaps, whole []time.Duration
	for i := range rounds {
		leader, next := names[i%2], names[(i+1)%2]
		began := time.Now()
		nodes[leader].kill()
		gap, err := g.gap(ctx, leader)
		if err != nil {
			return err
		}
		gaps, whole = append(gaps, gap), append(whole, time.Since(began))
		if nodes[leader], err = g.spawn(binary, leader, timeout); err != nil {
			return err
		}
		if err := g.members(ctx, 2); err != nil {
			return err
		}
		if err := g.leads(ctx, next); err != nil {
			return err
		}
	}
	slices.Sort(gaps)
	slices.Sort(whole)
	t.add(fmt.Sprintf("crash, ephemerals removed to READY, p50 of %d", rounds), ms(quantile(gaps, 0.5)), "kill -9 to READY: "+ms(quantile(whole, 0.5))+", session timeout "+timeout.String(), "", true)
	t.add("crash, ephemerals removed to READY, p99", ms(quantile(gaps, 0.99)), fmt.Sprintf("%.3f of the whole failover", float64(quantile(gaps, 0.99))/float64(quantile(whole, 0.99))), "", true)
	return nil
}

// idle measures what a daemon costs while nothing happens, as a leader and as a standby.
func idle(ctx context.Context, t *table, binary string) error {
	const span = 20 * time.Second
	g, err := newGroup(ctx, zkserver.Options{})
	if err != nil {
		return err
	}
	defer g.close()
	var nodes []*node
	for i, id := range []string{"leader", "standby"} {
		n, err := g.spawn(binary, id, 6*time.Second)
		if err != nil {
			return err
		}
		defer n.kill()
		nodes = append(nodes, n)
		if err := g.members(ctx, i+1); err != nil {
			return err
		}
	}
	if err := g.leads(ctx, "leader"); err != nil {
		return err
	}
	before := []float64{nodes[0].cpu(), nodes[1].cpu()}
	select {
	case <-time.After(span):
	case <-ctx.Done():
		return ctx.Err()
	}
	for i, role := range []string{"leader", "standby"} {
		percent := (nodes[i].cpu() - before[i]) / span.Seconds() * 100
		rss := nodes[i].rss()
		t.add("idle "+role+", resident memory", fmt.Sprintf("%.1f MB", rss), "", "<= 25 MB", rss <= 25)
		t.add("idle "+role+", processor", fmt.Sprintf("%.2f %% of a core", percent), fmt.Sprintf("over %s", span), "<= 0.2 %", percent <= 0.2)
	}
	return nil
}

// cpu is the processor time used so far, in seconds, in ticks of 10 ms.
func (n *node) cpu() float64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / 100
}

// rss is the resident memory in MB.
func (n *node) rss() float64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		var kb float64
		if _, err := fmt.Sscanf(line, "VmRSS: %f kB", &kb); err == nil {
			return kb / 1024
		}
	}
	return 0
}
