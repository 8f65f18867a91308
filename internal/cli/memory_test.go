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

	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/sys/procinfo"
	"zkelectd/internal/test/hostfault"
)

// startIn starts a program as a daemon in cgroup v1 control groups.
func (f *fleet) startIn(id, program string, groups ...controlGroup) {
	f.t.Helper()
	script := ""
	for _, g := range groups {
		script += fmt.Sprintf("echo 0 >%s/cgroup.procs && ", g.Dir)
	}
	f.startCommand(id, exec.Command("sh", "-c", script+`exec "$@"`, "sh", program, "run", "--config", f.file(id)))
}

// majorFaults returns how often a process has waited for a page from disk.
func majorFaults(t *testing.T, pid int) uint64 {
	t.Helper()
	s, err := procinfo.ReadStat(pid)
	if err != nil { // the kernel keeps the number of a process that has ended until its parent has waited for it
		t.Fatalf("process %d is gone: %v", pid, err)
	}
	return s.MajorFaults
}

// actors are the processes that can kill the child when its lease ends: each does if the others are stopped.
var actors = []string{"guard", "keeper", "daemon"}

// leaseEnds stops all but one of the actors, and checks that this one kills the child when the lease ends. It returns the others. The
// daemon goes on renewing the lease, so it kills the child because the guard is hung, which it notices later.
func (f *fleet) leaseEnds(id, acts string) (stopped []int) {
	f.t.Helper()
	child := f.child(id)
	pids := map[string]int{"guard": f.daemons[id].Process.Pid, "keeper": f.guardChild(id, "keeper"), "daemon": f.daemon(id)}
	acting := pids[acts]
	faults := majorFaults(f.t, acting)
	for _, who := range actors {
		if who != acts {
			stopped = append(stopped, pids[who])
			syscall.Kill(pids[who], syscall.SIGSTOP)
		}
	}
	from := boottime.Now()
	f.waitForDeath(child)
	took := boottime.Now() - from
	f.t.Logf("the child is dead %s after the last renewal or later, with %d major faults", took.Round(time.Millisecond), majorFaults(f.t, acting)-faults)
	limit := 10 * time.Second // the lease is 1.8 s; a kill that waits for a disk or a thread never happens, all else is a busy machine
	if took > limit {
		f.t.Errorf("the child lived on for %s", took)
	}
	if took < 200*time.Millisecond { // 0.3 s of it had passed, or more if renewals came late
		f.t.Errorf("the child lived for only %s: that was not the end of the lease", took)
	}
	if n := majorFaults(f.t, acting); n > faults {
		f.t.Errorf("%d major faults on the way to the kill", n-faults)
	}
	return stopped
}

// every calls do until the test has ended.
func every(t *testing.T, pause time.Duration, do func()) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for {
			do()
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-stopped
	})
}

// S1: the disk with the program stalls, and the kernel has evicted all of its pages that it can. Guard and daemon need none of
// them to kill the child.
func TestStalledDiskDelaysNoKill(t *testing.T) {
	t.Parallel()
	for _, acts := range actors {
		t.Run(acts, func(t *testing.T) {
			t.Parallel()
			d := newDisk(t)
			memory := newControlGroup(t, "memory")
			f := newFleet(t)
			f.configure("a", "dc1", 100, "")
			f.startIn("a", d.Program, memory)
			f.until("a leads", leads("a"))
			f.waitForWork("a")
			t.Cleanup(func() { d.Stall(false) }) // before the cleanup of the fleet waits for the daemons
			d.Stall(true)
			every(t, 50*time.Millisecond, func() {
				os.WriteFile(filepath.Join(memory.Dir, "memory.force_empty"), []byte("0"), 0) // as far as possible
			})
			f.leaseEnds("a", acts)
			t.Logf("%d reads waited for the disk", d.Waited())
			f.checkInvariants()
		})
	}
}

// memoryHog fills the memory of its control group, see [hostfault.FillMemory].
func memoryHog() {
	err := hostfault.FillMemory(hostfault.ControlGroup{Dir: os.Args[1]}, os.Args[2], func() { fmt.Println("full") })
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// If the child has used up the container's limit of processes, neither guard nor daemon needs a new thread to kill it.
func TestProcessLimitCrashesNoProcess(t *testing.T) {
	t.Parallel()
	for _, acts := range actors {
		t.Run(acts, func(t *testing.T) {
			t.Parallel()
			processes := newControlGroup(t, "pids")
			f := newFleet(t)
			f.configure("a", "dc1", 100, `child: {command: [sleep, "1000"], stop_timeout: 400ms}`) // which starts no thread either
			f.startIn("a", "zkelectd", processes)
			f.until("a leads", leads("a"))
			processes.set("pids.max", "1")
			stopped := f.leaseEnds("a", acts)
			processes.set("pids.max", "max")
			for _, pid := range stopped {
				syscall.Kill(pid, syscall.SIGCONT)
			}
			if out := f.daemons["a"].Output(); strings.Contains(out, "newosproc") || strings.Contains(out, "OS thread") {
				t.Error("the Go runtime could not start a thread")
			}
			f.checkInvariants()
		})
	}
}
