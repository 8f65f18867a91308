package guard

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// forker starts processes on a thread of its own, which lasts as long as this process: the parent death signal is sent
// when the forking thread exits, and the kernel lists the children of a process by the threads that have forked them.
// So the goroutine that decides needs no thread of its own, between which and the others each message would have to
// change.
type forker struct {
	thread int // its id
	starts chan func()
	done   chan struct{}
}

// newForker starts the thread.
func newForker() *forker {
	f := &forker{starts: make(chan func()), done: make(chan struct{})}
	thread := make(chan int)
	go f.run(thread) // ends with the process
	f.thread = <-thread
	return f
}

func (f *forker) run(thread chan<- int) {
	runtime.LockOSThread()
	thread <- unix.Gettid()
	for start := range f.starts {
		start()
		f.done <- struct{}{}
	}
}

// do calls start, which starts a process, on the thread.
func (f *forker) do(start func() error) (err error) {
	f.starts <- func() { err = start() }
	<-f.done
	return err
}
