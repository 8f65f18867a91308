package main

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"zkelectd/internal/config"
)

// Started with a umask of 0 and with core dumps enabled: its files are accessible to its user only, core dumps cannot contain
// its secrets, and the child inherits the umask and the limit.
func TestSecretsAreKeptWhateverTheUmaskAndLimits(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	made := filepath.Join(f.dir, "made")
	if err := os.Mkdir(made, 0o700); err != nil {
		t.Fatal(err)
	}
	session, socket := filepath.Join(made, "session"), filepath.Join(made, "s")
	f.configure("a", "dc1", 100, fmt.Sprintf("zookeeper: {session_file: %s}\nhttp: {listen: \"unix:%s\"}\n", session, socket))
	f.startCommand("a", exec.Command("sh", "-c", `umask 0; ulimit -Sc 100; exec zkelectd run --config "$1"`, "sh", f.file("a")))
	f.until("a leads", leads("a"))
	f.waitForWork("a")
	guard, daemon, child := f.daemons["a"].cmd.Process.Pid, f.daemon("a"), f.child("a")

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

func TestReloadSignalsTheMainProcess(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	cmd := reloadCommand()
	cmd.SetOut(&out)
	for _, pid := range []string{"", "x", "1", "-7", "0"} {
		if err := signalMainProcess(cmd, pid, syscall.SIGHUP); err == nil || !strings.Contains(err.Error(), "$MAINPID") {
			t.Errorf("process %q: %v", pid, err)
		}
	}
	// Children inherit an ignored signal, as under nohup, but not a handled one.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	main := exec.Command("sleep", "100") // SIGHUP ends it
	if err := main.Start(); err != nil {
		t.Fatal(err)
	}
	if err := signalMainProcess(cmd, fmt.Sprint(main.Process.Pid), syscall.SIGHUP); err != nil || !strings.Contains(out.String(), "its log has the result") {
		t.Errorf("%v, %s", err, out.String())
	}
	if err := main.Wait(); err == nil || err.Error() != "signal: hangup" {
		t.Errorf("it ended with %v", err)
	}
}

func TestReloadUsesCredentialsIfReadable(t *testing.T) {
	t.Parallel()
	nowhere := func(string) string { return "" }
	for _, cfg := range []config.Config{{}, {ZooKeeper: config.ZooKeeper{Auth: config.Auth{File: "/nonexistent"}, ACL: "private"}}} {
		if as, readable := reloadAccess(cfg, nowhere); !readable || as.ZooKeeper.Auth.File != cfg.ZooKeeper.Auth.File {
			t.Errorf("%+v, %t", as.ZooKeeper, readable)
		}
	}
}
