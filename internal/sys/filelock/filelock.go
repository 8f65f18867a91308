// Package filelock locks files for as long as processes live. The kernel ties a lock to an open file: processes that
// inherit the file share the lock, and it ends when the last of them has closed the file or has died. The file is never
// renamed or removed, since another process could then lock a new one.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/sys/procinfo"
	"zkelectd/internal/sys/secretfile"
)

// HeldError is the error of a file that other processes have locked.
type HeldError struct {
	Path string
	// Holders describes the processes; it is empty if this user may not see them.
	Holders []string
}

func (e *HeldError) Error() string {
	if len(e.Holders) == 0 {
		return e.Path + " is locked by a process that this user cannot see"
	}
	return fmt.Sprintf("%s is locked by %s", e.Path, strings.Join(e.Holders, " and "))
}

// retryInterval is how often Lock tries again.
const retryInterval = 20 * time.Millisecond

// Lock locks a file, and creates it unless it exists. It waits for processes that have locked it at most this long; the
// error is then a [*HeldError]. It refuses a file that other users could lock or replace. Closing the file unlocks it,
// once all processes that have inherited it have closed it, too.
func Lock(ctx context.Context, path string, wait time.Duration) (*os.File, error) {
	over := time.NewTimer(wait)
	defer over.Stop()
	again := time.NewTicker(retryInterval)
	defer again.Stop()
	for {
		file, err := open(path)
		if err != nil {
			return nil, err
		}
		err = lock(file)
		if err == nil {
			return file, nil
		}
		if errors.Is(err, unix.EWOULDBLOCK) {
			select {
			case <-again.C:
				file.Close()
				continue
			case <-over.C:
			case <-ctx.Done():
			}
			err = &HeldError{path, holders(file)}
		}
		file.Close()
		return nil, err
	}
}

// lock locks an open file. First the lock: who holds it counts more than whose file it is.
func lock(file *os.File) error {
	path := file.Name()
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("%s cannot be locked: %w", path, err)
	}
	if err := secretfile.CheckDirectory(filepath.Dir(path)); err != nil {
		return fmt.Errorf("%s cannot be locked safely: its directory %w", path, err)
	}
	if err := secretfile.CheckOwn(file); err != nil {
		return err
	}
	return Check(file)
}

// open opens the file, and creates it unless others may change its directory.
func open(path string) (*os.File, error) {
	const flags = os.O_RDWR | unix.O_NOFOLLOW | unix.O_NONBLOCK
	file, err := os.OpenFile(path, flags, 0)
	if !errors.Is(err, fs.ErrNotExist) {
		return file, err
	}
	if err := secretfile.CheckDirectory(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("%s cannot be created: its directory %w", path, err)
	}
	return os.OpenFile(path, flags|os.O_CREATE, 0o600)
}

// Check returns an error unless the lock still keeps other processes out: the file, or its directory, may have been
// removed or replaced, and another process may have locked the new one.
func Check(file *os.File) error {
	own, err := file.Stat()
	if err != nil {
		return fmt.Errorf("the lock cannot be checked: %w", err)
	}
	there, err := os.Lstat(file.Name())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the lock cannot be checked: %w", err)
	}
	if err != nil || !os.SameFile(own, there) {
		return fmt.Errorf("%s was removed or replaced while it was locked", file.Name())
	}
	return nil
}

// holders returns which processes hold the lock on a file: those for whose open file the kernel lists a lock.
func holders(file *os.File) (all []string) {
	own, err := file.Stat()
	if err != nil {
		return nil
	}
	inode := fmt.Sprintf(":%d ", own.Sys().(*syscall.Stat_t).Ino)
	infos, _ := filepath.Glob("/proc/[0-9]*/fdinfo/*") // fails only for a malformed pattern
	for _, info := range infos {
		text, err := os.ReadFile(info)
		_, locks, found := strings.Cut(string(text), "\nlock:")
		if err != nil || !found || !strings.Contains(locks, inode) { // or it has ended, or belongs to another user
			continue
		}
		there, err := os.Stat(strings.Replace(info, "/fdinfo/", "/fd/", 1))
		if err != nil || !os.SameFile(own, there) {
			continue
		}
		pid, _ := strconv.Atoi(strings.Split(info, "/")[2])
		name := fmt.Sprintf("process %d", pid)
		if unit := procinfo.Unit(pid); unit != "" {
			name += " of " + unit
		}
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}
