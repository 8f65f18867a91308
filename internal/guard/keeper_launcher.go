package guard

import (
	"fmt"
	"slices"
	"syscall"

	"zkelectd/internal/sys/harden"
)

// launcher starts works, one after the other, on the thread of its forker. That lasts as long as the process: the
// parent death signal makes the work die with the keeper. Only launch runs in another goroutine. It starts no work
// before the program was read: one whose disk hangs would delay all others, see [harden.ReadProgram].
type launcher struct {
	forker   *forker
	waiting  []*task
	read     chan *task // their programs were read
	current  *task      // nil if none is being started
	launched chan *task
	// of children that exited while a work was being started, as one of them may be its main process
	exits map[int]syscall.WaitStatus
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
	s.waiting = append(s.waiting, t)
	go func() { // ends when the disk answers, or with the process
		<-harden.ReadProgram(t.spec.Path, t.spec.Dir)
		s.read <- t
	}()
}

// next starts the next work whose program was read, if none is being started.
func (s *launcher) next() {
	if s.current != nil {
		return
	}
	for _, t := range s.waiting {
		if t.programRead {
			s.remove(t)
			s.current, t.launchBy = t, t.deadline()
			go s.launch(t) // ends when the disk answers, or with the process
			return
		}
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
	case !s.remove(t):
		return nil
	case t.programRead:
		return errKilledEarly
	}
	return fmt.Errorf("%w: its program %s has not been read yet; does the disk answer?", errKilledEarly, t.spec.Path)
}

// remove removes a work that waits, and reports whether it was there.
func (s *launcher) remove(t *task) bool {
	before := len(s.waiting)
	s.waiting = slices.DeleteFunc(s.waiting, func(other *task) bool { return other == t })
	return len(s.waiting) < before
}
