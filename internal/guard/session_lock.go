package guard

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/sys/filelock"
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
		return nil, fmt.Errorf("the session file %s is in use by another zkelectd: %w; stop that first, or set "+
			"another zookeeper.session_file", path, err)
	case err != nil:
		if user, other := ownedByAnother(path); other {
			return nil, fmt.Errorf("the session file %s belongs to the zkelectd of user %d: run this "+
				"command as that user", path, user)
		}
		return nil, fmt.Errorf("the session file %s cannot be used: %w", path, err)
	}
	return lock, nil
}

// ownedByAnother reports whether the lock of a session file and its directory belong to one other user. Advice to root
// to take the directory over would keep that user's zkelectd from starting.
func ownedByAnother(path string) (user uint32, other bool) {
	var lock, dir unix.Stat_t
	if errors.Join(unix.Lstat(path+lockSuffix, &lock), unix.Stat(filepath.Dir(path), &dir)) != nil {
		return 0, false
	}
	return lock.Uid, lock.Uid == dir.Uid && int(lock.Uid) != os.Geteuid()
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
// empty for none, or if the lock was removed: another process may have locked a new one.
func inheritLock(fd int, log *slog.Logger) (session string) {
	unix.CloseOnExec(fd)
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	session, isLock := strings.CutSuffix(name, lockSuffix)
	if lock, removed := strings.CutSuffix(name, lockSuffix+" (deleted)"); removed {
		log.Error("the lock of the session file was removed: 'zkelectd release' will not find this session, or the "+
			"work that depends on it; restart zkelectd",
			"lock", lock+lockSuffix)
	}
	if err != nil || !isLock {
		return ""
	}
	return session
}
