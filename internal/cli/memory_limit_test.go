//go:build !race

package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/operator/status"
	"zkelectd/internal/sys/boottime"
)

// The race detector allocates memory at any time, beyond the limit of this test: make test runs it without.

// S1, and the leader keeps leading: the container is at its memory limit because of another process, the disk stalls, and
// neither guard nor daemon needs to read a page.
func TestMemoryLimitDelaysNothing(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	memory := newControlGroup(t, "memory")
	f := newFleet(t)
	f.configure("a", "dc1", 100, "")
	f.startIn("a", d.Program, memory)
	before := f.until("a leads", leads("a"))
	f.waitForWork("a")
	guard, daemon := f.daemons["a"].Process.Pid, f.daemon("a")
	t.Cleanup(func() { d.Stall(false) })
	memory.set("memory.limit_in_bytes", fmt.Sprint(memory.number("memory.usage_in_bytes")+32<<20))
	files := filepath.Join(f.dir, "files")
	if err := os.WriteFile(files, make([]byte, 4<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	// The OOM killer must choose this process.
	hog := exec.Command("sh", "-c", `echo 0 >$1/cgroup.procs && echo 1000 >/proc/$$/oom_score_adj && exec memory-hog "$@"`, "sh", memory.Dir, files)
	hog.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	output := filepath.Join(f.dir, "hog")
	out, err := os.Create(output)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	hog.Stdout, hog.Stderr = out, out
	if err := hog.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		syscall.Kill(-hog.Process.Pid, syscall.SIGKILL)
		hog.Wait()
	})
	f.eventually("the group is full", func() bool { return strings.Contains(read(output), "full") }, func() string { return read(output) })
	d.Stall(true)
	faults := majorFaults(t, guard) + majorFaults(t, daemon)
	until := boottime.Now() + 5*time.Second // more than the session timeout
	after := f.until("5 s have passed", func(g status.Group) bool { return boottime.Now() > until })
	if !leads("a")(after) || after.Term != before.Term {
		t.Errorf("leadership has moved: term %d, %s, then term %d, %s", before.Term, before.State, after.Term, after.State)
	}
	if n := majorFaults(t, guard) + majorFaults(t, daemon) - faults; n > 0 {
		t.Errorf("%d major faults", n)
	}
	f.leaseEnds("a", "guard")
	f.checkInvariants()
}
