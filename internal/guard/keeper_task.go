package guard

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/sys/harden"
)

// task is a piece of work as the keeper sees it: one process group and all of its descendants.
type task struct {
	seq         int
	spec        *Spec
	pid         int
	killAt      time.Duration // when the grace period of a stop ends; 0 if it was not asked to stop
	killing     bool          // it is to be killed, until it is dead
	reaped      bool          // the main process has exited and was waited for
	nextSweep   time.Duration // when to sweep next
	sweepDelay  time.Duration
	sweeps      int           // how many sweeps there were
	killStarted time.Duration // when the first sweep was
	output      *capture      // nil unless the output is captured
	group       *cgroup       // nil without a control group
	stateFile   *os.File      // nil for none
	unkillable  string        // the reported reason why it cannot be killed; empty for none
	place       place         // of its lease
	until       time.Duration // the deadline of a pending hook, which has no lease; 0 for other work

	programRead bool          // it can be started without waiting for the disk
	launchBy    time.Duration // it must not be started later, whatever lease has followed

	// The launcher's goroutine uses the following while launching is set.
	launching bool
	launchErr error
}

// launch starts the work. It is called on the launcher's thread, and may block.
func (t *task) launch() (err error) {
	if t.spec.StateFile != "" {
		if t.stateFile, err = os.OpenFile(t.spec.StateFile, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600); err != nil {
			return fmt.Errorf("cannot record that work runs: %w", err)
		}
	}
	if enforced && boottime.Now() >= min(t.launchBy, t.deadline()) {
		return errNoLease // this process or the disk was paused in the meantime
	}
	t.writeState(stateRunning)
	return t.exec()
}

// exec forks and executes the program.
func (t *task) exec() error {
	files := []uintptr{0, 1, 2}
	if !t.spec.KeepInput {
		input, err := t.spec.input()
		if err != nil {
			return err
		}
		defer input.Close()
		files[0] = input.Fd()
	}
	if t.spec.Capture {
		var out *os.File
		var err error
		if t.output, out, err = newCapture(); err != nil {
			return err
		}
		defer out.Close()
		files[1], files[2] = out.Fd(), out.Fd()
	}
	attr := &syscall.ProcAttr{
		Dir: t.spec.Dir, Env: t.spec.Env, Files: files,
		// A session of its own has no terminal: the kernel would stop a process group in the background that reads from
		// one.
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, UseCgroupFD: t.group != nil,
			CgroupFD: t.group.fd()},
	}
	err := withChildLimits(func() (err error) {
		t.pid, err = syscall.ForkExec(t.spec.Path, t.spec.Argv, attr)
		return err
	})
	if err != nil {
		return &os.PathError{Op: "exec", Path: t.spec.Path, Err: err}
	}
	return nil
}

// withChildLimits calls start, which starts the work or its keeper, with the resource limits and the OOM score that are
// meant for the work instead of those that protect zkelectd.
func withChildLimits(start func() error) error {
	return harden.WithChildScore(func() error { return harden.WithChildCoreLimit(start) })
}

// input returns an open file with the standard input.
func (s *Spec) input() (*os.File, error) {
	if len(s.Input) == 0 {
		return os.Open(os.DevNull)
	}
	return memoryFile("input", s.Input)
}

// memoryFile returns an open file with this content, which is on no disk.
func memoryFile(name string, content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err = f.WriteAt(content, 0); err != nil {
		f.Close()
	}
	return f, err
}

// close closes the files that were opened for the work, once it is dead.
func (t *task) close() {
	t.group.Close()
	if t.stateFile != nil {
		t.stateFile.Close()
	}
}

// writeState records in the state file whether the work runs, for the case that guard, daemon and keeper are all
// killed.
func (t *task) writeState(text string) {
	if t.stateFile != nil {
		t.stateFile.WriteAt([]byte(text), 0)
	}
}

// stop asks the process group to stop and has it killed after grace.
func (t *task) stop(grace time.Duration) {
	if grace <= 0 {
		t.killing = true
		return
	}
	if t.killAt == 0 && !t.reaped {
		t.killAt = boottime.Now() + grace + keeperDelay // the guard kills before that and logs it
		if t.launching {
			t.killing = true
			return
		}
		syscall.Kill(-t.pid, t.spec.StopSignal)
		// A stopped process handles the signal only after it continues.
		syscall.Kill(-t.pid, syscall.SIGCONT)
	}
}

// needsSweep reports whether any process that is left of the work has to be killed.
func (t *task) needsSweep() bool { return t.killing || t.reaped }

// nextCheck returns when the work has to be checked next; 0 if only after an event.
func (t *task) nextCheck() time.Duration {
	switch {
	case t.needsSweep():
		return max(1, t.nextSweep)
	case enforced:
		return earliest(t.killAt, t.deadline()+keeperDelay)
	default:
		return t.killAt
	}
}

// deadline returns until when the work may run; 0 if it may not.
func (t *task) deadline() time.Duration {
	if t.until != 0 {
		return t.until
	}
	return t.place.deadline()
}

// leaseExpired reports whether the lease has ended and the guard has not acted.
func (t *task) leaseExpired() bool { return enforced && boottime.Now() >= t.deadline()+keeperDelay }

// isOver reports whether the work may not run any longer, and is not being killed yet.
func (t *task) isOver() bool { return !t.needsSweep() && (t.leaseExpired() || past(t.killAt)) }

// The delay between two sweeps.
const (
	minSweepDelay = time.Millisecond
	maxSweepDelay = 20 * time.Millisecond
)

// nextDelay doubles the delay between two sweeps, up to a maximum, and returns it.
func nextDelay(delay *time.Duration) time.Duration {
	*delay = min(max(minSweepDelay, 2**delay), maxSweepDelay)
	return *delay
}

// StatusSuccess is the Status of work that has succeeded.
const StatusSuccess = "exited with status 0"

// exitText describes how a process ended, as in "exited with status 3".
func exitText(status syscall.WaitStatus) string {
	if status.Signaled() {
		return fmt.Sprintf("was killed by signal %d (%s)", status.Signal(), status.Signal())
	}
	return fmt.Sprintf("exited with status %d", status.ExitStatus())
}

// maxOutput is how many bytes of captured output are kept.
const maxOutput = 4096

// capture keeps the beginning of what is written into a pipe, and discards the rest.
type capture struct {
	file *os.File
	done chan struct{}
	mu   sync.Mutex
	text []byte
}

func newCapture() (*capture, *os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	c := &capture{file: r, done: make(chan struct{})}
	go c.run()
	return c, w, nil
}

// run runs until the pipe ends.
func (c *capture) run() {
	defer close(c.done)
	buf := make([]byte, 1024)
	for {
		n, err := c.file.Read(buf)
		c.mu.Lock()
		c.text = append(c.text, buf[:min(n, maxOutput-len(c.text))]...)
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// close returns what was captured. All writers are dead, so the pipe is about to end.
func (c *capture) close() string {
	if c == nil {
		return ""
	}
	if err := c.file.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil &&
		!errors.Is(err, os.ErrNoDeadline) {
		c.file.Close()
	}
	<-c.done
	c.file.Close()
	return string(c.text)
}
