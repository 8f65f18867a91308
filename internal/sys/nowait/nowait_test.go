package nowait

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func pipe(t *testing.T) (r, w int) {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Close(fds[0])
		unix.Close(fds[1])
	})
	return fds[0], fds[1]
}

func TestReadAndWrite(t *testing.T) {
	r, w := pipe(t)
	b := make([]byte, 8)
	if _, err := Read(r, b); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("an empty pipe: %v", err)
	}
	if n, err := Write(w, nil); n != 0 || err != nil {
		t.Errorf("nothing: %d, %v", n, err)
	}
	if n, err := Write(w, []byte("text")); n != 4 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := Read(r, nil); n != 0 || err != nil {
		t.Errorf("nothing: %d, %v", n, err)
	}
	if n, err := Read(r, b); err != nil || string(b[:n]) != "text" {
		t.Errorf("%q, %v", b[:n], err)
	}
	for _, err := Write(w, []byte(strings.Repeat("x", 1<<16))); !errors.Is(err, unix.EAGAIN); _, err = Write(w, []byte("x")) {
		if err != nil {
			t.Fatalf("a pipe that becomes full: %v", err)
		}
	}
	if _, err := Read(-1, b); !errors.Is(err, unix.EBADF) {
		t.Errorf("no file: %v", err)
	}
}

func TestClockGettime(t *testing.T) {
	var before, now, after unix.Timespec
	unix.ClockGettime(unix.CLOCK_BOOTTIME, &before)
	if err := ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		t.Fatal(err)
	}
	unix.ClockGettime(unix.CLOCK_BOOTTIME, &after)
	if now.Nano() < before.Nano() || now.Nano() > after.Nano() {
		t.Errorf("%d between %d and %d", now.Nano(), before.Nano(), after.Nano())
	}
	if err := ClockGettime(-1<<20, &now); !errors.Is(err, unix.EINVAL) {
		t.Errorf("no clock: %v", err)
	}
}

func TestTimerfdSettime(t *testing.T) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	want := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(time.Hour))}
	if err := TimerfdSettime(fd, 0, &want); err != nil {
		t.Fatal(err)
	}
	var got unix.ItimerSpec
	if err := unix.TimerfdGettime(fd, &got); err != nil || got.Value.Nano() > int64(time.Hour) || got.Value.Nano() < int64(time.Hour-time.Minute) {
		t.Errorf("%+v, %v", got, err)
	}
	if err := TimerfdSettime(fd, unix.TFD_TIMER_ABSTIME, &unix.ItimerSpec{Value: unix.NsecToTimespec(1)}); err != nil {
		t.Fatal(err)
	}
	var count [8]byte
	if n, err := Read(fd, count[:]); n != 8 || err != nil {
		t.Errorf("a time in the past: %d, %v", n, err)
	}
	if err := TimerfdSettime(-1, 0, &want); !errors.Is(err, unix.EBADF) {
		t.Errorf("no timer: %v", err)
	}
}

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
