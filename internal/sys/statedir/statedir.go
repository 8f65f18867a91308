// Package statedir keeps the durable state of a daemon: small files in a directory that one process uses at a time.
// What Write has confirmed survives a crash of the host. A file that is damaged or cannot be read is an error, never
// the same as no file.
package statedir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"zkelectd/internal/sys/filelock"
	"zkelectd/internal/sys/secretfile"
)

const lockName = "state.lock"

// Dir is a locked directory. The caller must close it.
type Dir struct {
	path string
	lock *os.File
}

// Open creates a directory unless it exists, and locks it. It returns an error if other users can change the directory,
// or if another process has locked it.
func Open(path string) (*Dir, error) {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("the state directory cannot be created: %w", err)
	}
	lock, err := filelock.Lock(context.Background(), filepath.Join(path, lockName), 0)
	if err != nil {
		if errors.As(err, new(*filelock.HeldError)) {
			return nil, fmt.Errorf("the state directory %s is in use by another zkelectd: stop it, or give this one "+
				"another by StateDirectory= in its unit, or by the variable STATE_DIRECTORY: %w", path, err)
		}
		return nil, fmt.Errorf("the state directory cannot be locked: %w", err)
	}
	return &Dir{path: path, lock: lock}, nil
}

// CheckLocked returns an error unless the directory is still locked for other processes: its lock, or the directory
// itself, may have been removed or replaced, and another process may have locked the new one.
func (d *Dir) CheckLocked() error {
	if err := filelock.Check(d.lock); err != nil {
		return fmt.Errorf("%w, so another zkelectd may use the state directory: restart this one", err)
	}
	return nil
}

// Path returns the path of a file.
func (d *Dir) Path(name string) string { return filepath.Join(d.path, name) }

// Read returns the content of a file. The error matches [fs.ErrNotExist] if there is none.
func (d *Dir) Read(name string) ([]byte, error) { return Read(d.path, name) }

// Read returns the content of a file in a directory that need not exist, and may be locked by another process.
func Read(path, name string) ([]byte, error) {
	return secretfile.Read("the state", filepath.Join(path, name), secretfile.ForbiddenMode(false))
}

// Write replaces a file. If it returns an error, the file may have the old content or the new one.
func (d *Dir) Write(name string, data []byte) error {
	if err := d.CheckLocked(); err != nil {
		return fmt.Errorf("the state cannot be written: %w", err)
	}
	if err := Replace(d.path, name, data); err != nil {
		return fmt.Errorf("the state cannot be written: %w", err)
	}
	return nil
}

// Replace is [Dir.Write] for a file that several processes may write, each the same. It writes another file first: a
// crash leaves the old content or the new one, never a part.
func Replace(path, name string, data []byte) error {
	next := filepath.Join(path, name+".new")
	file, err := secretfile.OpenOwn(next)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := file.Truncate(0); err != nil {
		return err
	}
	if _, err := file.Write(data); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	if err := os.Rename(next, filepath.Join(path, name)); err != nil {
		return err
	}
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// Close unlocks the directory.
func (d *Dir) Close() error { return d.lock.Close() }
