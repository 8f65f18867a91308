// Package cgroup1 provides control groups of version 1, with limits for memory, processors and processes: for tests and the
// fault campaign. It needs root and the controllers below /sys/fs/cgroup.
package cgroup1

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const mount = "/sys/fs/cgroup"

// Group is a control group. Whoever has made it removes it.
type Group struct {
	// Dir is its directory.
	Dir string
}

// New makes a group below the root of a controller.
func New(controller string) (Group, error) {
	dir, err := os.MkdirTemp(filepath.Join(mount, controller), "zkelectd-test-")
	if err != nil {
		return Group{}, fmt.Errorf("%w; this needs the controller %s of control groups, version 1, and root", err, controller)
	}
	return Group{Dir: dir}, nil
}

// Below makes a group in the group.
func (g Group) Below(name string) (Group, error) {
	sub := Group{Dir: filepath.Join(g.Dir, name)}
	return sub, os.Mkdir(sub.Dir, 0o755)
}

// Set writes one of its files.
func (g Group) Set(file, value string) error {
	return os.WriteFile(filepath.Join(g.Dir, file), []byte(value), 0)
}

// Number reads one of its files that holds a number.
func (g Group) Number(file string) (int64, error) {
	data, err := os.ReadFile(filepath.Join(g.Dir, file))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
}

// Add moves a process with all its threads into the group.
func (g Group) Add(pid int) error { return g.Set("cgroup.procs", strconv.Itoa(pid)) }

// Pids are the processes in it.
func (g Group) Pids() ([]int, error) {
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

// Kill kills all that is in it, whatever it forks meanwhile, within a limit.
func (g Group) Kill(limit time.Duration) error {
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

// Remove removes the group, once all processes in it have ended.
func (g Group) Remove(limit time.Duration) error {
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
