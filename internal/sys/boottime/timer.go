package boottime

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/sys/nowait"
)

// Timer fires at a given reading of CLOCK_BOOTTIME; if the host was suspended at that moment, right after it resumes.
// Go timers do not advance while the host is suspended.
type Timer struct {
	file *os.File
	raw  syscall.RawConn
	fd   int
	// C receives when the timer has fired.
	C <-chan struct{}
	c chan struct{}
}

// NewTimer returns a timer that is not armed. It must be closed.
func NewTimer() (*Timer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	t := &Timer{file: os.NewFile(uintptr(fd), "timer"), fd: fd, c: make(chan struct{}, 1)}
	t.C = t.c
	if t.raw, err = t.file.SyscallConn(); err != nil {
		return nil, errors.Join(err, t.file.Close())
	}
	go t.run()
	return t, nil
}

// run runs until Close.
func (t *Timer) run() {
	var count [8]byte
	fired := func(fd uintptr) bool {
		_, err := nowait.Read(int(fd), count[:])
		return !errors.Is(err, unix.EAGAIN)
	}
	for t.raw.Read(fired) == nil {
		select {
		case t.c <- struct{}{}:
		default:
		}
	}
}

// Set arms the timer for a point in time; 0 disarms it.
func (t *Timer) Set(at time.Duration) {
	var spec unix.ItimerSpec
	if at != 0 {
		// A zero value would disarm the timer; a time in the past fires at once.
		spec.Value = unix.NsecToTimespec(max(1, at.Nanoseconds()))
	}
	if err := nowait.TimerfdSettime(t.fd, unix.TFD_TIMER_ABSTIME, &spec); err != nil {
		panic("boottime: timerfd_settime: " + err.Error()) // possible only through a programming error
	}
}

// Close ends the timer.
func (t *Timer) Close() { t.file.Close() }
