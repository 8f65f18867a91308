// Package procinfo reads what identifies processes, boots and users of this host.
package procinfo

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
)

// Stat is the state of a process.
type Stat struct {
	// State is the letter that the kernel uses, as in 'R' or 'Z'.
	State byte
	// Parent is the process id of the parent.
	Parent int
	// MajorFaults is how often the process has waited for a page from a disk.
	MajorFaults uint64
	// Ticks is the processor time used so far, in clock ticks.
	Ticks uint64
	// Started is when the process started, in clock ticks since boot. With the pid it identifies a process of one boot.
	Started uint64
}

// Ended reports whether the process has ended and only its parent has not waited for it yet.
func (s Stat) Ended() bool { return s.State == 'Z' || s.State == 'X' }

// ReadStat reads the state of a process.
func ReadStat(pid int) (Stat, error) {
	path := fmt.Sprintf("/proc/%d/stat", pid)
	data, err := os.ReadFile(path)
	if err != nil {
		return Stat{}, err
	}
	s, err := parseStat(data)
	if err != nil {
		return Stat{}, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// The fields after the process name, see proc_pid_stat(5).
const (
	stateField = iota
	parentField
	majorFaultsField = 9
	userField        = 11
	systemField      = 12
	startedField     = 19
)

func parseStat(data []byte) (Stat, error) {
	// The name in parentheses may contain anything, so count from its end.
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) <= startedField {
		return Stat{}, errors.New("too short")
	}
	var errs []error
	number := func(field int) uint64 {
		n, err := strconv.ParseUint(string(fields[field]), 10, 64)
		errs = append(errs, err)
		return n
	}
	s := Stat{
		State: fields[stateField][0], Parent: int(number(parentField)), MajorFaults: number(majorFaultsField),
		Ticks: number(userField) + number(systemField), Started: number(startedField),
	}
	return s, errors.Join(errs...)
}

// StartTime returns when a process started, in clock ticks since boot. The error is os.ErrProcessDone if the process
// has ended and its parent has not waited for it yet.
func StartTime(pid int) (uint64, error) {
	s, err := ReadStat(pid)
	if err == nil && s.Ended() {
		err = os.ErrProcessDone
	}
	if err != nil {
		return 0, err
	}
	return s.Started, nil
}

const bootIDFile = "/proc/sys/kernel/random/boot_id"

// Arguments returns the command line of a process; nil if it cannot be read.
func Arguments(pid int) []string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(data) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
}

// Unit returns the systemd unit of a process, as its control group names it; empty if there is none.
func Unit(pid int) string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return ""
	}
	for _, part := range slices.Backward(strings.FieldsFunc(string(data),
		func(r rune) bool { return r == '/' || r == '\n' })) {
		if strings.HasSuffix(part, ".service") || strings.HasSuffix(part, ".scope") {
			return part
		}
	}
	return ""
}

// BootID returns the id of the current boot of this host.
func BootID() (string, error) {
	id, err := os.ReadFile(bootIDFile)
	return string(bytes.TrimSpace(id)), err
}

// Hostname returns the name of this host, or "unknown" if it cannot be read.
func Hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

// UserName returns the name of a user of this host, as in "uid 1000" if it has none.
func UserName(uid int) string {
	id := strconv.Itoa(uid)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return "uid " + id
}

// AtHost returns user@host.
func AtHost(name string) string { return name + "@" + Hostname() }
