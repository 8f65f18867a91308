package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"zkelectd/internal/procinfo"
)

// The three processes of zkelectd that can end its work, and the work itself.
const (
	guardProcess  = "guard"
	keeperProcess = "keeper"
	daemonProcess = "daemon"
	childProcess  = "child"
)

var actors = []string{guardProcess, keeperProcess, daemonProcess}

// pids are the node's processes by name, without those that are not there.
func (n *node) pids() map[string]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := make(map[string]int)
	if n.pid == 0 {
		return all
	}
	all[guardProcess] = n.pid
	for _, pid := range childrenOf(n.pid) {
		if args := arguments(pid); len(args) > 1 && (args[1] == daemonProcess || args[1] == keeperProcess) {
			all[args[1]] = pid
		}
	}
	if keeper := all[keeperProcess]; keeper != 0 {
		for _, pid := range childrenOf(keeper) {
			if args := arguments(pid); len(args) == 1 && args[0] == self {
				all[childProcess] = pid
			}
		}
	}
	return all
}

func childrenOf(pid int) (all []int) {
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil
	}
	for _, list := range lists {
		data, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended
		}
		for field := range strings.FieldsSeq(string(data)) {
			if child, err := strconv.Atoi(field); err == nil {
				all = append(all, child)
			}
		}
	}
	return all
}

// arguments are a process' program and arguments.
func arguments(pid int) []string {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
}

// running reports whether a process neither is stopped nor has ended.
func running(pid int) bool {
	s, err := procinfo.ReadStat(pid)
	return err == nil && !s.Ended() && s.State != 'T' && s.State != 't'
}

// lately is for how long what was done to a node counts as done at the same time as what follows.
const lately = time.Second

// hidden reports whether the work of the node has, or may have, processes that have left its group and session.
func (n *node) hidden() bool {
	for _, manners := range []string{daemonizes, forks} {
		if _, err := os.Stat(mannersFile(n.f.dir, manners, n.id)); err == nil {
			return true
		}
	}
	if time.Since(n.asked) < lately {
		return true // a child may have read it just before
	}
	pids, err := n.memory.Pids()
	return err != nil || slices.ContainsFunc(pids, func(pid int) bool {
		args := arguments(pid)
		return len(args) > 1 && (args[1] == daemonizeArgument || args[1] == grandchildArgument || filepath.Base(args[1]) == forkScript)
	})
}

// promised reports whether docs/safety.md promises that the node's work ends although these of its processes are killed, or
// stand still, on top of what was done to it before (What is not promised):
//   - One of guard, keeper and daemon goes on. If all are killed, only the work's main process dies, and with it what a PID
//     namespace holds; if all stand still, nothing does.
//   - Without guard and keeper the daemon can't find what has left the group and the session, unless a control group or a PID
//     namespace holds it. A guard that dies just after its keeper may have killed the daemon already.
func (n *node) promised(killed, still []string) bool {
	pids := n.pids()
	acting := 0
	for _, who := range actors {
		if pid := pids[who]; pid != 0 && running(pid) && !n.starved[pid] && !slices.Contains(killed, who) && !slices.Contains(still, who) {
			acting++
		}
	}
	if n.containment == "pidns" && slices.Contains(killed, keeperProcess) {
		return true
	}
	if _, kept := pids[keeperProcess]; !kept && time.Since(n.killed[keeperProcess]) > lately {
		return true // nothing works before there is a keeper
	}
	hidden := n.hidden()
	if acting == 0 && (len(still) > 0 || len(killed) < len(actors) || hidden) {
		return false
	}
	if !hidden {
		return true
	}
	loses := func(who string) bool { return slices.Contains(killed, who) }
	before := func(who string) bool { return time.Since(n.killed[who]) < lately }
	switch {
	case loses(guardProcess) && before(keeperProcess), loses(keeperProcess) && before(guardProcess):
		return false
	case loses(guardProcess) && loses(keeperProcess):
		return n.containment == "cgroup"
	}
	return true
}

// kill kills some of a node's processes at the same moment, and reports whether it did.
func (n *node) kill(who ...string) (done bool) {
	if !n.promised(who, nil) {
		return false
	}
	pids := n.pids()
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		for _, name := range who {
			if pid := pids[name]; pid != 0 {
				syscall.Kill(pid, sig)
				n.killed[name], done = time.Now(), true
			}
		}
	}
	return done
}

// stop stops some of a node's processes, and returns what has them go on, nil if they are not there or have to act.
func (n *node) stop(who ...string) func() {
	pids := n.pids()
	if !n.promised(nil, who) {
		return nil
	}
	var stopped []int
	for _, name := range who {
		if pid := pids[name]; pid != 0 {
			syscall.Kill(pid, syscall.SIGSTOP)
			stopped = append(stopped, pid)
		}
	}
	if len(stopped) == 0 {
		return nil
	}
	return func() {
		for _, pid := range stopped {
			syscall.Kill(pid, syscall.SIGCONT)
		}
	}
}
