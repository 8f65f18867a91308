package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/boottime"
	"zkelectd/internal/procinfo"
)

// SessionFile is what is kept of a session for an undertaker outside (zkelectd release): its credentials, and whose it
// is, so that nobody closes it under a process that works on the strength of it (S1).
type SessionFile struct {
	Session Credentials `json:"session"`
	// Boot is the host's; after a restart of the host nobody named here is alive.
	Boot string `json:"boot"`
	// Namespace is the PID namespace in which the pids below are: in another they are somebody else's, or nobody's.
	Namespace string `json:"namespace"`
	// Processes are the guard and the daemon.
	Processes []Process `json:"processes"`
	// Work is the main process of the work, Hold what holds the work, and Stamp what is in its environment; nil for none.
	Work        *Process           `json:"work,omitempty"`
	Containment *ContainmentRecord `json:"containment,omitempty"`
	Env         []string           `json:"env,omitempty"`
	// Unit is the work of the last leadership, if it was one: it has to be ended, unless the host was restarted.
	Unit *Unit `json:"unit,omitempty"`
	// Undo is what has to be run when the work is dead, see [Client.Owe].
	PendingHooks []Spec `json:"pending_hooks,omitempty"`
}

// bootID is a variable for the tests.
var bootID = procinfo.BootID

// boot returns the id of the current boot; empty if it cannot be read.
func boot() string {
	id, _ := bootID()
	return id
}

// namespace names the PID namespace of this process; empty if that can't be told.
func namespace() string {
	name, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	return name
}

// Keep writes the file, readable by its owner only, in one step.
func (f SessionFile) Write(path string) error {
	data, err := json.Marshal(f)
	if err != nil {
		return err
	}
	temp, err := os.CreateTemp(filepath.Dir(path), ".zkelectd-session-") // created with mode 0600
	if err != nil {
		return fmt.Errorf("cannot keep the session in %s: %w", path, err)
	}
	_, err = temp.Write(data)
	if err = errors.Join(err, temp.Close()); err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		os.Remove(temp.Name())
		return fmt.Errorf("cannot keep the session in %s: %w", path, err)
	}
	return nil
}

// readOwn reads a file that only this user, or root, can have written: whoever goes by a session file kills and runs what it
// says.
func readOwn(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return nil, &os.PathError{Op: "fstat", Path: path, Err: err}
	}
	if own := uint32(os.Geteuid()); stat.Uid != own && stat.Uid != 0 || stat.Mode&0o022 != 0 {
		return nil, fmt.Errorf("%s is not believed: user %d, mode %04o, could have written it, and what it says is run as user %d; run this as user %d",
			path, stat.Uid, stat.Mode&0o7777, own, stat.Uid)
	}
	return io.ReadAll(file)
}

// ReadSession reads a session file.
func ReadSessionFile(path string) (SessionFile, error) {
	var f SessionFile
	data, err := readOwn(path)
	if err != nil {
		return f, err
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return f, fmt.Errorf("%s is not a session file: %w", path, err)
	}
	if f.Session.ID == 0 || len(f.Session.Servers) == 0 {
		return f, fmt.Errorf("%s is not a session file: it names no session", path)
	}
	if f.Work != nil && f.Work.Pid <= 1 {
		return f, fmt.Errorf("%s is not a session file: process %d is no leader-only work", path, f.Work.Pid)
	}
	return f, nil
}

// End kills what is left of the work, for no longer than limit. It returns nil once the kernel says that all of it is dead,
// and guard and daemon too: only then may the session be closed. It ends neither of these two: they may be at work.
func (f SessionFile) EnsureDead(limit time.Duration) error {
	now, err := bootID()
	switch {
	case err != nil:
		return fmt.Errorf("whether the host was restarted since cannot be told: %w", err)
	case f.Boot == "":
		return errors.New("whether the host was restarted since cannot be told: the session file does not name the host's boot")
	case f.Boot != now:
		return nil
	case f.Namespace == "" || f.Namespace != namespace():
		return errors.New("it ran in another container, or another PID namespace (pid_namespaces(7)), and from here nobody can tell whether it still runs there: " +
			"give each zkelectd a zookeeper.session_file of its own, and run 'zkelectd release' where it ran; else the session ends by its timeout")
	case len(f.Processes) == 0:
		return errors.New("the session file does not name the guard and the daemon, which may still run")
	}
	if err := within(min(limit, dying), f.ownersEnded); err != nil {
		return fmt.Errorf("%w; stop that first", err)
	}
	if f.Unit != nil {
		if err := f.Unit.KillAndWait(limit); err != nil {
			return fmt.Errorf("%w: %w", ErrWorkMayRun, err)
		}
	}
	if err := within(limit, f.endWork); err != nil {
		return fmt.Errorf("%w: %w", ErrWorkMayRun, err)
	}
	return nil
}

// ErrWorkMayRun says that guard and daemon have ended, and that the end of their work is not proven.
var ErrWorkMayRun = errors.New("some of the work may still run")

// dying is how long a process may take to end once it was killed.
const dying = time.Second

// within tries until there is no error, for no longer than limit.
func within(limit time.Duration, try func() error) error {
	for over := boottime.Now() + limit; ; time.Sleep(sweepMost) {
		if err := try(); err == nil || boottime.Now() >= over {
			return err
		}
	}
}

// ownersEnded returns nil once guard and daemon have ended.
func (f SessionFile) ownersEnded() error {
	for _, p := range f.Processes {
		if err := p.ended(); err != nil {
			return err
		}
	}
	return nil
}

// endWork kills what it can find of the work, and returns nil once nothing is left.
func (f SessionFile) endWork() error {
	if f.Containment == nil {
		return nil // none has ever run in this session
	}
	if f.Containment.Mode != PidnsContainment {
		if err := f.Containment.Keeper.ended(); err != nil {
			return err // it is at it, as its guard is dead
		}
	}
	if f.Work != nil {
		f.Work.killGroup()
	}
	for _, pid := range stamped(f.Env) {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	return f.Containment.end()
}

// killGroup kills the process group that p led, unless its number is another's by now.
func (p Process) killGroup() {
	if s, err := procinfo.ReadStat(p.Pid); err == nil && s.Started != p.Started {
		return
	}
	syscall.Kill(-p.Pid, syscall.SIGKILL)
}

// markFile is the file beside a session's that says whether work runs.
func markFile(session string) string { return session + ".work" }

// Forget removes the file of a session and what belongs to it. The file of another session is left alone: that of the daemon
// after this one may be there already.
func RemoveSessionFile(c Credentials) {
	if c.File == "" {
		return
	}
	if f, err := ReadSessionFile(c.File); err == nil && f.Session.ID == c.ID {
		os.Remove(c.File)
		os.Remove(markFile(c.File))
	}
}
