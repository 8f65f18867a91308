package child

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Fencing is what the child learns of its leadership.
type Fencing struct {
	Node string `json:"node"`
	Site string `json:"site"`
	// Group is the last element of Root.
	Group string `json:"group"`
	// Term is the fencing token: it grows with every leadership, and no two leaders have the same.
	Term string `json:"term"`
	// Root is the group's root znode.
	Root string `json:"root"`
}

// Variables returns the fencing variables.
func (f Fencing) Variables() []string {
	return []string{"ZKELECTD_NODE=" + f.Node, "ZKELECTD_SITE=" + f.Site, "ZKELECTD_GROUP=" + f.Group, "ZKELECTD_TERM=" + f.Term, "ZKELECTD_ROOT=" + f.Root}
}

// CheckTexts returns an error unless all values can stand in an environment file of systemd's.
func (f Fencing) CheckTexts() error {
	if term, err := strconv.ParseInt(f.Term, 10, 64); err != nil || term < 1 || strconv.FormatInt(term, 10) != f.Term {
		return fmt.Errorf("the term %q is not a positive number", f.Term)
	}
	for _, kv := range f.Variables() {
		name, value, _ := strings.Cut(kv, "=")
		if err := CheckText(value); err != nil {
			return fmt.Errorf("%s %w", name, err)
		}
	}
	return nil
}

// maxText bounds a value in an environment file.
const maxText = 1024

// CheckText returns an error for a value that is more than plain text in an environment file of systemd's.
func CheckText(value string) error {
	if len(value) > maxText {
		return fmt.Errorf("is longer than %d bytes", maxText)
	}
	if !utf8.ValidString(value) {
		return errors.New("is not valid UTF-8")
	}
	for _, r := range value {
		if !unicode.IsPrint(r) || strings.ContainsRune("\"'`$\\", r) {
			return fmt.Errorf("contains %s, which systemd may read as more than text", strconv.QuoteRune(r))
		}
	}
	return nil
}

// private are variables by prefix that belong to the daemon: its settings and secrets, and its ties to systemd.
var private = []string{"ZKELECTD_", "NOTIFY_SOCKET=", "WATCHDOG_", "LISTEN_", "CREDENTIALS_DIRECTORY=", "INVOCATION_ID=", "MAINPID="}

// Environment makes the child's: base without what is the daemon's own, extra, and the fencing variables, which extra
// can't override.
func Environment(base []string, f Fencing, extra map[string]string) []string {
	env := Clean(base)
	for key, value := range extra {
		if !strings.HasPrefix(key, "ZKELECTD_") {
			env = append(env, key+"="+value)
		}
	}
	return append(env, f.Variables()...)
}

// Clean is base without what is the daemon's own.
func Clean(base []string) []string {
	return slices.DeleteFunc(slices.Clone(base), func(kv string) bool {
		return slices.ContainsFunc(private, func(p string) bool { return strings.HasPrefix(kv, p) })
	})
}
