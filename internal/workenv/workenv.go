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
	// Group is the last element of Root.
	Group string `json:"group"`
	// Term is the fencing token: it grows with every leadership, and no two leaders have the same one.
	Term string `json:"term"`
	// Root is the group's root znode.
	Root string `json:"root"`
}

// Variables returns the environment variables for f.
func (f Fencing) Variables() []string {
	return []string{"ZKELECTD_NODE=" + f.Node, "ZKELECTD_SITE=" + f.Site, "ZKELECTD_GROUP=" + f.Group, "ZKELECTD_TERM=" + f.Term, "ZKELECTD_ROOT=" + f.Root}
}

// Check returns an error unless all values can be written to an environment file for systemd.
func (f Fencing) Check() error {
	if term, err := strconv.ParseInt(f.Term, 10, 64); err != nil || term < 1 || strconv.FormatInt(term, 10) != f.Term {
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
var private = []string{"ZKELECTD_", "NOTIFY_SOCKET=", "WATCHDOG_", "LISTEN_", "CREDENTIALS_DIRECTORY=", "INVOCATION_ID=", "MAINPID="}

// Build returns the environment of the work: base without the daemon's own variables, extra, and the fencing variables, which
// extra cannot override.
func Build(base []string, f Fencing, extra map[string]string) []string {
	env := Clean(base)
	for key, value := range extra {
		if !strings.HasPrefix(key, "ZKELECTD_") {
			env = append(env, key+"="+value)
		}
	}
	return append(env, f.Variables()...)
}

// Clean returns base without the daemon's own variables.
func Clean(base []string) []string {
	return slices.DeleteFunc(slices.Clone(base), func(kv string) bool {
		return slices.ContainsFunc(private, func(p string) bool { return strings.HasPrefix(kv, p) })
	})
}
