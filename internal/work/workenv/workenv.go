// Package workenv builds the environment of the leader-only work and of other programs that zkelectd starts.
package workenv

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Fencing tells the work about its leadership.
type Fencing struct {
	Node string `json:"node"`
	Site string `json:"site"`
	// Group is the name of the group, without the slot.
	Group string `json:"group"`
	// Term is the fencing token: it grows with every leadership, and no two leaders have the same one. A standby has none.
	Term string `json:"term,omitempty"`
	// Role is RoleLeader or RoleStandby for promotable work, and empty for other work.
	Role string `json:"role,omitempty"`
	// Root is the group's root znode.
	Root string `json:"root"`
	// Slot is the slot, Slots how many there are, and Epoch grows when that changes; all are empty in a group without
	// slots.
	Slot  string `json:"slot,omitempty"`
	Slots string `json:"slots,omitempty"`
	Epoch string `json:"epoch,omitempty"`
	// Cause is why the term began. PreviousLeader is the node that held the term before, if it is known, and
	// PreviousClean is true if that term was released, so that there was nothing to wait for. Without Cause all are
	// unknown.
	Cause          string `json:"cause,omitempty"`
	PreviousLeader string `json:"previous_leader,omitempty"`
	PreviousClean  bool   `json:"previous_clean,omitempty"`
}

// The roles of promotable work.
const (
	RoleLeader  = "leader"
	RoleStandby = "standby"
)

// Standby returns the identity of promotable work that belongs to no term and to no slot.
func (f Fencing) Standby() Fencing {
	return Fencing{Node: f.Node, Site: f.Site, Group: f.Group, Root: f.Root, Role: RoleStandby}
}

// Variables returns the environment variables for f.
func (f Fencing) Variables() []string {
	if f.Cause == "" {
		return f.identity()
	}
	return append(f.identity(), f.last()...)
}

// LeaderVariables returns the environment variables of a hook that runs on any member, if leader at site leads; empty
// ones if nobody does. Other hosts chose some of the texts: those that are not plain are left out.
func (f Fencing) LeaderVariables(leader, site string) []string {
	vars := append(f.identity(), "ZKELECTD_LEADER="+leader, "ZKELECTD_LEADER_SITE="+site)
	return plain(append(vars, f.last()...))
}

// plain returns the variables with empty values in place of those that are not plain.
func plain(vars []string) []string {
	for i, kv := range vars {
		if name, value, _ := strings.Cut(kv, "="); CheckValue(value) != nil {
			vars[i] = name + "="
		}
	}
	return vars
}

func (f Fencing) identity() []string {
	vars := []string{"ZKELECTD_NODE=" + f.Node, "ZKELECTD_SITE=" + f.Site, "ZKELECTD_GROUP=" + f.Group}
	if f.Role != RoleStandby || f.Term != "" {
		vars = append(vars, "ZKELECTD_TERM="+f.Term)
	}
	vars = append(vars, "ZKELECTD_ROOT="+f.Root)
	if f.Role != "" {
		vars = append(vars, "ZKELECTD_ROLE="+f.Role)
	}
	if f.Slot != "" {
		vars = append(vars, "ZKELECTD_SLOT="+f.Slot, "ZKELECTD_SLOTS="+f.Slots)
	}
	if f.Epoch != "" {
		vars = append(vars, "ZKELECTD_EPOCH="+f.Epoch)
	}
	return vars
}

// last returns the variables about the last leadership.
func (f Fencing) last() []string {
	return []string{"ZKELECTD_CAUSE=" + f.Cause, "ZKELECTD_PREVIOUS_LEADER=" + f.PreviousLeader,
		"ZKELECTD_PREVIOUS_CLEAN=" + strconv.FormatBool(f.PreviousClean)}
}

// Check returns an error unless all values can be written to an environment file for systemd.
func (f Fencing) Check() error {
	term, err := strconv.ParseInt(f.Term, 10, 64)
	if standby := f.Role == RoleStandby && f.Term == ""; !standby && (err != nil || term < 1 ||
		strconv.FormatInt(term, 10) != f.Term) {
		return fmt.Errorf("the term %q is not a positive number", f.Term)
	}
	for _, kv := range f.Variables() {
		name, value, _ := strings.Cut(kv, "=")
		if err := CheckValue(value); err != nil {
			return fmt.Errorf("%s %w", name, err)
		}
	}
	return nil
}

// maxValue bounds a value in an environment file, in bytes.
const maxValue = 1024

// CheckValue returns an error unless systemd reads a value in an environment file as plain text.
func CheckValue(value string) error {
	if len(value) > maxValue {
		return fmt.Errorf("is longer than %d bytes", maxValue)
	}
	if !utf8.ValidString(value) {
		return errors.New("is not valid UTF-8")
	}
	for _, r := range value {
		if !unicode.IsPrint(r) || strings.ContainsRune("\"'`$\\", r) {
			return fmt.Errorf("contains %s, which systemd may not read as plain text", strconv.QuoteRune(r))
		}
	}
	return nil
}

// private are the prefixes of the daemon's own variables: its settings and secrets, and its connection to systemd.
var private = []string{"ZKELECTD_", "NOTIFY_SOCKET=", "WATCHDOG_", "LISTEN_", "CREDENTIALS_DIRECTORY=",
	"INVOCATION_ID=", "MAINPID="}

// Build returns the environment of the work: base without the daemon's own variables, extra, and the fencing variables,
// which extra cannot override.
func Build(base []string, f Fencing, extra map[string]string) []string {
	return append(Extend(base, extra), f.Variables()...)
}

// Extend returns the environment of a hook that belongs to no term: base without the daemon's own variables, and extra.
func Extend(base []string, extra map[string]string) []string {
	env := Clean(base)
	for key, value := range extra {
		if !strings.HasPrefix(key, "ZKELECTD_") {
			env = append(env, key+"="+value)
		}
	}
	return env
}

// Clean returns base without the daemon's own variables.
func Clean(base []string) []string {
	return slices.DeleteFunc(slices.Clone(base), func(kv string) bool {
		return slices.ContainsFunc(private, func(p string) bool { return strings.HasPrefix(kv, p) })
	})
}
