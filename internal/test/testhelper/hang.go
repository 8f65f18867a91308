package testhelper

import (
	"errors"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// HangOnDeath makes a process impossible to reap for its parent until the returned function is called or the test ends.
// So nothing proves its death after it was killed: it stands for a process that hangs in the kernel. It must have been
// killed by then.
func HangOnDeath(t *testing.T, pid int) (release func()) {
	t.Helper()
	done, traced := make(chan struct{}), make(chan error)
	ended := make(chan struct{})
	go func() { // ends with release
		defer close(ended)
		runtime.LockOSThread() // this thread is the tracer
		defer runtime.UnlockOSThread()
		_, _, e := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, 0, 0, 0)
		if e != 0 {
			traced <- e
			return
		}
		traced <- nil
		<-done
		for {
			if _, err := unix.Wait4(pid, nil, unix.WALL, nil); !errors.Is(err, unix.EINTR) {
				return
			}
		}
	}()
	if err := <-traced; err != nil {
		t.Fatalf("cannot trace processes here: %v", err)
	}
	release = sync.OnceFunc(func() {
		close(done)
		<-ended
	})
	t.Cleanup(release)
	return release
}
