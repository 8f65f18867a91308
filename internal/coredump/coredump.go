// Package coredump keeps secrets out of cores: the password for ZooKeeper, what closes a session, tokens, keys.
package coredump

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// none is too small for a file, and the one value by which the kernel tells that a core is not to be piped to a program
// either (do_coredump; for that 0 is as good as unlimited).
const none = 1

var (
	mu        sync.Mutex
	inherited *unix.Rlimit // what was in force before Forbid
)

// Forbid keeps this process, and what it starts, from leaving a core. Only the soft limit is lowered.
//
// PR_SET_DUMPABLE=0 would do that too, and is not set on purpose: /proc/self would be root's then, and with
// ProtectProc=invisible, as in our units, hidden from this very user. 'zkelectd release' could not see any more that the
// processes of a session live, and might close it under live work (S1).
func Forbid() error {
	mu.Lock()
	defer mu.Unlock()
	if inherited != nil {
		return nil
	}
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &was); err != nil {
		return fmt.Errorf("the limit of cores cannot be read: %w", err)
	}
	if err := set(min(none, was.Max), was.Max); err != nil {
		return err
	}
	inherited = &was
	return nil
}

// Inherited calls start with the limit that was in force before Forbid: what is started within has it. It is short, as a core
// could be left meanwhile. A limit that can't be changed is no reason not to start, nor to take what has started for what
// has not.
func Inherited(start func() error) error {
	mu.Lock()
	defer mu.Unlock()
	if inherited != nil && set(inherited.Cur, inherited.Max) == nil {
		defer set(min(none, inherited.Max), inherited.Max)
	}
	return start()
}

func set(soft, hard uint64) error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: soft, Max: hard}); err != nil {
		return fmt.Errorf("the limit of cores cannot be set to %d: %w", soft, err)
	}
	return nil
}
