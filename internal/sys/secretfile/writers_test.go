package secretfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheckWriters(t *testing.T) {
	for name, c := range map[string]struct {
		file, dir os.FileMode
		uid, gid  int // of the file, -1 for the test's own
		want      string
	}{
		"private":                      {0o600, 0o700, -1, -1, ""},
		"others read":                  {0o644, 0o755, -1, -1, ""},
		"others write":                 {0o602, 0o700, -1, -1, "the file has mode 0602: chmod go-w FILE"},
		"a group writes":               {0o660, 0o700, -1, 12345, "the file has mode 0660: chmod go-w FILE"},
		"the owner's own group writes": {0o660, 0o700, -1, os.Getuid(), ""},
		"another user owns it":         {0o600, 0o700, 12345, -1, "the file belongs to user 12345, neither root nor this one: chown root FILE"},
		"others write its directory":   {0o600, 0o707, -1, -1, "its directory DIR has mode 0707: chmod go-w DIR"},
		"a sticky directory":           {0o600, 0o777 | os.ModeSticky, -1, -1, ""},
		"a sticky file":                {0o666 | os.ModeSticky, 0o700, -1, -1, "the file has mode 0666: chmod go-w FILE"},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "f")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, c.uid, c.gid); os.IsPermission(err) {
			t.Logf("%s: skipped, needs root", name)
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		for at, mode := range map[string]os.FileMode{path: c.file, dir: c.dir} {
			if err := os.Chmod(at, mode); err != nil {
				t.Fatal(err)
			}
		}
		want := ""
		if c.want != "" {
			want = "key: " + path + " can be changed by others: " + strings.NewReplacer("FILE", path, "DIR", dir).Replace(c.want)
		}
		got := ""
		if err := CheckWritersOf("key", path); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if err := CheckWritersOf("key", "/dev/zero"); err != nil {
		t.Errorf("a device: %v", err)
	}
}

// In a sticky directory others cannot replace a file, but add one if they may write there.
func TestCheckDirectory(t *testing.T) {
	for _, c := range []struct {
		mode os.FileMode
		gid  int
		ok   bool
	}{
		{0o700, -1, true}, {0o755 | os.ModeSticky, -1, true}, {0o770 | os.ModeSticky, os.Getuid(), true}, {0o777 | os.ModeSticky, -1, false},
		{0o770, 12345, false}, {0o770 | os.ModeSticky, 12345, false},
	} {
		dir := t.TempDir()
		if err := os.Chown(dir, -1, c.gid); os.IsPermission(err) {
			t.Logf("%v, group %d: skipped, needs root", c.mode, c.gid)
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, c.mode); err != nil {
			t.Fatal(err)
		}
		if err := CheckDirectory(dir); (err == nil) != c.ok || err != nil && !strings.Contains(err.Error(), "chmod go-w "+dir) {
			t.Errorf("%v, group %d: %v", c.mode, c.gid, err)
		}
	}
}

// A user who can rename a directory in the path can replace it.
func TestCheckWritersOfDirectoriesAbove(t *testing.T) {
	above := t.TempDir()
	dir := filepath.Join(above, "a", "b")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	refusal := " can be changed by others: the directory " + above + " above it has mode 0777: chmod o-w " + above
	for _, c := range []struct {
		mode os.FileMode
		want string
	}{{0o777, refusal}, {0o777 | os.ModeSticky, ""}, {0o775, ""}} {
		if err := os.Chmod(above, c.mode); err != nil {
			t.Fatal(err)
		}
		for _, at := range []string{path, link} {
			got := ""
			if err := CheckWritersOf("key", at); err != nil {
				got = strings.TrimPrefix(err.Error(), "key: "+at)
			}
			if got != c.want {
				t.Errorf("%s below mode %v: %q, want %q", at, c.mode, got, c.want)
			}
		}
	}
	t.Chdir(above)
	if err := os.Chmod(above, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := CheckWritersOf("key", "a/b/f"); err == nil {
		t.Error("a relative path is accepted")
	}
}
