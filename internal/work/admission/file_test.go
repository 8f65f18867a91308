package admission

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"zkelectd/internal/test/testhelper"
)

// An existing file of any type is replaced, and neither opened nor followed.
func TestEnvironmentFileReplacesExistingFile(t *testing.T) {
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("as it was"), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, put := range map[string]func(path string) error{
		"nothing": func(string) error { return nil },
		"a file":  func(path string) error { return os.WriteFile(path, []byte("LD_PRELOAD=x\n"), 0o666) },
		"a FIFO":  func(path string) error { return syscall.Mkfifo(path, 0o666) },
		"a link":  func(path string) error { return os.Symlink(victim, path) },
	} {
		dir := filepath.Join(t.TempDir(), "files")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := put(filepath.Join(dir, "a.service.env")); err != nil {
			t.Fatal(err)
		}
		if err := writeFile(dir, "a.service.env", testFencing); err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if text := testhelper.Read(filepath.Join(dir, "a.service.env")); !strings.HasPrefix(text, "ZKELECTD_NODE=") || strings.Contains(text, "LD_PRELOAD") {
			t.Errorf("%s: content %q", what, text)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
			t.Errorf("%s: %v, %v", what, left, err)
		}
	}
	if text := testhelper.Read(victim); text != "as it was" {
		t.Errorf("the link was followed: %q", text)
	}
}

// systemd may read the file at any time, and must never see a part of it.
func TestEnvironmentFileIsReplacedAtomically(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "files")
	if err := writeFile(dir, "a.service.env", testFencing); err != nil {
		t.Fatal(err)
	}
	want := testhelper.Read(filepath.Join(dir, "a.service.env"))
	done := make(chan error, 1)
	go func() { // ends after 500 writes
		for range 500 {
			if err := writeFile(dir, "a.service.env", testFencing); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			return
		default:
		}
		if text, err := os.ReadFile(filepath.Join(dir, "a.service.env")); err != nil || string(text) != want {
			t.Errorf("%q, %v", text, err)
			<-done
			return
		}
	}
}

func TestEnvironmentFileNeedsPrivateDirectory(t *testing.T) {
	for what, put := range map[string]func(dir string) error{
		"of another user":    func(dir string) error { return os.Chown(dir, daemonUser, daemonUser) },
		"writable by all":    func(dir string) error { return os.Chmod(dir, 0o777) },
		"writable by others": func(dir string) error { return os.Chmod(dir, 0o775) },
		"a link": func(dir string) error {
			if err := os.Remove(dir); err != nil {
				return err
			}
			return os.Symlink(t.TempDir(), dir)
		},
	} {
		dir := filepath.Join(t.TempDir(), "files")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := put(dir); err != nil {
			t.Fatal(err)
		}
		if err := writeFile(dir, "a.service.env", testFencing); err == nil || !strings.Contains(err.Error(), "is not a directory that only user 0 can write: remove it") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// systemd treats EnvironmentFile= as a pattern, in which a backslash quotes.
func TestEnvironmentFilePatternMatchesFile(t *testing.T) {
	for _, unit := range []string{"app.service", "app@g2.service", `app@srv\x2dd-1.service`} {
		pattern := EnvironmentFile(unit)
		if ok, err := filepath.Match(pattern, filepath.Join(EnvDir, environmentFileName(unit))); err != nil || !ok {
			t.Errorf("%s does not match %s: %v", pattern, environmentFileName(unit), err)
		}
	}
}
