package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"zkelectd/internal/sys/procinfo"
	"zkelectd/internal/test/process"
)

// node is a running zkelectd; cmd is its guard.
type node struct{ cmd *exec.Cmd }

// spawn starts a node with a trivial child. Its site is named after it.
func (g *group) spawn(binary, id string, timeout time.Duration, env ...string) (*node, error) {
	return g.spawnAt(g.server.Addr(), binary, id, timeout, env...)
}

// spawnAt is spawn with another address of the server.
func (g *group) spawnAt(addr, binary, id string, timeout time.Duration, env ...string) (*node, error) {
	return g.spawnWork(addr, binary, id, timeout, []string{"sleep", "100000"}, env...)
}

// spawnWork is spawnAt with another child.
func (g *group) spawnWork(addr, binary, id string, timeout time.Duration, child []string,
	env ...string) (*node, error) {
	return g.spawnHost(addr, binary, hostSpec{id: id, site: id}, timeout, child, env...)
}

// spawnHost is spawnWork with the host's site and priority.
func (g *group) spawnHost(addr, binary string, h hostSpec, timeout time.Duration, child []string,
	env ...string) (*node, error) {
	level := "error"
	if *logs != "" {
		level = "info"
	}
	cmd := exec.Command(binary, append([]string{"run", "--zk", addr, "--root", g.paths.Root, "--id", h.id,
		"--site", h.site,
		"--session-timeout", timeout.String(), "--log-level", level, "--"}, child...)...)
	cmd.Env = append(append(os.Environ(), "ZKELECTD_CHILD_STOP_TIMEOUT=100ms"), env...)
	if h.priority != 0 {
		cmd.Env = append(cmd.Env, fmt.Sprintf("ZKELECTD_NODE_PRIORITY=%d", h.priority))
	}
	switch {
	case *logs != "":
		f, err := os.OpenFile(filepath.Join(*logs, strings.Trim(g.paths.Root, "/")+"-"+h.id+".log"),
			os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		cmd.Stderr = f
	case *verbose:
		cmd.Stderr = os.Stderr
	}
	return &node{cmd}, cmd.Start()
}

// below returns the child of a process whose command line pick accepts.
func below(parent int, pick func(args []string) bool) (int, error) {
	all := processes(parent, pick)
	if len(all) == 0 {
		return 0, fmt.Errorf("process %d has no such child", parent)
	}
	return all[0], nil
}

// processes returns the children of a process whose command line pick accepts.
func processes(parent int, pick func(args []string) bool) (all []int) {
	for _, pid := range process.Children(parent) {
		if args := process.CommandLine(pid); args != nil && pick(args) {
			all = append(all, pid)
		}
	}
	return all
}

func (n *node) daemon() (int, error) { return n.helper("daemon") }

func (n *node) helper(argument string) (int, error) {
	return below(n.cmd.Process.Pid, func(args []string) bool { return len(args) > 1 && args[1] == argument })
}

func (n *node) child() (int, error) {
	keeper, err := n.helper("keeper")
	if err != nil {
		return 0, err
	}
	return below(keeper, func(args []string) bool { return args[0] == "sleep" })
}

// tree returns a process and all that descend from it.
func tree(pid int) []int {
	all := []int{pid}
	for _, child := range processes(pid, func([]string) bool { return true }) {
		all = append(all, tree(child)...)
	}
	return all
}

// kill kills all processes of zkelectd, as the loss of its host does: its session stays open.
func (n *node) kill() {
	n.cmd.Process.Signal(syscall.SIGSTOP)
	if pid, err := n.daemon(); err == nil {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	n.cmd.Process.Signal(syscall.SIGKILL)
	n.cmd.Wait()
}

// stop stops the node with SIGTERM.
func (n *node) stop() {
	n.cmd.Process.Signal(syscall.SIGTERM)
	n.cmd.Wait()
}

// gone waits until a process is dead.
func gone(ctx context.Context, pid int) error {
	tick := time.NewTicker(500 * time.Microsecond)
	defer tick.Stop()
	for {
		if s, err := procinfo.ReadStat(pid); err != nil || s.Ended() {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// cpu returns the processor time that a process has used so far, in seconds. A tick is 10 ms.
func cpu(pid int) float64 {
	s, err := procinfo.ReadStat(pid)
	if err != nil {
		return 0
	}
	return float64(s.Ticks) / 100
}

// rss returns the resident memory of a process in MB.
func rss(pid int) float64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
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
