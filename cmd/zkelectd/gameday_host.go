package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/cluster"
	"zkelectd/internal/hostcheck"
	"zkelectd/internal/procinfo"
)

// localLeader finds the processes of the leader on this host. It goes by the process that the leader has registered, never by a name
// alone.
type localLeader struct {
	node        cluster.Node
	root, slot  string
	term        int64
	guardPid    int
	programFile os.FileInfo
}

// newLocalLeader returns an error unless the leader of a group runs on this host.
func newLocalLeader(s cluster.Snapshot, g group) (*localLeader, error) {
	m, found := s.Member(s.Current.Record.Incarnation)
	if !found || !m.Node.Readable() {
		return nil, fmt.Errorf("the leader's record %s cannot be read", g.paths.Node(s.Current.Record.Node))
	}
	l := &localLeader{node: m.Node.Record, root: g.paths.Root, slot: g.paths.Slot, term: s.Current.Record.Term}
	pid, absent, err := guardOf(l.node)
	switch {
	case err != nil:
		return nil, err
	case absent != "":
		return nil, fmt.Errorf("%s leads, and this drill runs on its host: %s", l.node.ID, absent)
	}
	l.guardPid = pid
	// The record is from ZooKeeper, and could name any process.
	if l.programFile, err = os.Stat(fmt.Sprintf("/proc/%d/exe", pid)); errors.Is(err, os.ErrPermission) {
		return nil, fmt.Errorf("cannot look at process %d, the guard of %s: run this as root or as the user of the daemon: %w", pid, l.node.ID, err)
	} else if err != nil {
		return nil, err
	}
	own, err := os.Stat("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	name, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return nil, err
	}
	if !os.SameFile(own, l.programFile) && strings.TrimSuffix(filepath.Base(name), " (deleted)") != "zkelectd" {
		return nil, fmt.Errorf("process %d, which the record of %s names, is not zkelectd but %s", pid, l.node.ID, name)
	}
	return l, nil
}

// children returns the guard's own processes with an argument.
func (l *localLeader) children(argument string) ([]int, error) {
	if started, err := procinfo.StartTime(l.guardPid); err != nil || started != l.node.Started {
		return nil, fmt.Errorf("the guard of %s, process %d, has ended", l.node.ID, l.guardPid)
	}
	all, err := hostcheck.Children(l.guardPid)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(pid int) bool {
		args, err := hostcheck.Arguments(pid)
		program, statErr := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
		return err != nil || statErr != nil || !os.SameFile(program, l.programFile) || !slices.Contains(args[1:], argument)
	}), nil
}

// daemon returns the pid of the daemon.
func (l *localLeader) daemon() (int, error) {
	all, err := l.children(daemonCommandName)
	if err != nil {
		return 0, err
	}
	if len(all) != 1 {
		return 0, fmt.Errorf("the guard of %s, process %d, has %d daemons", l.node.ID, l.guardPid, len(all))
	}
	return all[0], nil
}

// child returns the main process of the child, and when it was started, in clock ticks since boot. That is the oldest of those that a
// keeper has started for this term.
func (l *localLeader) child() (pid int, started uint64, err error) {
	keepers, err := l.children("keeper")
	if err != nil {
		return 0, 0, err
	}
	for _, keeper := range keepers {
		all, err := hostcheck.Children(keeper)
		if err != nil {
			return 0, 0, err
		}
		for _, p := range all {
			at, err := procinfo.StartTime(p)
			if err == nil && l.works(p) && (pid == 0 || at < started) {
				pid, started = p, at
			}
		}
	}
	if pid == 0 {
		return 0, 0, fmt.Errorf("%s has no process of a child in term %d: a systemd unit (child.unit) is killed with systemctl, and without a child there is nothing to kill", l.node.ID, l.term)
	}
	return pid, started, nil
}

// works reports whether a process was started as the work of this term.
func (l *localLeader) works(pid int) bool {
	for name, want := range map[string]string{
		"ZKELECTD_NODE": l.node.ID, "ZKELECTD_ROOT": l.root, "ZKELECTD_SLOT": l.slot, "ZKELECTD_TERM": strconv.FormatInt(l.term, 10),
	} {
		if value, err := hostcheck.Environment(pid, name); err != nil || value != want {
			return false
		}
	}
	return true
}

// killFound kills the process that find returns. It is found again once the kernel holds it, in case its pid was given to another one.
func killFound(find func() (int, error)) error {
	pid, err := find()
	if err != nil {
		return err
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return os.NewSyscallError("pidfd_open", err)
	}
	defer unix.Close(fd)
	again, err := find()
	if err == nil && again != pid {
		err = fmt.Errorf("process %d has ended meanwhile", pid)
	}
	if err != nil {
		return err
	}
	return os.NewSyscallError("pidfd_send_signal", unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0))
}

// clockTick is the unit of the start times of processes.
const clockTick = 10 * time.Millisecond

// restarted returns how long there was no child until the present one was started; 0 if it is the one that was killed.
func (l *localLeader) restarted(killed uint64, at time.Duration) time.Duration {
	_, started, err := l.child()
	if err != nil || started == killed {
		return 0
	}
	return max(clockTick, time.Duration(started)*clockTick-at)
}
