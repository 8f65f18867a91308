package secretfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Root reads no file that the owner of a directory could not read, and does not wait for one.
func TestReadFound(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		make func(path string) error
		want string
	}{
		"file":      {func(path string) error { return os.WriteFile(path, []byte("text"), 0o600) }, ""},
		"link":      {func(path string) error { return os.Symlink("/etc/passwd", path) }, "is a symbolic link"},
		"FIFO":      {func(path string) error { return syscall.Mkfifo(path, 0o600) }, "is not a regular file"},
		"directory": {func(path string) error { return os.Mkdir(path, 0o700) }, "is not a regular file"},
		"large":     {func(path string) error { return os.WriteFile(path, []byte("texts"), 0o600) }, "is larger than 4 bytes"},
		"missing":   {func(string) error { return nil }, "no such file"},
		"another": {func(path string) error {
			if os.Geteuid() != 0 {
				return os.Symlink("/etc/passwd", path) // only root can give a file away
			}
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Chown(path, 65534, 65534))
		}, "another "},
	} {
		at := filepath.Join(dir, name)
		if err := c.make(at); err != nil {
			t.Fatal(err)
		}
		data, err := ReadFound(at, 4)
		if c.want == "" {
			if err != nil || string(data) != "text" {
				t.Errorf("%s: %q, %v", name, data, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), at) {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
}
