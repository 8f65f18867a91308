package config

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Files are read after no file in their directories has changed for settleTime, but at the latest maxSettleTime after the first
// change: another file there may change all the time.
const (
	settleTime    = 200 * time.Millisecond
	maxSettleTime = 10 * settleTime
)

// WatchedFiles returns what a reload reads again: the configuration file, which may be empty for none, the directory with the
// group files, and the files with credentials and tokens.
func (c Config) WatchedFiles(file string, getenv func(string) string) []string {
	var files []string
	for _, name := range []string{file, c.GroupsDir, c.ZooKeeper.Auth.File, c.HTTP.TokenFile} {
		path := name
		if name != file && name != c.GroupsDir {
			path, _ = SecretFile(name, getenv)
		}
		if path != "" && !slices.Contains(files, path) {
			files = append(files, path)
		}
	}
	return files
}

// Watch calls changed whenever the content of one of the files has changed, until ctx ends. Each value from lists
// replaces the files; a new one of a later list counts as changed, as it may have changed before it was watched. A
// directory counts as a file whose content is that of its group files; a file or a directory that is missing has not
// changed. Watch watches the directories, since editors and Kubernetes replace files instead of writing them, with
// those of all symbolic links on the way to a file.
func Watch(ctx context.Context, lists <-chan []string, changed func()) error {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("cannot watch files (reload.watch): %w", err)
	}
	defer notify.Close()
	w := &watcher{notify: notify, last: make(map[string][sha256.Size]byte)}
	timer := time.NewTimer(settleTime)
	defer timer.Stop()
	var since time.Time // the first event since the files were read
	noticed := func() {
		if since.IsZero() {
			since = time.Now()
		}
		timer.Reset(min(settleTime, maxSettleTime-time.Since(since)))
	}
	for {
		select {
		case files := <-lists:
			first := w.files == nil
			w.files = files
			if err := w.watch(); err != nil && first {
				return err
			}
			if first {
				w.differs()
			}
			noticed()
		case <-notify.Events:
			noticed()
		case <-notify.Errors: // too many events at once
			noticed()
		case <-timer.C:
			since = time.Time{}
			// Before the files are read, so that no change is missed; a directory may have been replaced. Nothing tells when one that
			// is gone is there again.
			if w.watch() != nil {
				timer.Reset(maxSettleTime)
			}
			if w.differs() {
				changed()
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// watcher is a running Watch.
type watcher struct {
	notify *fsnotify.Watcher
	files  []string
	last   map[string][sha256.Size]byte // hashes of contents, so that no copy of a secret stays in memory
}

// watch watches the directories of the files, and no others.
func (w *watcher) watch() error {
	var failed error
	wanted := make(map[string]bool)
	for _, file := range w.files {
		dirs := directoriesOf(file)
		if entries, err := os.ReadDir(file); err == nil {
			dirs = append(dirs, file)
			for _, e := range entries {
				if e.Type()&fs.ModeSymlink != 0 && !notGroupFile(e.Name()) {
					dirs = append(dirs, directoriesOf(filepath.Join(file, e.Name()))...)
				}
			}
		}
		for _, dir := range dirs {
			wanted[dir] = true
			if err := w.notify.Add(dir); err != nil {
				failed = fmt.Errorf("cannot watch %s (reload.watch): %w", file, err)
			}
		}
	}
	for _, dir := range w.notify.WatchList() {
		if !wanted[dir] {
			w.notify.Remove(dir)
		}
	}
	return failed
}

// differs reads the files, and reports whether the content of one has changed.
func (w *watcher) differs() (found bool) {
	for _, file := range w.files {
		if sum, err := digest(file); err == nil && sum != w.last[file] {
			w.last[file], found = sum, true
		}
	}
	return found
}

// maxLinks bounds how many symbolic links are followed, as the kernel does.
const maxLinks = 40

// directoriesOf returns the directory that contains a file, and those of all symbolic links on the way: what the path
// names changes if an entry of one of them is replaced.
func directoriesOf(path string) []string {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil
	}
	var dirs []string
	at, rest := "/", strings.Split(path[1:], "/")
	for links := 0; len(rest) > 0 && links < maxLinks; {
		name := filepath.Join(at, rest[0])
		target, err := os.Readlink(name)
		if err == nil || len(rest) == 1 {
			dirs = append(dirs, at)
		}
		rest = rest[1:]
		switch {
		case err != nil:
			at = name
		case filepath.IsAbs(target):
			at = "/"
			fallthrough
		default:
			links++
			rest = append(strings.Split(strings.Trim(filepath.Clean(target), "/"), "/"), rest...)
		}
	}
	return dirs
}

// digest returns a hash of the content of a file, or of the group files in a directory.
func digest(path string) (sum [sha256.Size]byte, err error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a named pipe must not block
	if err != nil {
		return sum, err
	}
	defer file.Close()
	all := sha256.New()
	switch info, err := file.Stat(); {
	case err != nil:
		return sum, err
	case info.Mode().IsRegular():
		_, err = io.Copy(all, io.LimitReader(file, maxFile+1))
		return [sha256.Size]byte(all.Sum(nil)), err
	case !info.IsDir():
		return sum, errors.New("is not a regular file")
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return sum, err
	}
	for _, e := range entries {
		if notGroupFile(e.Name()) {
			continue
		}
		data, err := readGroupFile(filepath.Join(path, e.Name()))
		fmt.Fprintf(all, "%q %q %v\n", e.Name(), data, err)
	}
	return [sha256.Size]byte(all.Sum(nil)), nil
}
