package guard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// SessionFile is what is kept of a session for an undertaker outside (zkelectd release): its credentials, and whose it
// is, so that nobody closes it under a process that works on the strength of it (S1).
type SessionFile struct {
	Session Credentials `json:"session"`
	// Boot is the host's; after a restart of the host nobody named here is alive.
	Boot string `json:"boot"`
	// Processes are the guard, the daemon, and the main process of the work.
	Processes []Process `json:"processes"`
	// Unit is the work of the last leadership, if it was one: it has to be ended, unless the host was restarted.
	Unit *Unit `json:"unit,omitempty"`
}

// Process names a process of one boot for good.
type Process struct {
	Role    string `json:"role"`
	Pid     int    `json:"pid"`
	Started uint64 `json:"started"`
}

// identify names a running process.
func identify(role string, pid int) (Process, bool) {
	s, err := readStat(pid)
	return Process{role, pid, s.started}, err == nil
}

func boot() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(id))
}

// Keep writes the file, readable by its owner only, in one step.
func (f SessionFile) Keep(path string) error {
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

// ReadSession reads a session file.
func ReadSession(path string) (SessionFile, error) {
	var f SessionFile
	data, err := os.ReadFile(path)
	if err != nil {
		return f, err
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return f, fmt.Errorf("%s is not a session file: %w", path, err)
	}
	if f.Session.ID == 0 || len(f.Session.Servers) == 0 {
		return f, fmt.Errorf("%s is not a session file: it names no session", path)
	}
	return f, nil
}

// Alive returns the first process that still runs of those that the session belongs to.
func (f SessionFile) Alive() (Process, bool) {
	if f.Boot != boot() {
		return Process{}, false
	}
	for _, p := range f.Processes {
		if s, err := readStat(p.Pid); err == nil && s.started == p.Started && !s.zombie {
			return p, true
		}
	}
	return Process{}, false
}

// EndUnit ends the unit that its guard can't end any more.
func (f SessionFile) EndUnit(limit time.Duration) error {
	if f.Unit == nil || f.Boot != boot() {
		return nil
	}
	return f.Unit.Await(limit)
}

// Forget removes a session file; none is fine.
func Forget(path string) {
	if path != "" {
		os.Remove(path)
	}
}
