package cli

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"zkelectd/internal/sys/procinfo"
	"zkelectd/internal/test/faultproxy"
)

// The session timeout is longer than the test waits, so the next leader leads because of the RELEASE.
func TestStopHandsOverAtOnce(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	ids := []string{"a", "b", "c"}
	f.joinWith("zookeeper: {session_timeout: 60s}\n", ids...)
	f.waitForWork("a")
	first := f.snapshot().Elected.Record.Term
	for i, id := range ids[:2] {
		f.stop(id)
		next := ids[i+1]
		g := f.until(next+" leads", leads(next))
		if g.Term <= first || len(g.Members) != 2-i || len(g.Exclusions) != 0 {
			t.Errorf("after %s: term %d of %d, %d members, exclusions %v", id, g.Term, first, len(g.Members), g.Exclusions)
		}
		f.waitForWork(next)
	}
	all := f.checkInvariants()
	last := all[max(0, len(all)-3):] // others may have led before all had joined
	for i, id := range ids {
		if last[i].node != id || (i < 2 && (!last[i].ended || last[i].end > last[i+1].start)) {
			t.Errorf("tenure %d: %+v", i, last)
		}
	}
}

// waitForWork waits until the child that started last is this node's.
func (f *fleet) waitForWork(id string) {
	f.t.Helper()
	f.eventually("the child of "+id+" works", func() bool {
		all := ledger(f.t, f.ledgerFile())
		return len(all) > 0 && all[len(all)-1].node == id
	})
}

// child returns the pid of a node's child that its daemon logged last.
func (f *fleet) child(id string) int {
	f.t.Helper()
	f.logged(id, "child started")
	out := f.daemons[id].Output()
	var pid int
	if _, err := fmt.Sscanf(out[strings.LastIndex(out, "child started"):], "child started\" node="+id+" pid=%d", &pid); err != nil {
		f.t.Fatal(err)
	}
	return pid
}

// waitForDeath waits until a process has ended or is a zombie.
func (f *fleet) waitForDeath(pid int) {
	f.t.Helper()
	f.eventually(fmt.Sprintf("process %d is gone", pid), func() bool {
		s, err := procinfo.ReadStat(pid)
		return err != nil || s.Ended()
	})
}

func TestStopLeavesNoGrandchild(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	pids := f.dir + "/pids"
	// Both ignore TERM, and the grandchild keeps nothing but its process group.
	f.startLeader("a", fmt.Sprintf(`child: {command: [sh, -c, "trap '' TERM; sh -c 'echo $$ >>%s; while :; do sleep 0.05; done' </dev/null >/dev/null 2>&1 & echo $$ >>%s; while :; do sleep 0.05; done"], stop_timeout: 300ms}
`, pids, pids))
	f.eventually("both have joined", func() bool { return strings.Count(read(pids), "\n") == 2 })
	f.stop("a")
	for _, pid := range strings.Fields(read(pids)) {
		// The daemon has ended, so they must be dead already.
		if running(pid) {
			t.Errorf("process %s survived: %s", pid, read("/proc/"+pid+"/stat"))
		}
	}
}

// Stopping a daemon while ZooKeeper is down must not wait until it is back.
func TestStopWithoutServers(t *testing.T) {
	t.Parallel()
	f, l := newFleet(t), newLink(t, shared.Addr())
	f.servers = []string{l.Addr()}
	f.join("a")
	f.waitForWork("a")
	child := f.child("a")
	l.SetMode(faultproxy.Refuse)
	f.daemons["a"].Signal(syscall.SIGTERM)
	f.waitForDeath(child)
	if code := f.exit("a"); code != 0 {
		t.Errorf("exit status %d", code)
	}
	f.logged("a", "it ends with the session")
	f.checkInvariants()
}
