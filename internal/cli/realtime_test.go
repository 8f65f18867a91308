package cli

import (
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// Only guard and keeper run with real-time priority, where the limit permits it: a busy child with it would stop the host.
func TestRealtimeIsForGuardAndKeeper(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.configure("a", "dc1", 1, "")
	argv, want := []string{"zkelectd", "run", "--create", "--config", f.file("a")}, uint32(unix.SCHED_NORMAL)
	if raise := []string{"prlimit", "--rtprio=1"}; exec.Command(raise[0], append(raise[1:], "true")...).Run() == nil {
		argv, want = append(raise, argv...), unix.SCHED_RR
	}
	f.startCommand("a", exec.Command(argv[0], argv[1:]...))
	f.until("a leads", leads("a"))
	for who, c := range map[string]struct {
		pid  int
		want uint32
	}{
		"guard":  {f.daemons["a"].Process.Pid, want},
		"keeper": {f.guardChild("a", "keeper"), want},
		"daemon": {f.daemon("a"), unix.SCHED_NORMAL},
		"child":  {f.child("a"), unix.SCHED_NORMAL},
	} {
		attr, err := unix.SchedGetAttr(c.pid, 0)
		if err != nil || attr.Policy != c.want {
			t.Errorf("the scheduling policy of the %s is %+v, %v; want %d", who, attr, err, c.want)
		}
	}
}
