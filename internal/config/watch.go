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

// WatchedFiles returns the files that a reload reads again: the configuration file, which may be empty for none, and the files
// with credentials and tokens.
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

// Watch calls changed whenever the content of one of the files has changed, until ctx ends. It watches the directories, since
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
	last := make(map[string][32]byte) // hashes, so that no copy of a secret stays in memory
	differs := func() (found bool) {
		for _, file := range files {
			if data, err := os.ReadFile(file); err == nil && sha256.Sum256(data) != last[file] {
				last[file], found = sha256.Sum256(data), true
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
