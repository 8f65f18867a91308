package harden

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// RealtimePermitted reports whether this process, and those that it starts, may have a real-time priority by their
// RLIMIT_RTPRIO: whoever sets that limit wants it to be used.
func RealtimePermitted() bool {
	var limit unix.Rlimit
	return unix.Getrlimit(unix.RLIMIT_RTPRIO, &limit) == nil && limit.Cur > 0
}

// SetRealtime gives all threads of a process the lowest real-time priority, so that no ordinary process delays them.
// Processes and threads that they start later are ordinary again: call it after [Protect], which starts the threads
// that are needed. It requires CAP_SYS_NICE, or an RLIMIT_RTPRIO of at least 1.
func SetRealtime(pid int) error {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return err
	}
	attr := unix.SchedAttr{
		Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1, Flags: unix.SCHED_FLAG_RESET_ON_FORK,
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil {
			return err
		}
		if err := unix.SchedSetAttr(tid, &attr, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("cannot set a real-time priority: %w: set LimitRTPRIO=1 and RestrictRealtime=no in the "+
				"unit, and permit "+
				"sched_setattr in its SystemCallFilter=, or use --ulimit rtprio=1 for a container",
				os.NewSyscallError("sched_setattr", err))
		}
	}
	return nil
}
