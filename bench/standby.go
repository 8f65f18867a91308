package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// slowStart is how long the work of [standbys] takes to start, as a service that fills its caches does.
const slowStart = 20 * time.Second

// standbys measures how long nobody answers after a loss and during a move, for work that starts slowly: as a child
// that starts on the leader, and as one that is promoted there.
func standbys(ctx context.Context, t *table, binary string, rounds int) error {
	for _, kind := range []struct {
		name string
		lose func(g *slowGroup, from, to string) error
	}{
		{"daemon killed", func(g *slowGroup, from, _ string) error {
			pid, err := g.nodes[from].daemon()
			if err != nil {
				return err
			}
			return syscall.Kill(pid, syscall.SIGKILL)
		}},
		{"host lost", func(g *slowGroup, from, _ string) error {
			g.nodes[from].kill()
			g.nodes[from] = nil
			return nil
		}},
		{"move", func(g *slowGroup, _, to string) error {
			if out, err := exec.CommandContext(ctx, binary, "move", "--to", to, "--zk", g.addr, "--root",
				g.paths.Root).CombinedOutput(); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		}},
	} {
		var worst [2]time.Duration
		for i, promotes := range []bool{false, true} {
			var err error
			if worst[i], err = slowLosses(ctx, binary, promotes, rounds, kind.lose); err != nil {
				return fmt.Errorf("%s: %w", kind.name, err)
			}
		}
		t.add(fmt.Sprintf("%s, work that starts in %s, promoted: to next READY, worst of %d", kind.name, slowStart,
			rounds), seconds(worst[1]),
			fmt.Sprintf("%s if it starts on the leader: %.1f times", seconds(worst[0]), share(worst[0], worst[1])), "", true)
	}
	return nil
}

// slowGroup is a group of two nodes whose work starts slowly.
type slowGroup struct {
	*group
	dir      string
	nodes    map[string]*node
	binary   string
	promotes bool
}

// slowLosses loses the leader repeatedly, and returns the longest time until the other node was READY.
func slowLosses(ctx context.Context, binary string, promotes bool, rounds int, lose func(g *slowGroup, from,
	to string) error) (worst time.Duration, err error) {
	inner, err := newGroup(ctx, production)
	if err != nil {
		return 0, err
	}
	defer inner.close()
	g := &slowGroup{group: inner, nodes: make(map[string]*node), binary: binary, promotes: promotes}
	if g.dir, err = os.MkdirTemp("", "bench"); err != nil {
		return 0, err
	}
	defer os.RemoveAll(g.dir)
	defer func() {
		for _, n := range g.nodes {
			if n != nil {
				n.kill()
			}
		}
	}()
	for _, id := range []string{"a", "b"} {
		if err := g.spawnSlow(id); err != nil {
			return 0, err
		}
	}
	for range rounds {
		leader, err := g.steady(ctx)
		if err != nil {
			return 0, err
		}
		to := map[string]string{"a": "b", "b": "a"}[leader]
		began := time.Now()
		if err := lose(g, leader, to); err != nil {
			return 0, err
		}
		if _, err := g.gap(ctx, leader); err != nil {
			return 0, err
		}
		worst = max(worst, time.Since(began))
		if g.nodes[leader] == nil {
			if err := g.spawnSlow(leader); err != nil {
				return 0, err
			}
		}
	}
	return worst, nil
}

// spawnSlow starts a node. Its work is ready when the file with its name has its process id: that of earlier work may
// be left.
func (g *slowGroup) spawnSlow(id string) error {
	file := filepath.Join(g.dir, id)
	ready := fmt.Sprintf("sh,-c,kill -0 $(cat %s)", file)
	env := []string{"ZKELECTD_POLICY_FAILBACK=manual", "ZKELECTD_CHILD_READY_EXEC=" + ready,
		"ZKELECTD_CHILD_READY_TIMEOUT=1m"}
	if g.promotes {
		env = append(env, "ZKELECTD_CHILD_PROMOTE_EXEC=true", "ZKELECTD_CHILD_DEMOTE_EXEC=true",
			"ZKELECTD_CHILD_WARM_EXEC="+ready)
	}
	script := fmt.Sprintf(`sleep %d; echo $$ >%s; exec sleep 100000`, int(slowStart.Seconds()), file)
	n, err := g.spawnWork(g.addr, g.binary, id, 6*time.Second, []string{"sh", "-c", script}, env...)
	g.nodes[id] = n
	return err
}

// steady waits until a node leads and the other one can take over, and returns the leader.
func (g *slowGroup) steady(ctx context.Context) (leader string, err error) {
	if err := g.members(ctx, 2); err != nil {
		return "", err
	}
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		out, err := exec.CommandContext(ctx, g.binary, "leader", "--zk", g.addr, "--root", g.paths.Root).Output()
		warm := 0
		for id := range g.nodes {
			data, _ := os.ReadFile(filepath.Join(g.dir, id))
			if pid, _ := strconv.Atoi(strings.TrimSpace(string(data))); pid > 0 && syscall.Kill(pid, 0) == nil {
				warm++
			}
		}
		if err == nil && len(out) > 0 && (warm == 2 || !g.promotes) {
			tick.Stop()
			return string(out[:1]), nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
			return "", ctx.Err()
		}
	}
}
