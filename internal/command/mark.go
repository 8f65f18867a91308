package command

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"zkelectd/internal/procinfo"
)

// markName is the environment variable by which the processes of a command are found when they have left its process group, or when the
// process that has started it was killed: its value names that process.
const markName = "ZKELECTD_STARTED_BY="

var marks atomic.Int64 // how many this process has used

// Mark returns a variable for the environment of one run of a command, by which [KillMarked] and [KillOrphans] find its processes.
func Mark() string {
	return fmt.Sprintf("%s%s-%d", markName, self(), marks.Add(1))
}

// self identifies this process among all that the host has run since its boot: by the PID namespace, the pid, and the start time. It is
// empty, so that this process is never taken to have ended, if that cannot be read.
var self = sync.OnceValue(func() string {
	started, err := procinfo.StartTime(os.Getpid())
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%s-%d-%d", pidNamespace(os.Getpid()), os.Getpid(), started)
})

// pidNamespace returns the id of the PID namespace of a process; empty if it cannot be read.
func pidNamespace(pid int) string {
	link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	if err != nil {
		return ""
	}
	return strings.Trim(strings.TrimPrefix(link, "pid:"), "[]")
}

// KillMarked kills the processes with a mark, as far as their environment can be read. It proves nothing: a process may have cleared its
// environment.
func KillMarked(mark string) { killMarked(func(m string) bool { return m == mark }) }

// KillOrphans is [KillMarked] for all marks of processes of this PID namespace that have ended.
func KillOrphans() {
	killMarked(func(mark string) bool {
		f := strings.Split(strings.TrimPrefix(mark, markName), "-")
		if len(f) != 4 || f[0] == "" || f[0] != pidNamespace(os.Getpid()) { // in another namespace, pids mean others
			return false
		}
		pid, err := strconv.Atoi(f[1])
		if err != nil {
			return false
		}
		started, err := procinfo.StartTime(pid)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, os.ErrProcessDone) {
			return true
		}
		return err == nil && strconv.FormatUint(started, 10) != f[2]
	})
}

// killMarked kills the processes of this PID namespace with a mark that matches accepts, as far as that can be read.
func killMarked(matches func(mark string) bool) {
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	for _, dir := range dirs {
		pid, err := strconv.Atoi(dir.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0) // before its environment is read: the pid may be used again
		if err != nil {
			continue
		}
		if mark := markOf(pid); mark != "" && matches(mark) {
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // it may have ended, or belong to another user
		}
		unix.Close(fd)
	}
}

// markOf returns the mark in the environment of a process; empty if there is none, or if that cannot be read.
func markOf(pid int) string {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return ""
	}
	all := strings.Split(string(env), "\x00")
	if i := slices.IndexFunc(all, func(kv string) bool { return strings.HasPrefix(kv, markName) }); i >= 0 {
		return all[i]
	}
	return ""
}
