package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"zkelectd/internal/sys/procinfo"
	"zkelectd/internal/sys/secretfile"
)

// SessionFile is the content of the file from which 'zkelectd release' and the next start clean up after a zkelectd
// that was killed. It holds the session's credentials, and which processes depend on the session, so that it is not
// closed while one of them runs (S1).
type SessionFile struct {
	Session Credentials `json:"session"`
	// Boot is the host's boot ID. After a restart of the host none of these processes exists any more.
	Boot string `json:"boot"`
	// Namespace is the PID namespace to which the pids below belong; they mean nothing in another one.
	Namespace string `json:"namespace"`
	// Processes are the guard and the daemon.
	Processes []Process `json:"processes"`
	// Survivors are the works of earlier daemons of this guard.
	Survivors []LeadershipRecord `json:"survivors,omitempty"`
	// Leaderships are those of this session. Each has its own file beside this one, so that a change of one of them costs
	// the same however many there are.
	Leaderships []LeadershipRecord `json:"-"`
}

// LeadershipRecord is what a leadership leaves behind if its daemon dies.
type LeadershipRecord struct {
	// Name is the name of the group.
	Name string `json:"name"`
	// Work is the main process of the work, Containment describes how the work is contained, and Env are environment
	// variables by which its processes can be found; all of them are nil without work.
	Work        *Process           `json:"work,omitempty"`
	Containment *ContainmentRecord `json:"containment,omitempty"`
	Env         []string           `json:"env,omitempty"`
	// Unit is the work, if systemd runs it. It has to be killed, unless the host was restarted.
	Unit *Unit `json:"unit,omitempty"`
	// PendingHooks have to run when the work is dead, see [Leadership.SetPendingHooks].
	PendingHooks []Spec `json:"pending_hooks,omitempty"`
	// Release is the transaction that releases the leadership; nil if there is none.
	Release json.RawMessage `json:"release,omitempty"`

	file string // from which it was read
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

// Write writes the file atomically, readable by its owner only. It does not write the leaderships.
func (f SessionFile) Write(path string) error {
	f.Session.Releases = nil // each leadership has its own
	return writePrivate(path, f)
}

func writePrivate(path string, content any) error {
	data, err := json.Marshal(content)
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

// leadershipFile returns the path of the file of a leadership, and workStateFile that of its state file.
func leadershipFile(session string, id int) string { return fmt.Sprintf("%s.%d", session, id) }

func workStateFile(session string, id int) string { return leadershipFile(session, id) + stateSuffix }

const stateSuffix = ".state"

// leadershipFiles returns the files of all leaderships that belong to a session file, and their state files.
func leadershipFiles(session string) (records, states []string, err error) {
	entries, err := os.ReadDir(filepath.Dir(session))
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		id, ok := strings.CutPrefix(e.Name(), filepath.Base(session)+".")
		if !ok {
			continue
		}
		id, isState := strings.CutSuffix(id, stateSuffix)
		path := filepath.Join(filepath.Dir(session), e.Name())
		if _, err := strconv.ParseUint(id, 10, 0); err != nil {
			continue
		}
		if isState {
			states = append(states, path)
		} else {
			records = append(records, path)
		}
	}
	return records, states, nil
}

// removeLeadershipFiles removes the files of all leaderships that belong to a session file, except those that keep
// returns true for, and the state files of survivors: nothing else proves that those are dead.
func removeLeadershipFiles(session string, survivors []LeadershipRecord, keep func(path string) bool) {
	records, states, _ := leadershipFiles(session) // an error would mean that there are none
	survives := func(path string) bool {
		return slices.ContainsFunc(survivors, func(r LeadershipRecord) bool {
			return r.Containment != nil && r.Containment.StateFile == path
		})
	}
	for _, path := range append(records, states...) {
		if !keep(strings.TrimSuffix(path, stateSuffix)) && !survives(path) {
			os.Remove(path)
		}
	}
}

// readOwn reads a file that only this user can have written: the reader of a session file kills processes and runs
// programs that the file names. The advice to remove a file that is not the user's own comes with a warning here.
func readOwn(path string) ([]byte, error) {
	data, err := secretfile.ReadOwn(path, maxFrame)
	if err != nil && !errors.As(err, new(*os.PathError)) {
		err = fmt.Errorf("%w, but not while its zkelectd or the work may run: only this file says what to kill", err)
	}
	return data, err
}

// ReadSessionFile reads a session file.
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
	records, _, err := leadershipFiles(path)
	if err != nil {
		return f, fmt.Errorf("cannot list the leaderships of %s: %w", path, err)
	}
	for _, file := range records {
		r, err := readLeadership(file)
		if err != nil {
			return f, err
		}
		f.Leaderships = append(f.Leaderships, r)
		if r.Release != nil {
			f.Session.Releases = append(f.Session.Releases, r.Release)
		}
	}
	for _, r := range f.all() {
		if r.Work != nil && r.Work.Pid <= 1 {
			return f, fmt.Errorf("%s is not a session file: process %d cannot be leader-only work", path, r.Work.Pid)
		}
	}
	return f, nil
}

func readLeadership(path string) (LeadershipRecord, error) {
	r := LeadershipRecord{file: path}
	data, err := readOwn(path)
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		return r, fmt.Errorf("cannot read the leadership in %s: %w", path, err)
	}
	return r, nil
}

// all returns the records of all leaderships.
func (f SessionFile) all() []LeadershipRecord { return slices.Concat(f.Survivors, f.Leaderships) }

// RunPendingHooks runs the pending hooks of all leaderships, and records in the files, of which path is the first,
// which of them remain: those that have failed. It returns the optional hooks, which the caller must run: they do not
// delay the end of the session, and are not recorded any more.
func (f SessionFile) RunPendingHooks(path string, run func(Spec) error) (optional []Spec, err error) {
	var errs []error
	remains := func(r *LeadershipRecord) {
		all := r.PendingHooks
		r.PendingHooks = nil
		for _, s := range all {
			if s.Optional {
				optional = append(optional, s)
			} else if err := run(s); err != nil {
				r.PendingHooks, errs = append(r.PendingHooks, s), append(errs, err)
			}
		}
	}
	for i := range f.Survivors {
		remains(&f.Survivors[i])
	}
	errs = append(errs, f.Write(path))
	for _, r := range f.Leaderships {
		if len(r.PendingHooks) > 0 {
			remains(&r)
			errs = append(errs, writePrivate(r.file, r))
		}
	}
	return optional, errors.Join(errs...)
}

// RemoveSessionFile removes the files of a session. It leaves the file of another session alone, which the next daemon
// may already have written.
func RemoveSessionFile(c Credentials) {
	if c.File == "" {
		return
	}
	if f, err := ReadSessionFile(c.File); err == nil && f.Session.ID == c.ID {
		os.Remove(c.File)
		removeLeadershipFiles(c.File, f.Survivors, func(string) bool { return false })
	}
}
