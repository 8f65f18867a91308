package cli

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"zkelectd/internal/sys/procinfo"
	"zkelectd/internal/test/faultproxy"
)

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

// Stopping a daemon while ZooKeeper is down must not wait until it is back.
func TestStopWithoutServers(t *testing.T) {
	t.Parallel()
	f, l := newFleet(t), faultproxy.ForTest(t, shared.Addr())
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
