package statedir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func open(t *testing.T, path string) *Dir {
	t.Helper()
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// private returns a directory that Open accepts.
func private(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "state")
}

func TestWriteIsReadBackByTheNextProcess(t *testing.T) {
	path := private(t)
	d := open(t, path)
	if _, err := d.Read("a"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("a file that was never written: %v", err)
	}
	for _, text := range []string{"a long first content", "short"} {
		if err := d.Write("a", []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := d.Read("a"); err != nil || string(got) != text {
			t.Errorf("read %q, %v", got, err)
		}
	}
	d.Close()
	again := open(t, path)
	if got, err := again.Read("a"); err != nil || string(got) != "short" {
		t.Errorf("read %q, %v", got, err)
	}
	info, err := os.Stat(again.Path("a"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if _, err := os.Stat(again.Path("a.new")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a temporary file is left: %v", err)
	}
}

// A crash between the write of the new file and its rename leaves the old content, and the next write replaces the leftover.
func TestWriteAfterACrash(t *testing.T) {
	d := open(t, private(t))
	if err := d.Write("a", []byte("old")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.Path("a.new"), []byte("a part of something longer"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := d.Read("a"); err != nil || string(got) != "old" {
		t.Errorf("read %q, %v", got, err)
	}
	if err := d.Write("a", []byte("new")); err != nil {
		t.Fatal(err)
	}
	if got, err := d.Read("a"); err != nil || string(got) != "new" {
		t.Errorf("read %q, %v", got, err)
	}
}

func TestTwoProcesses(t *testing.T) {
	path := private(t)
	first := open(t, path)
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "in use by another zkelectd") {
		t.Errorf("a second user: %v", err)
	}
	first.Close()
	open(t, path)
}

func TestRefusedDirectories(t *testing.T) {
	base := t.TempDir()
	file := filepath.Join(base, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	shared := filepath.Join(base, "shared")
	if err := os.Mkdir(shared, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(shared, 0o777); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		file:                             "not a directory",
		shared:                           "can be changed by others",
		filepath.Join(base, "no", "way"): "cannot be created",
	} {
		if d, err := Open(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v", path, d, err)
		}
	}
}

// What cannot be trusted or read is an error, and not the same as no file.
func TestUnreadableFiles(t *testing.T) {
	d := open(t, private(t))
	for name, make := range map[string]func(path string) error{
		"readable":  func(path string) error { return os.WriteFile(path, []byte("x"), 0o644) },
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"too large": func(path string) error { return os.WriteFile(path, []byte(strings.Repeat("x", 2<<20)), 0o600) },
	} {
		if err := make(d.Path(name)); err != nil {
			t.Fatal(err)
		}
		if got, err := d.Read(name); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// What was not confirmed is reported.
func TestWriteFails(t *testing.T) {
	d := open(t, private(t))
	if err := os.Mkdir(d.Path("a"), 0o700); err != nil { // the rename fails
		t.Fatal(err)
	}
	if err := d.Write("a", []byte("x")); err == nil {
		t.Error("a failed rename was not reported")
	}
}

// A directory whose lock was removed or replaced is not locked any more, although the process still has the old lock: another one could
// lock the new file.
func TestLostLock(t *testing.T) {
	for name, lose := range map[string]func(path string) error{
		"removed":            func(path string) error { return os.Remove(filepath.Join(path, lockName)) },
		"renamed":            func(path string) error { return os.Rename(filepath.Join(path, lockName), filepath.Join(path, "old")) },
		"directory replaced": func(path string) error { return errors.Join(os.Rename(path, path+".old"), os.Mkdir(path, 0o700)) },
	} {
		path := private(t)
		d := open(t, path)
		if err := errors.Join(d.CheckLocked(), d.Write("a", []byte("x"))); err != nil {
			t.Fatal(err)
		}
		if err := lose(path); err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			if i == 1 {
				open(t, path) // another process
			}
			if err := d.CheckLocked(); err == nil || !strings.Contains(err.Error(), "another zkelectd may use the state directory") {
				t.Errorf("%s: %v", name, err)
			}
			if err := d.Write("a", []byte("y")); err == nil {
				t.Errorf("%s: written", name)
			}
		}
	}
	d := open(t, private(t))
	d.Close()
	if err := d.CheckLocked(); err == nil {
		t.Error("a closed directory is locked")
	}
}
