package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A cell is a control group and a PID namespace for one run of tests that kill processes: a mutant must not see other
// processes, and must not leave any behind.
type cell struct {
	mount, dir string
	file       *os.File
}

// newCell creates a cell.
func newCell() (*cell, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("mutants of what kills processes are tried in namespaces of their own: run this as root")
	}
	c := new(cell)
	var group string
	var err error
	if c.mount, group, err = hierarchy(); err != nil {
		return nil, err
	}
	if c.dir, err = os.MkdirTemp(filepath.Join(c.mount, group), "mutants-"); err != nil {
		return nil, err
	}
	if c.file, err = os.Open(c.dir); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// hierarchy returns the mount point of control groups version 2, and the control group of this process.
func hierarchy() (mount, group string, err error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", "", err
	}
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", "", err
	}
	for line := range strings.Lines(string(groups)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			group = path
		}
	}
	for line := range strings.Lines(string(mounts)) {
		if _, kind, ok := strings.Cut(line, " - "); ok && strings.HasPrefix(kind, "cgroup2 ") {
			return strings.Fields(line)[4], group, nil
		}
	}
	return "", "", errors.New("control groups version 2 are not mounted; they are needed to isolate tests that " +
		"kill processes")
}

// inside runs the command in its arguments with the cell as the root of all visible control groups; $0 is their mount
// point. The command is not process 1, which ignores many signals.
const inside = `(umount -l "$0" && mount -t cgroup2 none "$0" && exec "$@") & wait $!`

// command wraps a command line, to be started with attr. With root the cell is the root of all control groups inside,
// with which Java does not work.
func (c *cell) command(args []string, root bool) []string {
	if !root {
		return append([]string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c",
			`"$@" & wait $!`, "sh"}, args...)
	}
	return append([]string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--cgroup", "sh", "-c", inside,
		c.mount}, args...)
}

// attr starts the command in the control group.
func (c *cell) attr(attr *syscall.SysProcAttr) {
	attr.UseCgroupFD, attr.CgroupFD = true, int(c.file.Fd())
}

// close kills the remaining processes and removes the cell.
func (c *cell) close() error {
	if c.file != nil {
		c.file.Close()
	}
	err := os.WriteFile(filepath.Join(c.dir, "cgroup.kill"), []byte("1"), 0)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range 500 { // the processes take some time to end
		if err = c.remove(); err == nil {
			return nil
		}
		<-tick.C
	}
	return fmt.Errorf("cannot remove what a mutant left behind: %w", err)
}

// remove removes the control group and all groups within it.
func (c *cell) remove() error {
	var dirs []string
	err := filepath.WalkDir(c.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append([]string{path}, dirs...)
		}
		return err
	})
	for _, dir := range dirs {
		err = errors.Join(err, os.Remove(dir))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
