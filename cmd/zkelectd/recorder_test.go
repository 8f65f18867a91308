package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// runOffline runs a command that does not use ZooKeeper. It returns its output and its exit status.
func runOffline(t *testing.T, args ...string) (string, int) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "zkelectd", args...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit == nil {
		return string(out), 0
	}
	return string(out), exit.ExitCode()
}

// The recordings of a real fleet, in which leadership moves, the leader crashes and all stop, show no violation, and the core makes the
// same decisions again.
func TestTheRecordingsOfAFleetAreVerified(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	dir := func(id string) string { return filepath.Join(f.dir, "recorder-"+id) }
	ids := []string{"a", "b", "c"}
	for i, id := range ids {
		f.configure(id, "dc1", 100-i, fmt.Sprintf("zookeeper: {session_timeout: 20s}\nrecorder: {dir: %s}\n", dir(id)))
		f.start(id)
	}
	f.until("a leads all", leads("a"))
	f.waitForWork("a")
	if out, err := f.run("move", "--to", "b", "--wait"); err != nil {
		t.Fatal(out, err)
	}
	f.until("b leads", leads("b"))
	f.waitForWork("b")
	syscall.Kill(f.daemon("b"), syscall.SIGKILL)
	f.waitForWork("a")
	for _, id := range []string{"b", "c", "a"} {
		f.daemons[id].signal(syscall.SIGTERM)
		f.exit(id)
	}
	f.checkInvariants()
	args := []string{"verify", dir("a"), dir("b"), dir("c"), f.ledgerFile()}
	out, code := runOffline(t, args...)
	if code != 0 || strings.Contains(out, "cannot be repeated") || strings.Contains(out, "missing in the recordings") || strings.Contains(out, "calls of the core: 0") {
		t.Fatalf("verify: exit status %d:\n%s", code, out)
	}
	t.Log(out)
	out, code = runOffline(t, "recorder", "show", dir("a"))
	for _, want := range []string{"elected a in term", "StartChild", "ChildReady", "Send RELEASE", "process: pid"} {
		if !strings.Contains(out, want) {
			t.Errorf("show: exit status %d, no %q in\n%s", code, want, out)
		}
	}
	ledger, err := os.ReadFile(f.ledgerFile())
	if err != nil {
		t.Fatal(err)
	}
	doctored := f.file("doctored")
	var at, term int64
	if _, err := fmt.Sscan(string(ledger), &at, new(string), &term); err != nil {
		t.Fatal(err)
	}
	other := fmt.Sprintf("%d z %d start\n%d z %d end\n", at+1, term+1, at+2, term+1)
	if err := os.WriteFile(doctored, []byte(other+string(ledger)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code = runOffline(t, "verify", doctored); code != 1 || !strings.Contains(out, "VIOLATED") {
		t.Errorf("verify of a doctored ledger: exit status %d:\n%s", code, out)
	}
	if out, code = runOffline(t, "verify", f.file("a")); code != 2 {
		t.Errorf("verify of a configuration: exit status %d:\n%s", code, out)
	}
}
