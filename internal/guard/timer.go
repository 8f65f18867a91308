package guard

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/boottime"
)

// timer fires at a given reading of CLOCK_BOOTTIME; if the host was suspended at that moment, right after it resumes. Go timers
// do not advance while the host is suspended.
type timer struct {
	file *os.File
	fd   int
	c    chan struct{}
}

func newTimer() (*timer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	t := &timer{file: os.NewFile(uintptr(fd), "timer"), fd: fd, c: make(chan struct{}, 1)}
	go t.run()
	return t, nil
}

// run runs until close.
func (t *timer) run() {
	var count [8]byte
	for {
		if _, err := t.file.Read(count[:]); err != nil {
			return
		}
		select {
		case t.c <- struct{}{}:
		default:
		}
	}
}

// set arms the timer for a point in time; 0 disarms it.
func (t *timer) set(at time.Duration) {
	var spec unix.ItimerSpec
	if at != 0 {
		// A zero value would disarm the timer; a time in the past fires at once.
		spec.Value = unix.NsecToTimespec(max(1, at.Nanoseconds()))
	}
	if err := unix.TimerfdSettime(t.fd, unix.TFD_TIMER_ABSTIME, &spec, nil); err != nil {
		panic("guard: timerfd_settime: " + err.Error()) // possible only through a programming error
	}
}

func (t *timer) close() { t.file.Close() }

// earliest returns the first of the given points in time, ignoring those that are 0; 0 if all are.
func earliest(times ...time.Duration) time.Duration {
	var first time.Duration
	for _, at := range times {
		if at != 0 && (first == 0 || at < first) {
			first = at
		}
	}
	return first
}

// past reports whether a point in time has been reached; 0 is never reached.
func past(at time.Duration) bool { return at != 0 && boottime.Now() >= at }
