package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := Lock(t.Context(), path, 0)
	if err != nil {
		t.Fatal(err)
	}
	var held *HeldError
	if _, err := Lock(t.Context(), path, 0); !errors.As(err, &held) || len(held.Holders) != 1 {
		t.Fatalf("a second holder: %v", err)
	}
	if want := fmt.Sprintf("%s is locked by process %d", path, os.Getpid()); !strings.HasPrefix(held.Error(), want) {
		t.Errorf("%q, want %q", held, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Lock(ctx, path, time.Hour); !errors.As(err, &held) {
		t.Errorf("canceled: %v", err)
	}
	time.AfterFunc(2*retryInterval, func() { first.Close() })
	second, err := Lock(t.Context(), path, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if err := Check(second); err != nil {
		t.Error(err)
	}
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	if err := Check(second); err == nil || !strings.Contains(err.Error(), path+" was removed or replaced") {
		t.Errorf("renamed: %v", err)
	}
}

// What another user could lock, or has put there, is no lock.
func TestLockIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		make func(path string) error
		want string
	}{
		"a link":         {func(path string) error { return os.Symlink("/dev/null", path) }, "too many levels of symbolic links"},
		"a FIFO":         {func(path string) error { return syscall.Mkfifo(path, 0o600) }, "is not a regular file"},
		"readable":       {func(path string) error { return os.WriteFile(path, nil, 0o644) }, "others can read it"},
		"a directory":    {func(path string) error { return os.Mkdir(path, 0o700) }, "is a directory"},
		"a shared place": {func(path string) error { return os.Chmod(filepath.Dir(path), 0o777) }, "can be changed by others"},
		"a shared place, 2": {func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(filepath.Dir(path), 0o777))
		}, "can be changed by others"},
		"no directory": {func(path string) error { return os.Remove(filepath.Dir(path)) }, "no such file or directory"},
	} {
		path := filepath.Join(t.TempDir(), "dir", "lock")
		if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o700), c.make(path)); err != nil {
			t.Fatal(err)
		}
		if _, err := Lock(t.Context(), path, 0); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
