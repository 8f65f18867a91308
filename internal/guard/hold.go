package guard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Containment is what keeps all processes of a piece of work together, whatever they do with sessions, groups and
// environments, so that all of them can be killed, and their end proven (A3 in docs/protocol.md).
type Containment string

// The containments. Under each the work is started by a keeper, a process between the guard and the work: their subreaper,
// which kills them when the guard dies or the lease ends.
const (
	// Auto is CgroupContainment where zkelectd may make control groups, else KeeperContainment.
	Auto Containment = "auto"
	// CgroupContainment also puts the work into a control group of version 2, which the kernel kills in one step.
	CgroupContainment Containment = "cgroup"
	// PidnsContainment makes the keeper the first process of a PID namespace, whose end kills all others in it.
	PidnsContainment Containment = "pidns"
	// KeeperContainment is the keeper alone.
	KeeperContainment Containment = "keeper"
)

// Containments are those that can be asked for.
var Containments = []string{string(Auto), string(CgroupContainment), string(PidnsContainment), string(KeeperContainment)}

// Hold says what holds a piece of work, for those who may have to end it when guard and keeper can't.
type ContainmentRecord struct {
	Mode Containment `json:"mode"`
	// Keeper is its keeper. Under PidnsContainment, all of the work is dead once the keeper is.
	Keeper Process `json:"keeper"`
	// Group and Inode name its control group, if there is one.
	Group string `json:"group,omitempty"`
	Inode uint64 `json:"inode,omitempty"`
	// Mark is the file that says whether work runs, if there is one: see markRunning.
	StateFile string `json:"state_file,omitempty"`
}

// What a mark says. While there is work only the keeper, which knows from the kernel that nothing is left, writes markDead.
const (
	markRunning = "running\n"
	markDead    = "dead   \n"
)

// proof finds out whether work is dead without its guard and keeper, killing what it finds. What it needs is opened while
// the work starts.
type proof struct {
	hold  ContainmentRecord
	group *cgroup // nil if there is none
	pidfd int     // the keeper's under PidnsContainment, else -1
}

// newProof is called while the keeper lives.
func newProof(h ContainmentRecord) (*proof, error) {
	p := &proof{hold: h, pidfd: -1}
	var err error
	if h.Group != "" {
		if p.group, err = openCgroup(h.Group); err != nil {
			return nil, err
		}
	}
	if h.Mode == PidnsContainment {
		if p.pidfd, err = unix.PidfdOpen(h.Keeper.Pid, 0); err != nil {
			p.close()
			return nil, fmt.Errorf("cannot watch the keeper, process %d: %w", h.Keeper.Pid, err)
		}
	}
	return p, nil
}

func (p *proof) close() {
	p.group.close()
	if p.pidfd >= 0 {
		unix.Close(p.pidfd)
	}
}

// kill kills what the containment holds, and returns nil once the kernel says that nothing of it is left. The keeper alone
// proves nothing from outside: then only its own word does.
func (p *proof) kill() error {
	switch p.hold.Mode {
	case CgroupContainment:
		if !p.group.populated() {
			return nil
		}
		if err := p.group.kill(); err != nil {
			return fmt.Errorf("cannot kill the control group %s: %w", p.group.dir, err)
		}
		return fmt.Errorf("processes still run in the control group %s", p.group.dir)
	case PidnsContainment:
		if exited(p.pidfd) {
			return nil
		}
		if err := unix.PidfdSendSignal(p.pidfd, unix.SIGKILL, nil, 0); err != nil {
			return fmt.Errorf("cannot kill the first process of the PID namespace, %d: %w", p.hold.Keeper.Pid, err)
		}
		return fmt.Errorf("processes still run in the PID namespace of process %d", p.hold.Keeper.Pid)
	}
	return errors.New("only the keeper can tell, and it has ended without a word")
}

// end is [proof.kill] for a hold that was read from a file: its owner may be long dead, and its control group gone.
func (h ContainmentRecord) end() error {
	if h.Group == "" && h.Mode != PidnsContainment {
		return h.marked()
	}
	switch h.Mode {
	case CgroupContainment:
		c, err := openCgroup(h.Group)
		if err != nil {
			return h.removed(err)
		}
		defer c.close()
		if c.inode != h.Inode {
			return nil // ours was removed, so it was empty
		}
		return (&proof{hold: h, group: c, pidfd: -1}).kill()
	default:
		return h.Keeper.ended()
	}
}

// marked returns nil if all of the work is dead, as the keeper has noted, or as was noted before any was started. That there
// is no such note proves nothing.
func (h ContainmentRecord) marked() error {
	text, err := os.ReadFile(h.StateFile)
	if err == nil && string(text) == markDead {
		return nil
	}
	return errors.Join(err, errors.New("only the keeper could tell that all of the work is dead, and it was killed before it did"))
}

// removed returns nil if the control group was removed, which only an empty one can be: its directory is missing where the
// hierarchy is mounted.
func (h ContainmentRecord) removed(err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for dir := filepath.Dir(h.Group); ; dir = filepath.Dir(dir) {
		var at unix.Statfs_t
		failed := unix.Statfs(dir, &at)
		switch {
		case errors.Is(failed, fs.ErrNotExist) && dir != "/":
		case failed != nil || at.Type != unix.CGROUP2_SUPER_MAGIC:
			return fmt.Errorf("%w; and no control groups are mounted at %s", err, dir)
		default:
			return nil
		}
	}
}
