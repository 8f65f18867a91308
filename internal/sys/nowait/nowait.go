// Package nowait makes system calls that return at once, without telling the scheduler of the Go runtime. An ordinary
// system call wakes the runtime's monitor thread if it sleeps, as it does in an idle process, so that it can give the
// processor of a call that waits to another goroutine: for a process that only looks at its clock and sends a message
// from time to time, that costs more than the calls.
//
// A file must not block: a call that waits would keep all goroutines of its processor from running.
package nowait

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// empty is what a call without data points to.
var empty byte

// Read is [unix.Read] for a file that does not block.
func Read(fd int, b []byte) (n int, err error) { return transfer(unix.SYS_READ, fd, b) }

// Write is [unix.Write] for a file that does not block.
func Write(fd int, b []byte) (n int, err error) { return transfer(unix.SYS_WRITE, fd, b) }

func transfer(call uintptr, fd int, b []byte) (int, error) {
	data := &empty
	if len(b) > 0 {
		data = &b[0]
	}
	n, _, errno := unix.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(data)), uintptr(len(b)))
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}

// Wait4 is [unix.Wait4] for any child, with WNOHANG and without the usage of resources.
func Wait4(status *syscall.WaitStatus) (pid int, err error) {
	var raw int32
	child, _, errno := unix.RawSyscall6(unix.SYS_WAIT4, ^uintptr(0), uintptr(unsafe.Pointer(&raw)),
		unix.WNOHANG|unix.WALL, 0, 0, 0)
	if errno != 0 {
		return -1, errno
	}
	*status = syscall.WaitStatus(raw)
	return int(child), nil
}

// ClockGettime is [unix.ClockGettime].
func ClockGettime(clock int32, time *unix.Timespec) error {
	if _, _, errno := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, uintptr(clock), uintptr(unsafe.Pointer(time)),
		0); errno != 0 {
		return errno
	}
	return nil
}

// TimerfdSettime is [unix.TimerfdSettime] without the old value.
func TimerfdSettime(fd, flags int, value *unix.ItimerSpec) error {
	if _, _, errno := unix.RawSyscall6(unix.SYS_TIMERFD_SETTIME, uintptr(fd), uintptr(flags),
		uintptr(unsafe.Pointer(value)), 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}
