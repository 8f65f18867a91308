package guard

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Containment is a way to keep all processes of the work together, even if they change their sessions, process groups or
// environments, so that all of them can be killed and their death be proven (A3 in docs/protocol.md).
type Containment string

// The containments. In all of them a keeper, a process between the guard and the work, starts the work. It is the subreaper of
// the work and kills it when the guard dies or the lease ends.
const (
	// Auto is CgroupContainment if zkelectd may create control groups, else KeeperContainment.
	Auto Containment = "auto"
	// CgroupContainment also puts the work into a control group (version 2), which the kernel can kill as a whole.
	CgroupContainment Containment = "cgroup"
	// PidnsContainment makes the keeper process 1 of a PID namespace. When it dies, the kernel kills all others in it.
	PidnsContainment Containment = "pidns"
	// KeeperContainment uses the keeper alone.
	KeeperContainment Containment = "keeper"
)

// Containments lists the values of the setting child.containment.
var Containments = []string{string(Auto), string(CgroupContainment), string(PidnsContainment), string(KeeperContainment)}

// ContainmentRecord describes how the work is contained, for processes that have to kill it if guard and keeper cannot.
type ContainmentRecord struct {
	Mode Containment `json:"mode"`
	// Keeper is the keeper process. With PidnsContainment, all of the work is dead once the keeper is.
	Keeper Process `json:"keeper"`
	// KeeperSeq is the number with which the keeper reports to the daemon, see keeperReport.
	KeeperSeq int `json:"keeper_seq,omitempty"`
	// Group and Inode identify the control group, if there is one.
	Group string `json:"group,omitempty"`
	Inode uint64 `json:"inode,omitempty"`
	// StateFile is the path of the file that records whether work runs, if there is one. See stateRunning.
	StateFile string `json:"state_file,omitempty"`
}

// The contents of a state file. Once work has started, only the keeper writes stateDead, when the kernel has told it that
// nothing is left.
const (
	stateRunning = "running\n"
	stateDead    = "dead   \n"
)

// containmentHandle kills contained work, and finds out whether it is dead, without guard and keeper. The files that this
// needs are opened when the work starts.
type containmentHandle struct {
	record ContainmentRecord
	group  *cgroup // nil if there is none
	pidfd  int     // the keeper's with PidnsContainment, else -1
}

// openContainment opens a handle. The keeper must be alive.
func openContainment(r ContainmentRecord) (*containmentHandle, error) {
	h := &containmentHandle{record: r, pidfd: -1}
	var err error
	if r.Group != "" {
		if h.group, err = openCgroup(r.Group); err != nil {
			return nil, err
		}
	}
	if r.Mode == PidnsContainment {
		if h.pidfd, err = unix.PidfdOpen(r.Keeper.Pid, 0); err != nil {
			h.close()
			return nil, fmt.Errorf("cannot watch the keeper, process %d: %w", r.Keeper.Pid, err)
		}
	}
	return h, nil
}

func (h *containmentHandle) close() {
	h.group.close()
	if h.pidfd >= 0 {
		unix.Close(h.pidfd)
	}
}

// killAndCheck kills the contained work and returns nil once the kernel says that nothing is left. With KeeperContainment that
// cannot be known from outside: only the keeper's own report proves it.
func (h *containmentHandle) killAndCheck() error {
	switch h.record.Mode {
	case CgroupContainment:
		if !h.group.populated() {
			return nil
		}
		if err := h.group.kill(); err != nil {
			return fmt.Errorf("cannot kill the control group %s: %w", h.group.dir, err)
		}
		return fmt.Errorf("processes still run in the control group %s", h.group.dir)
	case PidnsContainment:
		if hasExited(h.pidfd) {
			return nil
		}
		if err := unix.PidfdSendSignal(h.pidfd, unix.SIGKILL, nil, 0); err != nil {
			return fmt.Errorf("cannot kill the first process of the PID namespace, %d: %w", h.record.Keeper.Pid, err)
		}
		return fmt.Errorf("processes still run in the PID namespace of process %d", h.record.Keeper.Pid)
	}
	return errors.New("the keeper has not reported that all of the work is dead; nothing else can prove it")
}

// killAndCheck does the same for a record that was read from a session file: its processes may be long dead, and the control
// group removed.
func (r ContainmentRecord) killAndCheck() error {
	if r.Group == "" && r.Mode != PidnsContainment {
		return r.checkStateFile()
	}
	switch r.Mode {
	case CgroupContainment:
		c, err := openCgroup(r.Group)
		if err != nil {
			return r.checkCgroupRemoved(err)
		}
		defer c.close()
		if c.inode != r.Inode {
			return nil // the recorded group was removed, so it was empty
		}
		return (&containmentHandle{record: r, group: c, pidfd: -1}).killAndCheck()
	default:
		return r.Keeper.checkEnded()
	}
}

// checkStateFile returns nil if the state file says that all of the work is dead. The keeper has written that, or the daemon,
// before any work started. A missing file proves nothing.
func (r ContainmentRecord) checkStateFile() error {
	text, err := readTrusted(r.StateFile)
	if err == nil && string(text) == stateDead {
		return nil
	}
	return errors.Join(err, errors.New("the keeper was killed before it recorded that all of the work is dead; nothing else can prove it"))
}

// checkCgroupRemoved returns nil if err, from opening the control group, shows that the group was removed, as only an empty
// group can be: its directory does not exist, and the hierarchy is mounted.
func (r ContainmentRecord) checkCgroupRemoved(err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for dir := filepath.Dir(r.Group); ; dir = filepath.Dir(dir) {
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
