package cli

import (
	"fmt"
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
	f.daemons["a"].Signal(syscall.SIGKILL)
	f.waitForDeath(last)
	if took := boottime.Now() - killed; took > 10*time.Second { // 3 s are granted
		t.Errorf("its daemon took %s to end", took)
	}
}
