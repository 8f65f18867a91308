package config

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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

// Watch calls changed whenever the content of one of the files has changed, until ctx ends. A directory counts as a file whose
// content is that of its group files; a file or a directory that is missing has not changed. It watches the directories, since
// editors and Kubernetes replace files instead of writing them.
func Watch(ctx context.Context, files []string, changed func()) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("cannot watch files (reload.watch): %w", err)
	}
	defer w.Close()
	for _, file := range files {
		if err := w.Add(filepath.Dir(file)); err != nil {
			return fmt.Errorf("cannot watch %s (reload.watch): %w", file, err)
		}
	}
	last := make(map[string][sha256.Size]byte) // so that no copy of a secret stays in memory
	differs := func() (found bool) {
		for _, file := range files {
			if isDir(file) {
				w.Add(file) // again, as it may have been replaced; before it is read, so that no change is missed
			}
			if sum, err := digest(file); err == nil && sum != last[file] {
				last[file], found = sum, true
			}
		}
		return found
	}
	differs()
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
		case <-w.Events:
			noticed()
		case <-w.Errors: // too many events at once
			noticed()
		case <-timer.C:
			since = time.Time{}
			if differs() {
				changed()
			}
		case <-ctx.Done():
			return nil
		}
	}
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// digest returns a hash of the content of a file, or of the group files in a directory.
func digest(path string) (sum [sha256.Size]byte, err error) {
	if !isDir(path) {
		data, err := os.ReadFile(path)
		return sha256.Sum256(data), err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return sum, err
	}
	all := sha256.New()
	for _, e := range entries {
		if notGroupFile(e.Name()) {
			continue
		}
		data, err := readGroupFile(filepath.Join(path, e.Name()))
		fmt.Fprintf(all, "%q %q %v\n", e.Name(), data, err)
	}
	return [sha256.Size]byte(all.Sum(nil)), nil
}
