package guard

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/boottime"
	"zkelectd/internal/harden"
)

// Spec is a piece of leader-only work: the child, or the hook before it, or a unit.
type Spec struct {
	// Unit is what systemd runs instead of a program; none of the others counts then.
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
	// Mark is a file that says whether the work runs, for 'zkelectd release'; empty for none.
	StateFile string `json:"state_file,omitempty"`
	// Input is what it reads; nothing by default.
	Input []byte `json:"input,omitempty"`
	// Limit bounds an undo, see [Client.Owe]; 0 for other work.
	Timeout time.Duration `json:"timeout,omitempty"`
}

// task is what the keeper runs on the strength of a lease: one process group and whatever comes of it.
type task struct {
	seq     int
	spec    *Spec
	pid     int
	killAt  time.Duration // when the grace of a stop is over
	doomed  bool          // to be killed
	reaped  bool          // the main process has ended
	next    time.Duration // when to sweep again
	pause   time.Duration
	tries   int           // how often it was swept
	killing time.Duration // when that began
	output  *capture      // nil unless asked for
	group   *cgroup       // nil where there can be none
	marks   *os.File      // nil unless asked for
	alarm   string        // what of it can't be killed
}

// launch starts the work. It must be called on the thread that lives as long as the keeper, because the death signal that
// ties the work to this process follows the thread that forked it.
func launch(m message) (*task, error) {
	t := &task{seq: m.Seq, spec: m.Spec}
	err := t.open(m.Dir)
	if err == nil && enforced && past(m.At) {
		err = errNoLease // this process, or the disk, has stood still meanwhile
	}
	if err == nil {
		t.mark(markRunning)
		err = t.exec()
	}
	if err != nil {
		t.mark(markDead)
		t.output.close()
		t.close()
		return nil, err
	}
	return t, nil
}

// open opens what the work's end will need.
func (t *task) open(dir string) (err error) {
	if t.spec.StateFile != "" {
		if t.marks, err = os.OpenFile(t.spec.StateFile, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600); err != nil {
			return fmt.Errorf("cannot note that work runs: %w", err)
		}
	}
	if dir != "" {
		t.group, err = openCgroup(dir)
	}
	return err
}

func (t *task) exec() error {
	input, err := t.spec.input()
	if err != nil {
		return err
	}
	defer input.Close()
	files := []uintptr{input.Fd(), 1, 2}
	if t.spec.Capture {
		var out *os.File
		if t.output, out, err = newCapture(); err != nil {
			return err
		}
		defer out.Close()
		files[1], files[2] = out.Fd(), out.Fd()
	}
	attr := &syscall.ProcAttr{
		Dir: t.spec.Dir, Env: t.spec.Env, Files: files,
		Sys: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, UseCgroupFD: t.group != nil, CgroupFD: t.group.fd()},
	}
	err = inherited(func() (err error) {
		t.pid, err = syscall.ForkExec(t.spec.Path, t.spec.Argv, attr)
		return err
	})
	if err != nil {
		return &os.PathError{Op: "exec", Path: t.spec.Path, Err: err}
	}
	return nil
}

// inherited calls start, which starts the work or its keeper, with the limits that are those of the work and not of zkelectd.
func inherited(start func() error) error {
	return harden.WithChildScore(func() error { return harden.WithChildCoreLimit(start) })
}

// input is a file with what the work reads.
func (s *Spec) input() (*os.File, error) {
	if len(s.Input) == 0 {
		return os.Open(os.DevNull)
	}
	fd, err := unix.MemfdCreate("input", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "input")
	if _, err = f.WriteAt(s.Input, 0); err != nil {
		f.Close()
	}
	return f, err
}

// close releases what belonged to the work, of which nothing is left.
func (t *task) close() {
	t.group.close()
	if t.marks != nil {
		t.marks.Close()
	}
}

// stop asks the group to end within grace.
func (t *task) stop(grace time.Duration) {
	if grace <= 0 {
		t.doomed = true
		return
	}
	if t.killAt == 0 && !t.reaped {
		t.killAt = boottime.Now() + grace + keeperLag // before that the guard kills, and says so
		syscall.Kill(-t.pid, t.spec.StopSignal)
		// A stopped process can't handle the signal before it goes on.
		syscall.Kill(-t.pid, syscall.SIGCONT)
	}
}

// ending reports whether the work has to be swept up.
func (t *task) ending() bool { return t.doomed || t.reaped }

// Pauses between two sweeps.
const (
	sweepLeast = time.Millisecond
	sweepMost  = 20 * time.Millisecond
)

func (t *task) later() { t.next = boottime.Now() + longer(&t.pause) }

// longer returns the next pause between two sweeps.
func longer(pause *time.Duration) time.Duration {
	*pause = min(max(sweepLeast, 2**pause), sweepMost)
	return *pause
}

// Success is the Status of work that has ended well.
const StatusSuccess = "exited with status 0"

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
