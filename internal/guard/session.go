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

// SessionFile is the content of the file from which 'zkelectd release' and the next start clean up after a zkelectd that was
// killed. It holds the session's credentials, and which processes depend on the session, so that it is not closed while one of
// them runs (S1).
type SessionFile struct {
	Session Credentials `json:"session"`
	// Boot is the host's boot ID. After a restart of the host none of these processes exists any more.
	Boot string `json:"boot"`
	// Namespace is the PID namespace to which the pids below belong; they mean nothing in another one.
	Namespace string `json:"namespace"`
	// Processes are the guard and the daemon.
	Processes []Process `json:"processes"`
	// Work is the main process of the work, Containment describes how the work is contained, and Env are environment variables
	// by which its processes can be found; all of them are nil without work.
	Work        *Process           `json:"work,omitempty"`
	Containment *ContainmentRecord `json:"containment,omitempty"`
	Env         []string           `json:"env,omitempty"`
	// Unit is the work of the last leadership, if systemd ran it. It has to be killed, unless the host was restarted.
	Unit *Unit `json:"unit,omitempty"`
	// PendingHooks have to run when the work is dead, see [Client.SetPendingHooks].
	PendingHooks []Spec `json:"pending_hooks,omitempty"`
}

// bootID is a variable for the tests.
var bootID = procinfo.BootID

// currentBootID returns the host's boot ID; empty if it cannot be read.
func currentBootID() string {
	id, _ := bootID()
	return id
}

// pidNamespace returns the name of this process's PID namespace; empty if it cannot be read.
func pidNamespace() string {
	name, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	return name
}

// Write writes the file atomically, readable by its owner only.
func (f SessionFile) Write(path string) error {
	data, err := json.Marshal(f)
	if err != nil {
		return err
	}
	temp, err := os.CreateTemp(filepath.Dir(path), ".zkelectd-session-") // created with mode 0600
	if err != nil {
		return fmt.Errorf("cannot write the session file %s: %w", path, err)
	}
	_, err = temp.Write(data)
	if err = errors.Join(err, temp.Close()); err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		os.Remove(temp.Name())
		return fmt.Errorf("cannot write the session file %s: %w", path, err)
	}
	return nil
}

// readTrusted reads a file and returns an error if anyone but this user or root could have written it: the reader of a session
// file kills processes and runs programs that the file names.
func readTrusted(path string) ([]byte, error) {
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
		return nil, fmt.Errorf("%s is not trusted: its owner is user %d and its mode %04o, so others could have written the programs in it, which would run as user %d; "+
			"run this command as user %d", path, stat.Uid, stat.Mode&0o7777, own, stat.Uid)
	}
	return io.ReadAll(file)
}

// ReadSessionFile reads a session file.
func ReadSessionFile(path string) (SessionFile, error) {
	var f SessionFile
	data, err := readTrusted(path)
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
		return f, fmt.Errorf("%s is not a session file: process %d cannot be leader-only work", path, f.Work.Pid)
	}
	return f, nil
}

// EnsureDead kills what is left of the work. It returns nil once the kernel says that all of the work is dead, and guard and
// daemon too; only then may the session be closed. It never kills guard or daemon, as they may be alive and well. It gives up
// after timeout.
func (f SessionFile) EnsureDead(timeout time.Duration) error {
	now, err := bootID()
	switch {
	case err != nil:
		return fmt.Errorf("cannot determine whether the host was restarted since: %w", err)
	case now == "":
		return errors.New("cannot determine whether the host was restarted since: the host's boot ID is empty")
	case f.Boot == "":
		return errors.New("cannot determine whether the host was restarted since: the session file does not contain the boot ID")
	case f.Boot != now:
		return nil
	case f.Namespace == "" || f.Namespace != pidNamespace():
		return errors.New("zkelectd ran in another container or PID namespace (pid_namespaces(7)), and it is impossible to determine from here whether it still runs: " +
			"give each zkelectd its own zookeeper.session_file, and run 'zkelectd release' where it ran; otherwise the session expires after its timeout")
	case len(f.Processes) == 0:
		return errors.New("the session file does not name the guard and the daemon, which may still run")
	}
	if err := retryFor(min(timeout, exitTime), f.checkOwnersEnded); err != nil {
		return fmt.Errorf("%w; stop that first", err)
	}
	if f.Unit != nil {
		if err := f.Unit.KillAndWait(timeout); err != nil {
			return fmt.Errorf("%w: %w", ErrWorkMayRun, err)
		}
	}
	if err := retryFor(timeout, f.killWork); err != nil {
		return fmt.Errorf("%w: %w", ErrWorkMayRun, err)
	}
	return nil
}

// ErrWorkMayRun reports that guard and daemon have ended, but that the death of their work is not proven.
var ErrWorkMayRun = errors.New("some of the work may still run")

// exitTime is how long a process may take to exit after it was killed.
const exitTime = time.Second

// retryFor calls try until it returns nil or timeout has passed, and returns its last error.
func retryFor(timeout time.Duration, try func() error) error {
	for deadline := boottime.Now() + timeout; ; time.Sleep(maxSweepDelay) {
		if err := try(); err == nil || boottime.Now() >= deadline {
			return err
		}
	}
}

// checkOwnersEnded returns nil if guard and daemon have ended.
func (f SessionFile) checkOwnersEnded() error {
	for _, p := range f.Processes {
		if err := p.checkEnded(); err != nil {
			return err
		}
	}
	return nil
}

// killWork kills what it can find of the work, and returns nil once nothing is left.
func (f SessionFile) killWork() error {
	if f.Containment == nil {
		return nil // no work has ever run in this session
	}
	if f.Containment.Mode != PidnsContainment {
		if err := f.Containment.Keeper.checkEnded(); err != nil {
			return err // the keeper is killing the work, as its guard is dead
		}
	}
	if f.Work != nil {
		f.Work.killGroup()
	}
	for _, pid := range pidsWithEnv(f.Env) {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	return f.Containment.killAndCheck()
}

// killGroup kills the process group of which p was the leader, unless its pid now belongs to another process.
func (p Process) killGroup() {
	if s, err := procinfo.ReadStat(p.Pid); err == nil && s.Started != p.Started {
		return
	}
	syscall.Kill(-p.Pid, syscall.SIGKILL)
}

// workStateFile returns the path of the state file that belongs to a session file.
func workStateFile(session string) string { return session + ".work" }

// RemoveSessionFile removes the files of a session. It leaves the file of another session alone, which the next daemon may
// already have written.
func RemoveSessionFile(c Credentials) {
	if c.File == "" {
		return
	}
	if f, err := ReadSessionFile(c.File); err == nil && f.Session.ID == c.ID {
		os.Remove(c.File)
		os.Remove(workStateFile(c.File))
	}
}
