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

// settle is how long a directory must be left alone before a file in it counts as written, restless how long that is waited
// for: something else there may be written all the time.
const (
	settle   = 200 * time.Millisecond
	restless = 10 * settle
)

// WatchedFiles returns the files that a reload reads again: that of the configuration, empty for none, and those with
// credentials and tokens.
func (c Config) WatchedFiles(file string, getenv func(string) string) []string {
	var files []string
	for _, name := range []string{file, c.ZooKeeper.Auth.File, c.HTTP.TokenFile} {
		path := name
		if name != file {
			path, _ = SecretFile(name, getenv)
		}
		if path != "" && !slices.Contains(files, path) {
			files = append(files, path)
		}
	}
	return files
}

// Watch calls changed whenever the content of one of the files has, until ctx is over. It watches the directories, since
// editors and Kubernetes replace files instead of writing them.
func Watch(ctx context.Context, files []string, changed func()) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("cannot watch files (reload.watch): %w", err)
	}
	defer w.Close()
	for _, file := range files {
		if err := w.Add(filepath.Dir(file)); err != nil {
			return fmt.Errorf("%s cannot be watched (reload.watch): %w", file, err)
		}
	}
	last := make(map[string][32]byte) // hashes, so that no copy of a secret is kept
	differs := func() (found bool) {
		for _, file := range files {
			if data, err := os.ReadFile(file); err == nil && sha256.Sum256(data) != last[file] {
				last[file], found = sha256.Sum256(data), true
			}
		}
		return found
	}
	differs()
	timer := time.NewTimer(settle)
	defer timer.Stop()
	var since time.Time // the first event that was not looked after
	noticed := func() {
		if since.IsZero() {
			since = time.Now()
		}
		timer.Reset(min(settle, restless-time.Since(since)))
	}
	for {
		select {
		case <-w.Events:
			noticed()
		case <-w.Errors: // too many events at once: look
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
