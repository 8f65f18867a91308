package cli

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// Started with a umask of 0 and with core dumps enabled: its files are accessible to its user only, core dumps cannot contain
// its secrets, and the child inherits the umask and the limit.
func TestSecretsAreKeptWhateverTheUmaskAndLimits(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	made := filepath.Join(f.dir, "made")
	mkdir(t, made)
	session, socket := filepath.Join(made, "session"), filepath.Join(made, "s")
	f.configure("a", "dc1", 100, fmt.Sprintf("zookeeper: {session_file: %s}\nhttp: {listen: \"unix:%s\"}\n", session, socket))
	f.startCommand("a", exec.Command("sh", "-c", `umask 0; ulimit -Sc 100; exec zkelectd run --config "$1"`, "sh", f.file("a")))
	f.until("a leads", leads("a"))
	f.waitForWork("a")
	guard, daemon, child := f.daemons["a"].Process.Pid, f.daemon("a"), f.child("a")

	core := regexp.MustCompile(`Max core file size +([0-9a-z]+) `)
	for who, c := range map[string]struct {
		pid  int
		want string
	}{"guard": {guard, "1"}, "daemon": {daemon, "1"}, "child": {child, "51200"}} {
		limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", c.pid))
		if m := core.FindSubmatch(limits); err != nil || m == nil || string(m[1]) != c.want {
			t.Errorf("%s: %s, %v, want %s", who, m, err, c.want)
		}
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", child))
	if err != nil || !regexp.MustCompile(`Umask:\s+0000\n`).Match(status) {
		t.Errorf("the child's umask: %s, %v", status, err)
	}

	var seen []string
	err = filepath.WalkDir(made, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		seen = append(seen, d.Name())
		if path != socket && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("others may access %s: %s", path, info.Mode())
		}
		if path == session && info.Mode() != 0o600 {
			t.Errorf("%s has mode %s", path, info.Mode())
		}
		if path == socket && info.Mode().Perm()&0o007 != 0 {
			t.Errorf("others may access %s: %s", path, info.Mode())
		}
		return nil
	})
	if err != nil || len(seen) < 3 {
		t.Errorf("made were %q, %v", seen, err)
	}
	f.checkInvariants()
}
