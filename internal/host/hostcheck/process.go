package hostcheck

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Unlimited stands for no limit.
const Unlimited = math.MaxUint64

// Limits returns the soft limits of a process.
func Limits(pid int) (procfs.ProcLimits, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcLimits{}, err
	}
	return p.Limits()
}

// Memory returns how much memory a process has locked, in bytes, and whether it has the capability to lock any amount.
func Memory(pid int) (locked uint64, capable bool, err error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, false, err
	}
	status, err := p.NewStatus()
	// VmLck counts what is reserved, which locks nothing until it is used.
	return min(status.VmLck, status.VmRSS), status.CapEff&(1<<unix.CAP_IPC_LOCK) != 0, err
}

// Tasks returns how many tasks the control group of a process has, and how many it may have; [Unlimited] if it has no
// limit.
func Tasks(pid int) (count, most uint64, err error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, 0, err
	}
	groups, err := p.Cgroups()
	if err != nil {
		return 0, 0, err
	}
	i := slices.IndexFunc(groups, func(g procfs.Cgroup) bool { return g.HierarchyID == 0 })
	if i < 0 {
		return 0, 0, errors.New("the process is in no control group of version 2")
	}
	dir := filepath.Join("/sys/fs/cgroup", groups[i].Path)
	if count, err = number(filepath.Join(dir, "pids.current")); err != nil {
		return 0, 0, err
	}
	most, err = number(filepath.Join(dir, "pids.max"))
	return count, most, err
}

// number returns a number, or a limit, as the kernel writes it.
func number(path string) (uint64, error) {
	data, err := os.ReadFile(path)
	text := strings.TrimSpace(string(data))
	if err != nil || text == "max" {
		return Unlimited, err
	}
	return strconv.ParseUint(text, 10, 64)
}

// schedulers are the names of the scheduling policies.
var schedulers = []string{"SCHED_OTHER", "SCHED_FIFO", "SCHED_RR", "SCHED_BATCH", "SCHED_ISO", "SCHED_IDLE",
	"SCHED_DEADLINE"}

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
