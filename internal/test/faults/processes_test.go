package faults

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"zkelectd/internal/sys/procinfo"
	"zkelectd/internal/test/process"
)

// The three processes of zkelectd, each of which can kill the work, and the work itself.
const (
	guardProcess  = process.Guard
	keeperProcess = process.Keeper
	daemonProcess = process.Daemon
	childProcess  = "child"
)

var zkelectdProcesses = []string{guardProcess, keeperProcess, daemonProcess}

// pids returns the node's running processes by name. With several groups there may be several keepers and children.
func (n *node) pids() map[string][]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.pid == 0 {
		return nil
	}
	all := process.Of(n.pid)
	for _, keeper := range all[keeperProcess] {
		for _, pid := range process.Children(keeper) {
			if args := process.CommandLine(pid); len(args) == 3 && (args[1] == childArgument || args[1] == standbyArgument) {
				all[childProcess] = append(all[childProcess], pid)
			}
		}
	}
	return all
}

// child returns the group's child on this node, if it leads; 0 if there is none.
func (n *node) child(g *group) int {
	for _, pid := range n.pids()[childProcess] {
		if args := process.CommandLine(pid); len(args) == 3 && args[2] == g.name && (args[1] == childArgument || n.leads(g, pid)) {
			return pid
		}
	}
	return 0
}

func signal(sig syscall.Signal, pids ...int) {
	for _, pid := range pids {
		syscall.Kill(pid, sig)
	}
}

// running reports whether a process has neither been stopped nor ended.
func running(pid int) bool {
	s, err := procinfo.ReadStat(pid)
	return err == nil && !s.Ended() && s.State != 'T' && s.State != 't'
}

// sameTime is how close together faults of a node count as simultaneous.
const sameTime = time.Second

// mayHideProcesses reports whether the node's work has, or may have, processes that have left its process group and session.
func (n *node) mayHideProcesses() bool {
	for _, g := range n.f.groups {
		for _, behavior := range []string{daemonizes, forks} {
			if _, err := os.Stat(behaviorFile(g.file(""), behavior, n.id)); err == nil {
				return true
			}
		}
	}
	if time.Since(n.behaviorChanged) < sameTime {
		return true // a child may have read the file just before
	}
	pids, err := n.memory.Pids()
	return err != nil || slices.ContainsFunc(pids, func(pid int) bool {
		args := process.CommandLine(pid)
		return len(args) > 1 && (args[1] == daemonizeArgument || args[1] == grandchildArgument || filepath.Base(args[1]) == forkScript)
	})
}

// isPromised reports whether docs/safety.md promises that the node's work dies if these processes are killed or stopped in
// addition to earlier faults (What is not promised):
//   - One of guard, keeper and daemon must be running. If all are killed, only the work's main process dies; if all are stopped, nothing dies.
//   - Without guard and keeper the daemon cannot find processes that have left the process group and the session, unless a
//     control group contains them. A guard that dies just after its keeper may already have killed the daemon.
func (n *node) isPromised(killed, still []string) bool {
	pids := n.pids()
	acting := 0
	for _, who := range zkelectdProcesses {
		idle := func(pid int) bool { return !running(pid) || n.starvedPids[pid] }
		if len(pids[who]) > 0 && !slices.ContainsFunc(pids[who], idle) && !slices.Contains(killed, who) && !slices.Contains(still, who) {
			acting++
		}
	}
	if _, kept := pids[keeperProcess]; !kept && time.Since(n.killed[keeperProcess]) > sameTime {
		return true // no work runs without a keeper
	}
	hidden := n.mayHideProcesses()
	if acting == 0 && (len(still) > 0 || len(killed) < len(zkelectdProcesses) || hidden) {
		return false
	}
	if !hidden {
		return true
	}
	loses := func(who string) bool { return slices.Contains(killed, who) }
	before := func(who string) bool { return time.Since(n.killed[who]) < sameTime }
	switch {
	case loses(guardProcess) && before(keeperProcess), loses(keeperProcess) && before(guardProcess):
		return false
	case loses(guardProcess) && loses(keeperProcess):
		return n.containment == "cgroup"
	}
	return true
}

// kill kills some of a node's processes at once, and reports whether it has killed any. Of several children it kills one.
func (n *node) kill(who ...string) (done bool) {
	if !n.isPromised(who, nil) {
		return false
	}
	pids := n.pids()
	if children := pids[childProcess]; len(children) > 0 {
		i := n.f.rng.IntN(len(children))
		pids[childProcess] = children[i : i+1]
	}
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		for _, name := range who {
			if len(pids[name]) > 0 {
				signal(sig, pids[name]...)
				n.killed[name], done = time.Now(), true
			}
		}
	}
	return done
}

// stop stops some of a node's processes and returns a function that continues them; nil if they do not run or must not be
// stopped.
func (n *node) stop(who ...string) func() {
	pids := n.pids()
	if !n.isPromised(nil, who) {
		return nil
	}
	var stopped []int
	for _, name := range who {
		stopped = append(stopped, pids[name]...)
	}
	if len(stopped) == 0 {
		return nil
	}
	signal(syscall.SIGSTOP, stopped...)
	return func() { signal(syscall.SIGCONT, stopped...) }
}
