package child

import (
	"slices"
	"strings"
)

// Fencing is what the child learns of its leadership.
type Fencing struct {
	Node, Site string
	// Group is the last element of Root.
	Group string
	// Term is the fencing token: it grows with every leadership, and no two leaders have the same.
	Term string
	// Root is the group's root znode.
	Root string
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
	return append(env, "ZKELECTD_NODE="+f.Node, "ZKELECTD_SITE="+f.Site, "ZKELECTD_GROUP="+f.Group,
		"ZKELECTD_TERM="+f.Term, "ZKELECTD_ROOT="+f.Root)
}

// Clean is base without what is the daemon's own.
func Clean(base []string) []string {
	return slices.DeleteFunc(slices.Clone(base), func(kv string) bool {
		return slices.ContainsFunc(private, func(p string) bool { return strings.HasPrefix(kv, p) })
	})
}
