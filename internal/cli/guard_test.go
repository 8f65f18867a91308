package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/operator/status"
	"zkelectd/internal/sys/boottime"
)

// longSession is a session timeout that is too long for a test to wait for its expiry.
const longSession = "zookeeper: {session_timeout: 30s}\n"

func (f *fleet) joinLong(ids ...string) {
	f.t.Helper()
	for i, id := range ids {
		f.configure(id, "dc1", 100-i, longSession)
		f.start(id)
		f.until(id+" has joined", func(g status.Group) bool { return len(g.Members) == i+1 && leads(ids[0])(g) })
	}
	f.waitForWork(ids[0])
}

// The guard closes the session of a dead daemon, so that its successor does not wait, and starts another daemon.
func TestKilledDaemonCostsNoSessionTimeout(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.joinLong("a", "b")
	child := f.child("a")
	killed := boottime.Now()
	syscall.Kill(f.daemon("a"), syscall.SIGKILL)
	f.logged("a", "closed the dead daemon's session")
	f.until("a leads again", leads("a"))
	f.waitForDeath(child)
	if took := boottime.Now() - killed; took > 15*time.Second {
		t.Errorf("that took %s", took)
	}
	f.waitForChild("a", 2)
	f.checkInvariants()
}

// When the guard dies, the child dies with it, and the daemon releases leadership.
func TestKilledGuardLeavesNoProcess(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.joinLong("a", "b")
	child, daemon := f.child("a"), f.daemon("a")
	killed := boottime.Now()
	f.daemons["a"].signal(syscall.SIGKILL)
	f.until("b leads", leads("b"))
	if took := boottime.Now() - killed; took > 15*time.Second {
		t.Errorf("that took %s", took)
	}
	f.waitForDeath(child)
	f.waitForDeath(daemon)
	f.checkInvariants()
}

// A stopped daemon keeps neither its child working beyond the lease nor the group without a leader.
func TestStoppedDaemonLosesItsChildWithTheLease(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("a", "b")
	f.waitForWork("a")
	child, daemon := f.child("a"), f.daemon("a")
	stopped := boottime.Now()
	syscall.Kill(daemon, syscall.SIGSTOP)
	f.waitForDeath(child)
	if took := boottime.Now() - stopped; took > 2500*time.Millisecond { // the lease is 1.8 s
		t.Errorf("the child lived on for %s", took)
	}
	f.until("b leads", leads("b"))
	f.logged("a", "killing the daemon: it is hung")
	f.until("a leads again", leads("a"))
	f.checkInvariants()
}

// A log that nobody reads delays no kill.
func TestUnreadLogDelaysNoKill(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	pid := filepath.Join(f.dir, "pid") // it cannot be taken from the log
	f.configure("a", "dc1", 100, fmt.Sprintf("child: {command: [sh, -c, 'echo $$ >%s; exec ledger-child'], env: {LEDGER: LEDGERFILE}, stop_timeout: 400ms}\n", pid))
	f.configure("b", "dc1", 90, "")
	full := filepath.Join(f.dir, "full")
	if err := syscall.Mkfifo(full, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := syscall.Open(full, syscall.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(pipe)
	for err == nil {
		_, err = syscall.Write(pipe, []byte{'\n'})
	}
	f.startCommand("a", exec.Command("sh", "-c", fmt.Sprintf("exec zkelectd run --config %s 2<>%s", f.file("a"), full)))
	f.until("a leads", leads("a"))
	f.start("b")
	f.waitForWork("a")
	child, err := strconv.Atoi(strings.TrimSpace(read(pid)))
	if err != nil {
		t.Fatal(err)
	}
	stopped := boottime.Now()
	syscall.Kill(f.daemon("a"), syscall.SIGSTOP)
	f.waitForDeath(child)
	if took := boottime.Now() - stopped; took > 2500*time.Millisecond { // the lease is 1.8 s
		t.Errorf("the child lived on for %s", took)
	}
	f.until("b leads", leads("b"))
	f.checkInvariants()
	// Nor does the last message, which nobody reads either, keep a process from exiting.
	f.until("a is back", func(g status.Group) bool { return len(g.Members) == 2 })
	last := f.daemon("a")
	killed := boottime.Now()
	f.daemons["a"].signal(syscall.SIGKILL)
	f.waitForDeath(last)
	if took := boottime.Now() - killed; took > 10*time.Second { // 3 s are granted
		t.Errorf("its daemon took %s to end", took)
	}
}

// A stopped guard does not keep the child working: the daemon kills the child and the guard.
func TestStoppedGuardIsReplaced(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("a", "b")
	f.waitForWork("a")
	child := f.child("a")
	f.daemons["a"].signal(syscall.SIGSTOP)
	f.waitForDeath(child)
	f.until("b leads", leads("b"))
	if code := f.exit("a"); code != -1 {
		t.Errorf("exit status %d", code)
	}
	f.checkInvariants()
}

func TestNoRespawn(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.configure("a", "dc1", 1, "")
	f.start("a", "--config", f.file("a"), "--no-respawn")
	f.until("a leads", leads("a"))
	syscall.Kill(f.daemon("a"), syscall.SIGKILL)
	if code := f.exit("a"); code != 128+9 {
		t.Errorf("exit status %d", code)
	}
	f.checkInvariants()
}

// After a whole unit was killed, 'zkelectd release', run by the service manager, spares the successor the wait.
func TestReleaseFromOutside(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	file := filepath.Join(f.dir, "session")
	f.configure("a", "dc1", 2, strings.Replace(longSession, "{", "{session_file: "+file+", ", 1))
	f.start("a")
	f.until("a leads", leads("a"))
	f.configure("b", "dc1", 1, longSession)
	f.start("b")
	f.until("b has joined", leads("a"))
	f.waitForWork("a")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	release := func() (string, error) {
		out, err := exec.Command("zkelectd", "release", "--session-file", file).CombinedOutput()
		return string(out), err
	}
	if out, err := release(); err == nil || !strings.Contains(out, "in use by another zkelectd") || !strings.Contains(out, fmt.Sprintf("process %d", f.daemons["a"].cmd.Process.Pid)) {
		t.Errorf("%v: %s", err, out)
	}
	f.crash("a")
	f.eventually("the release", func() bool { // the child takes a moment to die
		out, err := release()
		return err == nil && strings.Contains(out, "closed session 0x")
	})
	f.until("b leads", leads("b"))
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the file is left: %v", err)
	}
	if out, err := release(); err != nil || !strings.Contains(out, "nothing to release") || !strings.Contains(out, file) {
		t.Errorf("nothing to do: %v, %s", err, out)
	}
	f.daemons["b"].signal(syscall.SIGTERM)
	f.exit("b")
	f.checkInvariants()
}
