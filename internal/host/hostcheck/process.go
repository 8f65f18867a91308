package hostcheck

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Unlimited stands for no limit.
const Unlimited = math.MaxUint64

// Limits returns the soft limits of a process by their names in /proc/PID/limits, such as "Max open files".
func Limits(pid int) (map[string]uint64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	if err != nil {
		return nil, err
	}
	all := make(map[string]uint64)
	for line := range strings.Lines(string(data)) {
		const width = 26 // of the column with the names
		if len(line) <= width {
			continue
		}
		fields := strings.Fields(line[width:])
		if len(fields) < 2 {
			continue
		}
		if n, err := limit(fields[0]); err == nil {
			all[strings.TrimSpace(line[:width])] = n
		}
	}
	return all, nil
}

// limit returns a limit as the kernel writes it.
func limit(text string) (uint64, error) {
	if text == "unlimited" || text == "max" {
		return Unlimited, nil
	}
	return strconv.ParseUint(text, 10, 64)
}

// Memory returns how much memory a process has locked, in bytes, and whether it has the capability to lock any amount.
func Memory(pid int) (locked uint64, capable bool, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, false, err
	}
	var resident uint64
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		switch key {
		case "VmLck":
			kib, err := strconv.ParseUint(strings.TrimSuffix(value, " kB"), 10, 64)
			if err != nil {
				return 0, false, fmt.Errorf("/proc/%d/status: VmLck: %w", pid, err)
			}
			locked = kib << 10
		case "VmRSS": // VmLck counts what is reserved, which locks nothing until it is used
			kib, err := strconv.ParseUint(strings.TrimSuffix(value, " kB"), 10, 64)
			if err != nil {
				return 0, false, fmt.Errorf("/proc/%d/status: VmRSS: %w", pid, err)
			}
			resident = kib << 10
		case "CapEff":
			bits, err := strconv.ParseUint(value, 16, 64)
			if err != nil {
				return 0, false, fmt.Errorf("/proc/%d/status: CapEff: %w", pid, err)
			}
			capable = bits&(1<<unix.CAP_IPC_LOCK) != 0
		}
	}
	return min(locked, resident), capable, nil
}

// Tasks returns how many tasks the control group of a process has, and how many it may have; [Unlimited] if it has no limit.
func Tasks(pid int) (count, most uint64, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range bytes.Lines(data) {
		path, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("0::"))
		if !ok {
			continue
		}
		dir := filepath.Join("/sys/fs/cgroup", string(path))
		if count, err = number(filepath.Join(dir, "pids.current")); err != nil {
			return 0, 0, err
		}
		most, err = number(filepath.Join(dir, "pids.max"))
		return count, most, err
	}
	return 0, 0, errors.New("the process is in no control group of version 2")
}

func number(path string) (uint64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return limit(strings.TrimSpace(string(data)))
}

// schedulers are the names of the scheduling policies.
var schedulers = []string{"SCHED_OTHER", "SCHED_FIFO", "SCHED_RR", "SCHED_BATCH", "SCHED_ISO", "SCHED_IDLE", "SCHED_DEADLINE"}

// Scheduler returns the scheduling policy of a process.
func Scheduler(pid int) (string, error) {
	attr, err := unix.SchedGetAttr(pid, 0)
	if err != nil {
		return "", os.NewSyscallError("sched_getattr", err)
	}
	if int(attr.Policy) >= len(schedulers) {
		return fmt.Sprintf("scheduling policy %d", attr.Policy), nil
	}
	return schedulers[attr.Policy], nil
}
