package guard

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"zkelectd/internal/sys/boottime"
)

// cgroup is a control group of version 2 that contains one piece of work; not even processes that detach from their
// parents leave it. The methods of a nil cgroup do nothing: it contains nothing. A group is never reused: the kernel
// might kill a process that is started in a group that was killed before.
//
// All files needed for a kill and its proof are opened with the group, so that neither needs a free file descriptor
// later.
type cgroup struct {
	dir string
	// together with dir it identifies the group: the kernel does not reuse inode numbers until the next boot
	inode    uint64
	file     *os.File // carries a shared lock for as long as its owner lives
	killFD   int      // of cgroup.kill
	eventsFD int      // of cgroup.events
}

const (
	cgroupPrefix = "zkelectd-work-"
	killFile     = "cgroup.kill" // since Linux 5.14
	eventsFile   = "cgroup.events"
)

// delegatedCgroup returns the directory in which this process may create control groups; empty if there is none.
func delegatedCgroup() string {
	mount, path := ownCgroup()
	return divisibleCgroup(mount, path, isDelegated)
}

// Delegated reports whether a guard with this process id may create control groups for the work.
func Delegated(pid int) (bool, error) {
	mount, path, err := cgroupOf(strconv.Itoa(pid))
	return divisibleCgroup(mount, path, isDelegated) != "", err
}

// divisibleCgroup returns the directory of a control group if others may be created in it; empty otherwise.
func divisibleCgroup(mount, path string, delegated func(dir string) bool) string {
	own := filepath.Join(mount, path)
	// The root is that of a container's cgroup namespace, or of a host without a service manager: both may be divided.
	if mount == "" || path == "" || (path != "/" && !delegated(own)) {
		return ""
	}
	return own
}

// clearCgroups kills the work that dead guards have left behind in parent: no work may run without a guard (S1). A
// guard is dead if nobody holds the lock of its group any more; the kernel releases locks only when their owners are
// gone.
func clearCgroups(parent string) {
	if parent == "" {
		return
	}
	left, _ := filepath.Glob(filepath.Join(parent, cgroupPrefix+"*")) // fails only for a malformed pattern
	for _, dir := range left {
		c, err := openCgroup(dir)
		if err != nil {
			continue
		}
		if unix.Flock(int(c.file.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			c.Kill()
			c.remove() // fails while processes are still dying; the next guard tries again
		}
		c.Close()
	}
}

// newCgroup creates a control group in parent.
func newCgroup(parent string, seq int) (*cgroup, error) {
	if parent == "" {
		return nil, errors.New("no control group is delegated to zkelectd: in a systemd unit set Delegate=yes, and " +
			"neither RestrictNamespaces= nor ProtectControlGroups=")
	}
	var lastErr error
	for range newCgroupTries {
		// The name contains the time, as guards in different containers may all be process 1, and no name may be reused.
		dir := filepath.Join(parent, fmt.Sprintf("%s%d-%d-%x", cgroupPrefix, os.Getpid(), seq, int64(boottime.Now())))
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, fmt.Errorf("cannot create a control group: %w", err)
		}
		c, err := openCgroup(dir)
		if err == nil {
			return c, nil
		}
		os.Remove(dir)
		lastErr = err
	}
	return nil, lastErr
}

// newCgroupTries is how often newCgroup tries: until a new group is locked, another guard that starts at that moment
// may remove it as left behind.
const newCgroupTries = 10

// openCgroup opens a control group and takes a shared lock of it, which shows clearCgroups that its owner lives.
func openCgroup(dir string) (*cgroup, error) {
	c, killErr, err := openCgroupFiles(dir, true)
	if err != nil {
		return nil, err
	}
	if killErr != nil {
		c.Close()
		return nil, fmt.Errorf("cannot use the control group %s: %w", dir, killErr)
	}
	return c, nil
}

