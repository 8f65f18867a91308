package guard

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/filelock"
)

// lockSuffix is added to the name of a session file for the name of its lock, and lockFD is the file descriptor at
// which a daemon finds the lock.
const (
	lockSuffix = ".lock"
	lockFD     = SocketFD + 5
)

// LockSessionFile locks a session file, its leaderships' files, and the right to clean them up. Guard and daemon share
// the lock, so it ends when the last of them has ended, whatever has killed them; keepers, work and hooks do not get
// it. It waits for another holder at most this long, and the error then names the holder: nobody else may write or
// remove these files.
func LockSessionFile(ctx context.Context, path string, wait time.Duration) (*os.File, error) {
	lock, err := filelock.Lock(ctx, path+lockSuffix, wait)
	switch {
	case errors.As(err, new(*filelock.HeldError)):
		return nil, fmt.Errorf("the session file %s is in use by another zkelectd: %w; stop that first, or set another zookeeper.session_file", path, err)
	case err != nil:
		return nil, fmt.Errorf("the session file %s cannot be used: %w", path, err)
	}
	return lock, nil
}

// SessionFileUsed reports whether there is a session file, or its lock, which stays: without either, zkelectd has never
// run with it.
func SessionFileUsed(path string) bool {
	for _, name := range []string{path, path + lockSuffix} {
		if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
			return true
		}
	}
	return false
}

// inheritLock keeps the lock that the guard has passed to this process until it ends, and returns the session file;
// empty for none.
func inheritLock(fd int) (session string) {
	unix.CloseOnExec(fd)
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	session, isLock := strings.CutSuffix(name, lockSuffix)
	if err != nil || !isLock {
		return ""
	}
	return session
}
