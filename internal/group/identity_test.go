package group

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/sys/procinfo"
	"zkelectd/internal/test/testhelper"
)

func TestIdentity(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	me := Identify(os.Getpid())
	started, err := procinfo.StartTime(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	other := cluster.Node{Host: me.Host, Boot: me.Boot, PID: cmd.Process.Pid, Started: started}
	if !me.otherAlive(other) {
		t.Error("a live process of this host is reported dead")
	}
	for name, n := range map[string]cluster.Node{
		"an earlier run":         {Host: me.Host, Boot: me.Boot, PID: me.PID, Started: me.Started},
		"a pid that was reused":  {Host: me.Host, Boot: me.Boot, PID: other.PID, Started: started + 1},
		"before the last boot":   {Host: me.Host, Boot: "other", PID: other.PID, Started: started},
		"of another host":        {Host: "other", Boot: me.Boot, PID: other.PID, Started: started},
		"a record without a pid": {Host: me.Host, Boot: me.Boot},
	} {
		if me.otherAlive(n) {
			t.Errorf("%s is reported alive", name)
		}
	}
	cmd.Process.Kill()
	testhelper.Eventually(t, 30*time.Second, "a zombie is not reported alive", func() bool { return !me.otherAlive(other) })
	cmd.Wait()
	if me.otherAlive(other) || !me.isOwnPast(other) {
		t.Error("a dead process is reported alive")
	}
}
