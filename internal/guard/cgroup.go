package guard

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// cgroup holds one piece of work, where this process may make control groups of its own: then not even a process that
// hides from its parents escapes. A nil cgroup does nothing. None is used twice: a kernel may take a process that is born
// into a group that was once killed for one that has escaped the killing.
type cgroup struct {
	dir  string
	file *os.File
}

const (
	cgroupPrefix = "zkelectd-work-"
	killFile     = "cgroup.kill" // since Linux 5.14
)

// cgroupParent is the directory to make control groups in, if it was delegated; empty otherwise.
func cgroupParent() string {
	mount, path := ownCgroup()
	own := filepath.Join(mount, path)
	// The root is that of a container's own namespace, or of a host where nobody divides the hierarchy.
	if mount == "" || path == "" || (path != "/" && !delegated(own)) {
		return ""
	}
	return own
}

// clearCgroups ends what guards that are dead have left behind in parent: work without a guard may not go on (S1).
func clearCgroups(parent string) {
	left, err := filepath.Glob(filepath.Join(parent, cgroupPrefix+"*"))
	if parent == "" || err != nil {
		return
	}
	for _, dir := range left {
		var pid int
		if _, err := fmt.Sscanf(filepath.Base(dir), cgroupPrefix+"%d-", &pid); err != nil {
			continue
		}
		if _, err := readStat(pid); err != nil {
			c := &cgroup{dir: dir}
			c.kill()
			c.close() // fails while something dies; the next guard tries again
		}
	}
}

// newCgroup makes a control group in parent; nil where that can't be.
func newCgroup(parent string, seq int) *cgroup {
	if parent == "" {
		return nil
	}
	c := &cgroup{dir: filepath.Join(parent, fmt.Sprintf("%s%d-%d", cgroupPrefix, os.Getpid(), seq))}
	if err := os.Mkdir(c.dir, 0o755); err != nil {
		return nil
	}
	var err error
	if c.file, err = os.Open(c.dir); err == nil {
		_, err = os.Stat(filepath.Join(c.dir, killFile))
	}
	if err != nil {
		c.close()
		return nil
	}
	return c
}

// ownCgroup is where the version 2 hierarchy is mounted, and the path of this process in it.
func ownCgroup() (mount, path string) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", ""
	}
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", ""
	}
	for line := range strings.Lines(string(mounts)) {
		// id parent major:minor root mount-point options... - type source options
		fields := strings.Fields(line)
		if _, kind, ok := strings.Cut(line, " - "); ok && strings.HasPrefix(kind, "cgroup2 ") && len(fields) > 4 {
			mount = fields[4]
			break
		}
	}
	for line := range strings.Lines(string(groups)) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			path = rest
		}
	}
	return mount, path
}

// delegated tells that systemd has given the group to us to divide (Delegate=yes).
func delegated(dir string) bool {
	var mark [8]byte
	for _, name := range []string{"user.delegate", "trusted.delegate"} {
		if n, err := unix.Getxattr(dir, name, mark[:]); err == nil && string(mark[:n]) == "1" {
			return true
		}
	}
	return false
}

// fd is for starting a process inside, -1 for none.
func (c *cgroup) fd() int {
	if c == nil {
		return -1
	}
	return int(c.file.Fd())
}

func (c *cgroup) kill() {
	if c != nil {
		// Where it fails, the walk of the descendants finds what is left.
		os.WriteFile(filepath.Join(c.dir, killFile), []byte("1"), 0)
	}
}

// populated tells that a live process is inside.
func (c *cgroup) populated() bool {
	if c == nil {
		return false
	}
	data, err := os.ReadFile(filepath.Join(c.dir, "cgroup.events"))
	return err == nil && strings.Contains(string(data), "populated 1")
}

func (c *cgroup) close() {
	if c == nil {
		return
	}
	if c.file != nil {
		c.file.Close()
	}
	os.Remove(c.dir)
}
