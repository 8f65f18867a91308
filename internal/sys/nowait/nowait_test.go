package nowait

import (
	"errors"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestWait4(t *testing.T) {
	var status syscall.WaitStatus
	if pid, err := Wait4(&status); pid != -1 || !errors.Is(err, unix.ECHILD) {
		t.Fatalf("no child: %d, %v", pid, err)
	}
	attr := &syscall.ProcAttr{Files: []uintptr{0, 1, 2}, Env: []string{}}
	child, err := syscall.ForkExec("/bin/sh", []string{"sh", "-c", "kill -STOP $$; exit 7"}, attr)
	if err != nil {
		t.Fatal(err)
	}
	if pid, err := Wait4(&status); pid != 0 || err != nil {
		t.Errorf("a child that runs: %d, %v", pid, err)
	}
	for stop := (unix.Siginfo{}); ; { // it runs again once it has stopped
		if err := unix.Waitid(unix.P_PID, child, &stop, unix.WSTOPPED, nil); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	syscall.Kill(child, syscall.SIGCONT)
	for exit := (unix.Siginfo{}); ; {
		if err := unix.Waitid(unix.P_PID, child, &exit, unix.WEXITED|unix.WNOWAIT, nil); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if pid, err := Wait4(&status); pid != child || err != nil || !status.Exited() || status.ExitStatus() != 7 {
		t.Errorf("pid %d instead of %d, %v, status %#x", pid, child, err, status)
	}
}
