package guard

import (
	"runtime"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// launcher starts works, one after the other, on a separate thread. That lasts as long as the process: the parent death signal,
// which makes the work die with the keeper, is sent when the forking thread exits. Only launch runs in another goroutine.
type launcher struct {
	thread   int // its id
	waiting  []*task
	current  *task // nil if none is being started
	requests chan *task
	launched chan *task
	exits    map[int]syscall.WaitStatus // of children that exited while a work was being started, as one of them may be its main process
}

// newLauncher starts the launcher's thread, without ambient capabilities if drop is set.
func newLauncher(drop bool) *launcher {
	s := &launcher{requests: make(chan *task, 1), launched: make(chan *task), exits: make(map[int]syscall.WaitStatus)}
	thread := make(chan int)
	go s.run(thread, drop) // lasts as long as the process
	s.thread = <-thread
	return s
}

func (s *launcher) run(thread chan<- int, drop bool) {
	runtime.LockOSThread()
	if drop {
		clearCapabilities()
	}
	thread <- unix.Gettid()
	for t := range s.requests {
		t.launchErr = t.launch()
		s.launched <- t
	}
}

// add starts a work as soon as the earlier ones have been started.
func (s *launcher) add(t *task) {
	t.launching = true
	s.waiting = append(s.waiting, t)
	s.next()
}

// next starts the next work, if none is being started.
func (s *launcher) next() {
	if s.current == nil && len(s.waiting) > 0 {
		s.current, s.waiting = s.waiting[0], s.waiting[1:]
		s.current.launchBy = s.current.lease
		s.requests <- s.current
	}
}

// finish ends the start of a work. It returns how its main process ended, if it has been waited for already.
func (s *launcher) finish(pid int) (status syscall.WaitStatus, exited bool) {
	status, exited = s.exits[pid]
	s.current = nil
	clear(s.exits)
	return status, exited
}

// keep records the exit of a process that is not known.
func (s *launcher) keep(pid int, status syscall.WaitStatus) {
	if s.current != nil {
		s.exits[pid] = status
	}
}

// cancel removes a work that still waits to be started, and reports whether it did.
func (s *launcher) cancel(t *task) bool {
	i := slices.Index(s.waiting, t)
	if i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
	}
	return i >= 0
}
