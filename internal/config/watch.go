package config

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settle is how long a file must be left alone before it counts as written.
const settle = 200 * time.Millisecond

// Watch calls changed whenever the file's content has, until ctx is over. It watches the directory, since editors and
// Kubernetes replace files instead of writing them.
func Watch(ctx context.Context, path string, changed func()) error {
	w, err := fsnotify.NewWatcher()
	if err == nil {
		defer w.Close()
		err = w.Add(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("%s cannot be watched (reload.watch): %w", path, err)
	}
	last, _ := os.ReadFile(path)
	timer := time.NewTimer(settle)
	defer timer.Stop()
	for {
		select {
		case <-w.Events:
			timer.Reset(settle)
		case <-w.Errors: // too many events at once: look
			timer.Reset(settle)
		case <-timer.C:
			now, err := os.ReadFile(path)
			if err == nil && !bytes.Equal(now, last) {
				last = now
				changed()
			}
		case <-ctx.Done():
			return nil
		}
	}
}
