package testhelper

import (
	"os"
	"os/exec"
	"testing"
)

// Read returns the content of a file; empty if it cannot be read.
func Read(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(data)
}

// CopyProgram copies the running test program to another file, which it replaces. A separate process does it: if this
// one had the file open for writing, a process that is forked at that moment would inherit it, and the file could not
// be executed.
func CopyProgram(t *testing.T, to string) {
	t.Helper()
	from, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", from, to+".next").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Rename(to+".next", to); err != nil {
		t.Fatal(err)
	}
}

// PublicDir returns a directory that other users can access, with a name short enough for a socket in it.
func PublicDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "test")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
