package guard

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"zkelectd/internal/boottime"
)

// cgroup holds one piece of work, where this process may make control groups of its own: then not even a process that
// hides from its parents escapes. A nil cgroup does nothing. None is used twice: a kernel may take a process that is born
// into a group that was once killed for one that has escaped the killing.
//
// What a kill and its proof need is opened with the group, so that neither needs a free descriptor later.
type cgroup struct {
	dir    string
	inode  uint64   // with dir it names the group for good: the kernel gives none twice between two boots
	file   *os.File // holds a shared lock for as long as its owner lives
	kills  int      // cgroup.kill
	events int      // cgroup.events
}

const (
	cgroupPrefix = "zkelectd-work-"
	killFile     = "cgroup.kill" // since Linux 5.14
	eventsFile   = "cgroup.events"
)

// cgroupParent is the directory to make control groups in, if it was delegated; empty otherwise.
func cgroupParent() string {
	mount, path := ownCgroup()
	return divided(mount, path, delegated)
}

// divided is the directory of a control group if it may be divided; empty otherwise.
func divided(mount, path string, delegated func(dir string) bool) string {
	own := filepath.Join(mount, path)
	// The root is that of a container's own namespace, or of a host where nobody divides the hierarchy.
	if mount == "" || path == "" || (path != "/" && !delegated(own)) {
		return ""
	}
	return own
}

// clearCgroups ends what guards that are dead have left behind in parent: work without a guard may not go on (S1). That a
// guard is dead is what the kernel says: nobody holds the lock of its group any more.
func clearCgroups(parent string) {
	if parent == "" {
		return
	}
	left, _ := filepath.Glob(filepath.Join(parent, cgroupPrefix+"*")) // the pattern is in order
	for _, dir := range left {
		c, err := openCgroup(dir)
		if err != nil {
			continue
		}
		if unix.Flock(int(c.file.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			c.kill()
			c.remove() // fails while something dies; the next guard tries again
		}
		c.close()
	}
}

// newCgroup makes a control group in parent.
func newCgroup(parent string, seq int) (*cgroup, error) {
	if parent == "" {
		return nil, errors.New("no control group is delegated to zkelectd: in a systemd unit set Delegate=yes, and neither RestrictNamespaces= nor ProtectControlGroups=")
	}
	var failed error
	for range newTries {
		// The time, as guards in containers of their own may all be process 1, and none is used twice.
		dir := filepath.Join(parent, fmt.Sprintf("%s%d-%d-%x", cgroupPrefix, os.Getpid(), seq, int64(boottime.Now())))
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, fmt.Errorf("cannot make a control group: %w", err)
		}
		c, err := openCgroup(dir)
		if err == nil {
			return c, nil
		}
		os.Remove(dir)
		failed = err
	}
	return nil, failed
}

// newTries is how often making a control group is tried: until it is locked, another guard that starts takes it for one that
// was left behind.
const newTries = 10

// openCgroup opens a control group and shares its lock: whoever wants to clear it away sees that its owner lives.
func openCgroup(dir string) (*cgroup, error) {
	c := &cgroup{dir: dir, kills: -1, events: -1}
	var err error
	if c.file, err = os.Open(dir); err != nil {
		return nil, err
	}
	var stat unix.Stat_t
	if err = unix.Fstat(int(c.file.Fd()), &stat); err == nil {
		c.inode = stat.Ino
		err = unix.Flock(int(c.file.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	}
	if err == nil {
		c.kills, err = unix.Openat(int(c.file.Fd()), killFile, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	}
	if err == nil {
		c.events, err = unix.Openat(int(c.file.Fd()), eventsFile, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		c.close()
		return nil, fmt.Errorf("cannot use the control group %s: %w", dir, err)
	}
	return c, nil
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
	return cgroupMount(string(mounts)), cgroupPath(string(groups))
}

// cgroupMount finds where the version 2 hierarchy is mounted in a mountinfo; empty for nowhere.
func cgroupMount(mounts string) string {
	for line := range strings.Lines(mounts) {
		// id parent major:minor root mount-point options... - type source options
		fields := strings.Fields(line)
		if _, kind, ok := strings.Cut(line, " - "); ok && strings.HasPrefix(kind, "cgroup2 ") && len(fields) > 4 {
			return fields[4]
		}
	}
	return ""
}

// cgroupPath finds the path of a process in the version 2 hierarchy among its control groups; empty for none.
func cgroupPath(groups string) string {
	for line := range strings.Lines(groups) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return path
		}
	}
	return ""
}

// delegated reports whether systemd has given the group to us to divide (Delegate=yes).
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

var (
	one         = []byte("1")
	unpopulated = []byte("populated 0")
)

// kill kills all that is inside, and what is being born there: the kernel does it in one step.
func (c *cgroup) kill() error {
	if c == nil {
		return nil
	}
	_, err := unix.Pwrite(c.kills, one, 0)
	return err
}

// populated reports whether a live process is inside, or may be: an error while looking proves nothing. A group that was
// removed is empty, as only an empty one can be.
func (c *cgroup) populated() bool {
	if c == nil {
		return false
	}
	var text [256]byte
	n, err := unix.Pread(c.events, text[:], 0)
	if errors.Is(err, unix.ENODEV) {
		return false
	}
	return err != nil || !bytes.Contains(text[:n], unpopulated)
}

// remove removes the group, which has to be empty.
func (c *cgroup) remove() error {
	if c == nil {
		return nil
	}
	if err := os.Remove(c.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (c *cgroup) close() {
	if c == nil {
		return
	}
	for _, fd := range []int{c.kills, c.events} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	c.file.Close()
}
