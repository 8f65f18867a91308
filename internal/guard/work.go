package guard

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"zkelectd/internal/boottime"
	"zkelectd/internal/coredump"
)

// Spec is a piece of leader-only work: the child, or the hook before it, or a unit.
type Spec struct {
	// Unit is what systemd runs instead of a program; of the others only Env counts then.
	Unit *Unit `json:"unit,omitempty"`
	// Path is the program, found by whoever asks; Argv its arguments with the name first.
	Path string   `json:"path"`
	Argv []string `json:"argv"`
	Dir  string   `json:"dir,omitempty"`
	// Env is the complete environment.
	Env []string `json:"env"`
	// StopSignal asks the process group to end.
	StopSignal syscall.Signal `json:"stop_signal"`
	// Capture keeps the beginning of what it prints, for an error message, instead of passing it on.
	Capture bool `json:"capture,omitempty"`
}

// work is what runs on the strength of a lease: one process group and whatever comes of it.
type work struct {
	seq    int
	spec   *Spec
	pid    int
	killAt time.Duration // when the grace of a stop is over
	doomed bool          // to be killed
	reaped bool          // the main process has ended
	next   time.Duration // when to sweep again
	pause  time.Duration
	output *capture // nil unless asked for
	group  *cgroup  // nil where there can be none
	unit   *end     // nil unless it is a unit
}

// launch starts the work. It must be called on the thread that lives as long as the guard, because the death signal that
// ties the work to this process follows the thread that forked it.
func launch(seq int, spec *Spec, groups string) (*work, error) {
	if spec.Unit != nil {
		return launchUnit(seq, spec)
	}
	w := &work{seq: seq, spec: spec, group: newCgroup(groups, seq)}
	if err := w.exec(); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// launchUnit lets systemd start a unit.
func launchUnit(seq int, spec *Spec) (*work, error) {
	e, err := newEnd(*spec.Unit)
	if err == nil {
		err = spec.Unit.allow(os.Getpid(), spec.Env)
	}
	return &work{seq: seq, spec: spec, unit: e}, err
}

// who names the work in the log.
func (w *work) who() slog.Attr {
	if w.unit != nil {
		return slog.String("unit", w.spec.Unit.Name)
	}
	return slog.Int("pid", w.pid)
}

func (w *work) exec() error {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	files := []uintptr{null.Fd(), 1, 2}
	if w.spec.Capture {
		var out *os.File
		if w.output, out, err = newCapture(); err != nil {
			return err
		}
		defer out.Close()
		files[1], files[2] = out.Fd(), out.Fd()
	}
	attr := &syscall.ProcAttr{
		Dir: w.spec.Dir, Env: w.spec.Env, Files: files,
		Sys: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, UseCgroupFD: w.group != nil, CgroupFD: w.group.fd()},
	}
	err = coredump.Inherited(func() (err error) {
		w.pid, err = syscall.ForkExec(w.spec.Path, w.spec.Argv, attr)
		if err != nil && w.group != nil {
			attr.Sys.UseCgroupFD = false // not possible here after all
			w.group.close()
			w.group = nil
			w.pid, err = syscall.ForkExec(w.spec.Path, w.spec.Argv, attr)
		}
		return err
	})
	if err != nil {
		return &os.PathError{Op: "exec", Path: w.spec.Path, Err: err}
	}
	return nil
}

// close lets go of what belonged to the work, of which nothing is left, and returns what it printed.
func (w *work) close() string {
	w.group.close()
	return w.output.close()
}

// stop asks the group to end within grace.
func (w *work) stop(grace time.Duration) {
	if grace <= 0 {
		w.doomed = true
		return
	}
	if w.killAt == 0 && !w.reaped {
		w.killAt = boottime.Now() + grace
		if w.unit != nil {
			return // systemd has been asked
		}
		syscall.Kill(-w.pid, w.spec.StopSignal)
		// A stopped process can't handle the signal before it goes on.
		syscall.Kill(-w.pid, syscall.SIGCONT)
	}
}

// sweep kills what is left of the work, once it is doomed or its main process has ended, and tells that nothing is.
// Whatever has left its group or lost its parents has become a child of this process, which is their subreaper; only
// spare, the daemon, is none of the work.
func (w *work) sweep(spare int) (dead bool) {
	if !w.ending() || boottime.Now() < w.next {
		return false
	}
	if w.unit != nil {
		if w.unit.sweep(w.doomed) {
			return true
		}
		w.later()
		return false
	}
	if !w.reaped {
		syscall.Kill(-w.pid, syscall.SIGKILL)
	}
	left := descendants(os.Getpid(), spare)
	populated := w.group.populated()
	if w.reaped && len(left) == 0 && !populated {
		return true
	}
	if populated {
		w.group.kill()
	}
	for _, pid := range left {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	w.later()
	return false
}

// Pauses between two sweeps.
const (
	sweepLeast = time.Millisecond
	sweepMost  = 20 * time.Millisecond
)

func (w *work) later() {
	w.pause = min(max(sweepLeast, 2*w.pause), sweepMost)
	w.next = boottime.Now() + w.pause
}

// ending tells that the work has to be swept up. Nobody but who looks learns of the end of a unit.
func (w *work) ending() bool { return w.doomed || w.reaped || w.unit != nil && w.killAt != 0 }

// due is when the work has to be looked at again; 0 for not by itself.
func (w *work) due() time.Duration {
	switch {
	case w.doomed || w.reaped:
		return max(1, w.next)
	case w.ending():
		return max(1, min(w.next, w.killAt))
	}
	return w.killAt
}

// outcome says how a unit ended, as far as the guard had a hand in it.
func (w *work) outcome() string {
	if w.doomed {
		return "was killed"
	}
	return "has stopped"
}

// Success is the Status of work that has ended well.
const Success = "exited with status 0"

// ending says how a main process ended, as in "exited with status 3".
func ending(status syscall.WaitStatus) string {
	if status.Signaled() {
		return fmt.Sprintf("was killed by signal %d (%s)", status.Signal(), status.Signal())
	}
	return fmt.Sprintf("exited with status %d", status.ExitStatus())
}

// maxOutput bounds what is kept of captured output.
const maxOutput = 4096

// capture keeps the beginning of what is written into a pipe, and reads the rest away.
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

// run ends when the pipe does.
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

// close returns what was captured. Everyone who could write is dead, so the pipe's end is near.
func (c *capture) close() string {
	if c == nil {
		return ""
	}
	if err := c.file.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil && !errors.Is(err, os.ErrNoDeadline) {
		c.file.Close()
	}
	<-c.done
	c.file.Close()
	return string(c.text)
}
