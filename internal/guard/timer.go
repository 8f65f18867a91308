package guard

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/boottime"
)

// timer fires at a time of CLOCK_BOOTTIME, also at once after a suspension that lasted longer. Go's own timers stand
// still meanwhile.
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

// run ends with close.
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

// set makes the timer fire at a time, or never for 0.
func (t *timer) set(at time.Duration) {
	var spec unix.ItimerSpec
	if at != 0 {
		// A zero value would disarm it, and what is past fires at once.
		spec.Value = unix.NsecToTimespec(max(1, at.Nanoseconds()))
	}
	if err := unix.TimerfdSettime(t.fd, unix.TFD_TIMER_ABSTIME, &spec, nil); err != nil {
		panic("guard: timerfd_settime: " + err.Error()) // only a programming error makes it fail
	}
}

func (t *timer) close() { t.file.Close() }

// earliest is the first of some times that are not 0.
func earliest(times ...time.Duration) time.Duration {
	var first time.Duration
	for _, at := range times {
		if at != 0 && (first == 0 || at < first) {
			first = at
		}
	}
	return first
}

func past(at time.Duration) bool { return at != 0 && boottime.Now() >= at }
