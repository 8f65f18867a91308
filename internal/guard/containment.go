package guard

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Containment is a way to keep all processes of the work together, even if they change their sessions, process groups
// or environments, so that all of them can be killed and their death be proven (A3 in docs/protocol.md).
type Containment string

// The containments. In all of them a keeper, a process between the guard and the work, starts the work. It is the
// subreaper of the work and kills it when the guard dies or the lease ends.
const (
	// Auto is CgroupContainment if zkelectd may create control groups, else KeeperContainment.
	Auto Containment = "auto"
	// CgroupContainment also puts the work into a control group (version 2), which the kernel can kill as a whole.
	CgroupContainment Containment = "cgroup"
	// KeeperContainment uses the keeper alone.
	KeeperContainment Containment = "keeper"
)

// ContainmentRecord describes how the work is contained, for processes that have to kill it if guard and keeper cannot.
type ContainmentRecord struct {
	Mode Containment `json:"mode"`
	// Keeper is the keeper process.
	Keeper Process `json:"keeper"`
	// KeeperSeq is the number with which the keeper reports to the daemon, see [Client.readReports].
	KeeperSeq int `json:"keeper_seq,omitempty"`
	// Group and Inode identify the control group, if there is one.
	Group string `json:"group,omitempty"`
	Inode uint64 `json:"inode,omitempty"`
	// StateFile is the path of the file that records whether work runs, if there is one. See stateRunning.
	StateFile string `json:"state_file,omitempty"`
}

// The contents of a state file. Once work has started, only the keeper writes stateDead, when the kernel has told it
// that nothing is left.
const (
	stateRunning = "running\n"
	stateDead    = "dead   \n"
)

// Container holds all processes of one piece of work, so that all of them can be killed and their death be proven.
// Each process that may have to end the work without having started it has one: the guard, the daemon once its guard
// is lost, the next guard, and 'zkelectd release'.
type Container interface {
	// Kill kills what is in the container. What it misses, such as a process that was being forked, is killed by the
	// next call.
	Kill() error
	// Empty returns nil once the kernel says that nothing is left in the container, and nothing can get into it any
	// more. What cannot be read is not empty: then it returns the reason.
	Empty() error
	// Close closes the files that the container uses.
	Close()
}

// killAndCheck returns nil if a container is empty. Otherwise it kills what is in it, and must be called again.
func killAndCheck(c Container) error {
	err := c.Empty()
	if err == nil {
		return nil
	}
	if killErr := c.Kill(); killErr != nil {
		return fmt.Errorf("cannot kill the work: %w", killErr)
	}
	return err
}

// killAndCheck is the same for work in a record that was read from a session file: its processes may be long dead, and
// the control group removed.
func (r ContainmentRecord) killAndCheck() error {
	if r.Group == "" {
		// the keeper writes the state file, or the daemon before any work starts; a missing file proves nothing
		text, err := readOwn(r.StateFile)
		if err == nil && string(text) == stateDead {
			return nil
		}
		return errors.Join(err, errors.New("the keeper was killed before it recorded that all of the work is dead; "+
			"nothing else can prove it"))
	}
	c, err := openCgroup(r.Group)
	if err != nil {
		return checkCgroupRemoved(r.Group, err)
	}
	defer c.Close()
	if c.inode != r.Inode {
		return nil // the recorded group was removed, so it was empty
	}
	if err := killAndCheck(c); err != nil {
		return fmt.Errorf("%s: %w", c.dir, err)
	}
	return nil
}

// checkCgroupRemoved returns nil if err, from opening the control group, shows that the group was removed, as only an
// empty group can be: its directory does not exist, and the hierarchy is mounted.
func checkCgroupRemoved(group string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for dir := filepath.Dir(group); ; dir = filepath.Dir(dir) {
		var at unix.Statfs_t
		statErr := unix.Statfs(dir, &at)
		switch {
		case errors.Is(statErr, fs.ErrNotExist) && dir != "/":
		case statErr != nil || at.Type != unix.CGROUP2_SUPER_MAGIC:
			return fmt.Errorf("%w; and no control groups are mounted at %s", err, dir)
		default:
			return nil
		}
	}
}
