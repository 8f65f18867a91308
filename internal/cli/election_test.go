package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
)

func TestSecondStopKillsTheChild(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.startLeader("a", "zookeeper: {session_timeout: 40s}\nchild: {command: [ledger-child], env: {LEDGER: LEDGERFILE, MODE: ignore-term}, stop_timeout: 14s}\n")
	f.waitForChild("a", 1)
	began := time.Now()
	f.daemons["a"].Signal(syscall.SIGTERM)
	f.eventually("the stop is under way", func() bool { return f.until("", func(status.Group) bool { return true }).Leader == "a" })
	f.daemons["a"].Signal(syscall.SIGINT)
	if code := f.exit("a"); code != 0 {
		t.Errorf("exit status %d", code)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("ended after %s", took)
	}
}

// A member whose takeover or work fails is excluded with the reason, and the one before leads again. scripts/systemd-guest-unit.sh tests
// with a real systemd that a unit runs, and ends with the lease.
func TestMembersThatFailAreExcluded(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.env = []string{"DBUS_SYSTEM_BUS_ADDRESS=unix:path=" + filepath.Join(f.dir, "none")}
	f.startLeader("good", "election: {exclusion: 1h}\npolicy: {max_preemptions: 0}\n")
	const work = "child: {command: [ledger-child], env: {LEDGER: LEDGERFILE, MODE: %s}, stop_timeout: 400ms, %s}\n"
	cleaned := filepath.Join(f.dir, "cleaned")
	for i, c := range []struct{ id, settings, reason string }{
		{"stalled", fmt.Sprintf(work, "plain", "ready: {tcp: '127.0.0.1:1', timeout: 500ms}"), "the child was not ready within 500ms"},
		{"crashes", fmt.Sprintf(work, "crash", "max_restarts: 2"), "exited with status 3, 3 times"},
		{"no-volume", "hooks: {pre_start: [sh, -c, 'echo no volume; exit 7'], post_stop: [touch, " + cleaned + "]}\n", "exited with status 7: no volume"},
		{"no-unit", "child: {unit: app.service, stop_timeout: 400ms}\n", "cannot reach systemd over D-Bus (is dbus.service running?)"},
	} {
		f.configure(c.id, "dc1", 200, c.settings)
		f.start(c.id)
		g := f.until(c.id+" is excluded", func(g status.Group) bool { return leads("good")(g) && len(g.Exclusions) == i+1 })
		if !slices.ContainsFunc(g.Exclusions, func(x cluster.Exclusion) bool {
			return x.Node == c.id && x.Strikes == 1 && strings.Contains(x.Reason, c.reason)
		}) {
			t.Errorf("exclusions: got %+v, want %q of %s", g.Exclusions, c.reason, c.id)
		}
	}
	f.logged("stalled", "child.ready.tcp 127.0.0.1:1: dial tcp ") // refused, or a timeout on a busy machine
	if _, err := os.Stat(cleaned); err != nil {
		t.Errorf("what pre_start began was not cleaned up: %v", err)
	}
	terms := make(map[string][]string)
	for _, tenure := range f.checkInvariants() {
		terms[tenure.node] = append(terms[tenure.node], tenure.term)
	}
	if in := terms["crashes"]; len(in) != 3 || in[0] != in[2] {
		t.Errorf("not restarted in place: it has worked in the terms %v", in)
	}
	if in := terms["no-volume"]; len(in) > 0 {
		t.Errorf("its child ran in the terms %v", in)
	}
}

// Flags are enough for a sidecar. Without the guard's respawn, a supervisor learns how the daemon has died.
func TestSidecar(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.start("a", "--no-respawn", "--zk", shared.Addr(), "--root", f.paths.Root, "--id", "a", "--site", "dc7", "--priority", "5", "--session-timeout", "6s",
		"--", "sh", "-c", "env | grep ^ZKELECTD_ >"+f.dir+"/env; exec sleep 1000")
	g := f.until("a leads", leads("a"))
	f.eventually("its child's environment", func() bool {
		env := read(f.dir + "/env")
		for _, want := range []string{"NODE=a", "SITE=dc7", "GROUP=" + strings.TrimPrefix(f.paths.Root, "/groups/"), "ROOT=" + f.paths.Root, fmt.Sprintf("TERM=%d", g.Term), "CAUSE=first"} {
			if !strings.Contains(env, "ZKELECTD_"+want+"\n") {
				return false
			}
		}
		return strings.Count(env, "ZKELECTD_") == 8
	})
	syscall.Kill(f.daemon("a"), syscall.SIGKILL)
	if code := f.exit("a"); code != 128+9 {
		t.Errorf("exit status %d", code)
	}
}
