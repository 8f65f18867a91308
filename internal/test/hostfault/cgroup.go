package hostfault

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const cgroupRoot = "/sys/fs/cgroup"

// ControlGroup is a control group of version 1. Its creator must remove it.
type ControlGroup struct {
	// Dir is its directory.
	Dir string
}

// NewControlGroup creates a group below the root of a controller.
func NewControlGroup(controller string) (ControlGroup, error) {
	dir, err := os.MkdirTemp(filepath.Join(cgroupRoot, controller), "zkelectd-test-")
	if err != nil {
		return ControlGroup{}, fmt.Errorf("%w; this needs root and the controller %s of control groups version 1",
			err, controller)
	}
	return ControlGroup{Dir: dir}, nil
}

// Child creates a group within g.
func (g ControlGroup) Child(name string) (ControlGroup, error) {
	sub := ControlGroup{Dir: filepath.Join(g.Dir, name)}
	return sub, os.Mkdir(sub.Dir, 0o755)
}

// Set writes to one of the group's files.
func (g ControlGroup) Set(file, value string) error {
	return os.WriteFile(filepath.Join(g.Dir, file), []byte(value), 0)
}

// Number reads one of the group's files that holds a number.
func (g ControlGroup) Number(file string) (int64, error) {
	data, err := os.ReadFile(filepath.Join(g.Dir, file))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
}

// Add moves a process with all its threads into the group.
func (g ControlGroup) Add(pid int) error { return g.Set("cgroup.procs", strconv.Itoa(pid)) }

// Pids returns the processes in the group.
func (g ControlGroup) Pids() ([]int, error) {
	data, err := os.ReadFile(filepath.Join(g.Dir, "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	var all []int
	for field := range strings.FieldsSeq(string(data)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return nil, err
		}
		all = append(all, pid)
	}
	return all, nil
}

// Kill kills all processes in the group, including those that they fork meanwhile. It fails if some are left after
// limit.
func (g ControlGroup) Kill(limit time.Duration) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); ; <-tick.C {
		pids, err := g.Pids()
		if err != nil || len(pids) == 0 {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s still holds the processes %v", g.Dir, pids)
		}
		for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
			for _, pid := range pids {
				syscall.Kill(pid, sig)
			}
		}
	}
}

// Remove removes the group once all processes in it have ended. It fails if some are left after limit.
func (g ControlGroup) Remove(limit time.Duration) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); ; <-tick.C {
		err := os.Remove(g.Dir)
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			pids, _ := g.Pids()
			return fmt.Errorf("%w; its processes are %v", err, pids)
		}
	}
}

// pageCache returns how many bytes of files the group has in memory, which the kernel can reclaim.
func (g ControlGroup) pageCache() (int64, error) {
	stat, err := os.ReadFile(filepath.Join(g.Dir, "memory.stat"))
	if err != nil {
		return 0, err
	}
	var total int64
	for line := range strings.Lines(string(stat)) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), " "); name == "active_file" || name == "inactive_file" {
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return 0, err
			}
			total += n
		}
	}
	return total, nil
}
