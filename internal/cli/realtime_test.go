package cli

import (
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// Only guard and keeper run with real-time priority: a busy child with it would stop the host.
func TestRealtimeIsForGuardAndKeeper(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.configure("a", "dc1", 1, "")
	f.startCommand("a", exec.Command("prlimit", "--rtprio=1", "zkelectd", "run", "--create", "--config", f.file("a")))
	f.until("a leads", leads("a"))
	for who, c := range map[string]struct {
		pid  int
		want uint32
	}{
		"guard":  {f.daemons["a"].cmd.Process.Pid, unix.SCHED_RR},
		"keeper": {f.guardChild("a", "keeper"), unix.SCHED_RR},
		"daemon": {f.daemon("a"), unix.SCHED_NORMAL},
		"child":  {f.child("a"), unix.SCHED_NORMAL},
	} {
		attr, err := unix.SchedGetAttr(c.pid, 0)
		if err != nil || attr.Policy != c.want {
			t.Errorf("the scheduling policy of the %s is %+v, %v; want %d", who, attr, err, c.want)
		}
	}
}
