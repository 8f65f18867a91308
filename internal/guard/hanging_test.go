package guard

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/test/hostfault"
)

// stalledDisk mounts a disk that does not answer, with a program on it.
func stalledDisk(t *testing.T) *hostfault.Disk {
	t.Helper()
	sleep, err := filepath.EvalSymlinks("/bin/sleep")
	if err != nil {
		t.Fatal(err)
	}
	disk, err := hostfault.MountDisk(t.TempDir(), sleep)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := disk.Close(); err != nil {
			t.Error(err)
		}
	})
	disk.Stall(true)
	return disk
}

// A program on a disk that does not answer ends its own leadership: the guard is not lost, other work runs on, and
// other work starts.
func TestProgramOnAHangingDisk(t *testing.T) {
	t.Parallel()
	disk := stalledDisk(t)
	fx, d := startDaemon(t, "CONTAINMENT=cgroup")
	other := d.startIn("other", "exec sleep 1000")
	d.use("late")
	d.use("hanging")
	call[time.Duration](d, "SetLease", time.Hour)
	result := make(chan error, 1)
	go func() {
		opt := Spec{Argv: []string{disk.Program, "1000"}, Env: fx.env()}
		_, err := tryCall[int](d, "StartIn", StartArg{"hanging", opt})
		result <- err
	}()
	eventually(t, "a request to the disk", func() bool { return disk.Waited() > 0 })
	late := d.startIn("late", "exec sleep 1000")
	select {
	case err := <-result:
		t.Errorf("other work has started only after the start on the hanging disk has failed: %v", err)
	default:
	}
	want := disk.Program + " has not been read yet; does the disk answer?"
	if err := <-result; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the start on the hanging disk: %v", err)
	}
	fx.checkAliveUntil(boottime.Now()+pingTimeout, other, late)
	d.startIn("another", "exec sleep 1000")
}

// The keeper ends the start of a program whose disk hangs as soon as it is told so, or the lease ends.
func TestKeeperEndsAHangingStart(t *testing.T) {
	t.Parallel()
	for _, ends := range []string{"killed", "lease"} {
		disk := stalledDisk(t)
		k := startTestKeeper(t, KeeperContainment)
		k.seq = 1
		m := message{Kind: kindStart, Seq: k.seq, At: boottime.Now() + time.Hour, Spec: &Spec{
			Path: disk.Program, Argv: []string{"sleep"}, StateFile: k.stateFile(),
		}}
		if ends == "lease" {
			m.At = boottime.Now() + 200*time.Millisecond
		}
		if err := os.WriteFile(k.stateFile(), []byte(stateDead), 0o600); err != nil { // as the daemon does
			t.Fatal(err)
		}
		k.send(m)
		eventually(t, "a request to the disk", func() bool { return disk.Waited() > 0 })
		if ends == "killed" {
			k.send(message{Kind: kindKill, Seq: k.seq})
			k.expect(kindKilling, "")
		}
		k.expect(kindStarted, errKilledEarly.Error())
		if text := read(k.stateFile()); text != stateDead {
			t.Errorf("the state file says %q", text)
		}
		k.send(message{Kind: kindStart, Seq: 2, At: boottime.Now() + time.Hour, Spec: &Spec{Path: "/bin/true", Argv: []string{"true"}}})
		k.seq = 2
		k.expect(kindStarted, "")
	}
}
