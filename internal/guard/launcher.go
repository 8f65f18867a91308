package guard

import (
	"fmt"
	"slices"
	"syscall"

	"zkelectd/internal/sys/harden"
)

// launcher starts works, one after the other, on the thread of its forker. That lasts as long as the process: the
// parent death signal makes the work die with the keeper. Only launch runs in another goroutine. It gets no work before
// the program was read: one whose disk hangs would delay all others, see [harden.ReadProgram].
type launcher struct {
	forker   *forker
	reading  []*task
	read     chan *task // their programs were read
	waiting  []*task
	current  *task // nil if none is being started
	launched chan *task
	exits    map[int]syscall.WaitStatus // of children that exited while a work was being started, as one of them may be its main process
}

// newLauncher starts the launcher's thread.
func newLauncher() *launcher {
	return &launcher{
		forker: newForker(), read: make(chan *task), launched: make(chan *task), exits: make(map[int]syscall.WaitStatus),
	}
}

// add starts a work once its program was read and earlier ones have been started.
func (s *launcher) add(t *task) {
	t.launching = true
	s.reading = append(s.reading, t)
	go func() { // ends when the disk answers, or with the process
		<-harden.ReadProgram(t.spec.Path, t.spec.Dir)
		s.read <- t
	}()
}

// programRead goes on with a work whose program was read, unless it was canceled meanwhile.
func (s *launcher) programRead(t *task) {
	if remove(&s.reading, t) {
		s.waiting = append(s.waiting, t)
		s.next()
	}
}

// next starts the next work, if none is being started.
func (s *launcher) next() {
	if s.current == nil && len(s.waiting) > 0 {
		s.current, s.waiting = s.waiting[0], s.waiting[1:]
		s.current.launchBy = s.current.deadline()
		go s.launch(s.current) // ends when the disk answers, or with the process
	}
}

// launch starts a work. It may block.
func (s *launcher) launch(t *task) {
	t.launchErr = s.forker.do(t.launch)
	s.launched <- t
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

// cancel removes a work that is not being started yet. The error says why it was not started; it is nil if the work is
// not there.
func (s *launcher) cancel(t *task) error {
	switch {
	case remove(&s.reading, t):
		return fmt.Errorf("%w: its program %s has not been read yet; does the disk answer?", errKilledEarly, t.spec.Path)
	case remove(&s.waiting, t):
		return errKilledEarly
	}
	return nil
}

// remove removes a task from a list, and reports whether it was there.
func remove(list *[]*task, t *task) bool {
	i := slices.Index(*list, t)
	if i >= 0 {
		*list = slices.Delete(*list, i, i+1)
	}
	return i >= 0
}
