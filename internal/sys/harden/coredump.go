package harden

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// noCore is too small for a core file, and the one value for which the kernel does not pipe a core to a program either
// (see do_coredump; there 0 means the same as unlimited).
const noCore = 1

var coreLimit struct {
	sync.Mutex
	inherited *unix.Rlimit // the limit before DisableCoreDumps; nil if that was not called
}

// DisableCoreDumps keeps this process and its children from leaving a core, which would contain the ZooKeeper password,
// the session password, tokens and keys. It lowers the soft limit only.
//
// PR_SET_DUMPABLE=0 would do that too, but is not used on purpose: /proc/self would then belong to root and, with
// ProtectProc=invisible as in our units, be hidden from this very user. 'zkelectd release' could then no longer see
// that the processes of a session are alive, and might close the session under live work (S1).
func DisableCoreDumps() error {
	coreLimit.Lock()
	defer coreLimit.Unlock()
	if coreLimit.inherited != nil {
		return nil
	}
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &was); err != nil {
		return fmt.Errorf("cannot read the core size limit: %w", err)
	}
	if err := setCoreLimit(min(noCore, was.Max), was.Max); err != nil {
		return err
	}
	coreLimit.inherited = &was
	return nil
}

// WithChildCoreLimit calls start, which starts a process, with the limit that was in force before [DisableCoreDumps].
// Start should be short, since this process could leave a core meanwhile. A limit that cannot be changed is no reason
// not to start the process, nor to report a started one as failed.
func WithChildCoreLimit(start func() error) error {
	coreLimit.Lock()
	defer coreLimit.Unlock()
	if was := coreLimit.inherited; was != nil && setCoreLimit(was.Cur, was.Max) == nil {
		defer setCoreLimit(min(noCore, was.Max), was.Max)
	}
	return start()
}

func setCoreLimit(soft, hard uint64) error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: soft, Max: hard}); err != nil {
		return fmt.Errorf("cannot set the core size limit to %d: %w", soft, err)
	}
	return nil
}