// openCgroupFiles opens a control group. With a killErr, this process may not kill the group, but it can read whether
// it is empty.
func openCgroupFiles(dir string, lock bool) (c *cgroup, killErr, err error) {
	c = &cgroup{dir: dir, killFD: -1, eventsFD: -1}
	if c.file, err = os.Open(dir); err != nil {
		return nil, nil, err
	}
	if lock { // before its files are opened, which shows that it has not been removed by then
		err = unix.Flock(int(c.file.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	}
	var stat unix.Stat_t
	if err == nil {
		err = unix.Fstat(int(c.file.Fd()), &stat)
	}
	if err == nil {
		c.inode = stat.Ino
		c.eventsFD, err = unix.Openat(int(c.file.Fd()), eventsFile, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		c.Close()
		return nil, nil, fmt.Errorf("cannot use the control group %s: %w", dir, err)
	}
	c.killFD, killErr = unix.Openat(int(c.file.Fd()), killFile, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	return c, killErr, nil
}

// ownCgroup returns where the version 2 hierarchy is mounted, and the path of this process in it; empty for none.
func ownCgroup() (mount, path string) {
	mount, path, _ = cgroupOf("self")
	return mount, path
}

// cgroupOf is ownCgroup for the process with a pid.
func cgroupOf(pid string) (mount, path string, err error) {
	mounts, err := os.ReadFile("/proc/" + pid + "/mountinfo")
	if err != nil {
		return "", "", err
	}
	groups, err := os.ReadFile("/proc/" + pid + "/cgroup")
	if err != nil {
		return "", "", err
	}
	return cgroupMount(string(mounts)), cgroupPath(string(groups)), nil
}

// cgroupMount returns the mount point of the version 2 hierarchy from the text of /proc/PID/mountinfo; empty for none.
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

// cgroupPath returns the path in the version 2 hierarchy from the text of /proc/PID/cgroup; empty for none.
func cgroupPath(groups string) string {
	for line := range strings.Lines(groups) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return path
		}
	}
	return ""
}

// isDelegated reports whether systemd allows this process to create control groups in dir (Delegate=yes).
func isDelegated(dir string) bool {
	var value [8]byte
	for _, name := range []string{"user.delegate", "trusted.delegate"} {
		if n, err := unix.Getxattr(dir, name, value[:]); err == nil && string(value[:n]) == "1" {
			return true
		}
	}
	return false
}

// fd returns a descriptor for starting a process in the group; -1 for no group.
func (c *cgroup) fd() int {
	if c == nil {
		return -1
	}
	return int(c.file.Fd())
}

var (
	killValue    = []byte("1")
	notPopulated = []byte("populated 0")
)

// errPopulated is the error of [cgroup.Empty] for a group with processes.
var errPopulated = errors.New("processes still run in the control group")

// Kill kills all processes in the group, even those that are just being forked: the kernel does it atomically.
func (c *cgroup) Kill() error {
	if c == nil {
		return nil
	}
	_, err := unix.Pwrite(c.killFD, killValue, 0)
	return err
}

// Empty returns an error if there is, or may be, a live process in the group. A group that was removed is empty, as
// only an empty group can be removed.
func (c *cgroup) Empty() error {
	if c == nil {
		return nil
	}
	var text [256]byte
	n, err := unix.Pread(c.eventsFD, text[:], 0)
	switch {
	case errors.Is(err, unix.ENODEV):
		return nil
	case err != nil:
		return err
	case !bytes.Contains(text[:n], notPopulated):
		return errPopulated
	}
	return nil
}

// remove removes the group, which must be empty, and the groups that the work has created in it.
func (c *cgroup) remove() error {
	err := c.removeItself()
	if !errors.Is(err, unix.EBUSY) {
		return err
	}
	var dirs []string
	filepath.WalkDir(c.dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			dirs = append(dirs, path)
		}
		return nil // what cannot be listed cannot be removed
	})
	for _, dir := range slices.Backward(dirs) {
		err = os.Remove(dir)
	}
	return err // of the last one, which contains the others
}

// removeItself removes a group that contains no others. That takes the same time whatever the work has done.
func (c *cgroup) removeItself() error {
	if c == nil {
		return nil
	}
	if err := os.Remove(c.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Close closes the files of the group, which must not be used after that.
func (c *cgroup) Close() {
	if c == nil {
		return
	}
	for _, fd := range []int{c.killFD, c.eventsFD} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	c.file.Close()
}
