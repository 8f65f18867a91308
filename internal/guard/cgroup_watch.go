package guard

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// cgroupWatch reports that a control group may have become empty, without waiting for a timer. The kernel delays a
// report if the last one for the group was made within 10 ms, so those who wait for the end of a group also have a
// timer. It proves nothing: see [cgroup.Empty].
type cgroupWatch struct {
	file *os.File // an epoll instance
	fd   int
	c    chan struct{}
}

func newCgroupWatch() (*cgroupWatch, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // so that the Go runtime waits for it
		return nil, errors.Join(os.NewSyscallError("fcntl", err), unix.Close(fd))
	}
	w := &cgroupWatch{file: os.NewFile(uintptr(fd), "control groups"), fd: fd, c: make(chan struct{}, 1)}
	raw, err := w.file.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, w.file.Close())
	}
	go func() { // ends when the file is closed, or with the process
		events := make([]unix.EpollEvent, 8)
		changed := func(fd uintptr) bool {
			n, _ := unix.EpollWait(int(fd), events, 0)
			return n > 0
		}
		for raw.Read(changed) == nil {
			select {
			case w.c <- struct{}{}:
			default:
			}
		}
	}()
	return w, nil
}

// add watches a group until that is closed. If it fails, the timer of those who wait for the group remains.
func (w *cgroupWatch) add(c *cgroup) {
	if w != nil && c != nil {
		unix.EpollCtl(w.fd, unix.EPOLL_CTL_ADD, c.eventsFD, &unix.EpollEvent{Events: unix.EPOLLPRI | unix.EPOLLET})
	}
}
