package oneshot

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// End is how a job has ended.
type End struct {
	Status int `json:"status"`
	// Signaled is set if the starter was asked to stop before.
	Signaled bool `json:"signaled,omitempty"`
}

// message is what the starter of a job and the daemon send each other, each on one line: the starter asks for its term, the daemon
// answers, and the starter reports the end.
type message struct {
	Term int64 `json:"term,omitempty"`
	Run  bool  `json:"run,omitempty"`
	End  *End  `json:"end,omitempty"`
}

// Gate is the daemon's side of the socket. Only one starter at a time is served.
type Gate struct {
	listener net.Listener
	conn     net.Conn // to the starter; it waits until this is closed
}

// NewGate listens on a unix socket, in a directory that only this user can enter.
func NewGate(path string) (*Gate, error) {
	l, err := net.Listen("unix", path)
	return &Gate{listener: l}, err
}

// Close lets the starter end. Serve must not be called again.
func (g *Gate) Close() {
	g.listener.Close()
	if g.conn != nil {
		g.conn.Close()
	}
}

// errKilled is why a job has no end.
var errKilled = errors.New("the job was killed, because this host may have lost the lease, or a process of zkelectd has failed")

// Serve waits for a starter, calls begin with its term, and lets it run the job unless begin returns an error, which Serve then
// returns. It returns how the job has ended.
func (g *Gate) Serve(begin func(term int64) error) (End, error) {
	conn, err := g.listener.Accept()
	if err != nil {
		return End{}, err
	}
	g.conn = conn
	in, out := json.NewDecoder(conn), json.NewEncoder(conn)
	var asked, done message
	if in.Decode(&asked) != nil {
		return End{}, errKilled
	}
	err = begin(asked.Term)
	if out.Encode(message{Run: err == nil}) != nil && err == nil {
		err = errKilled
	}
	if err != nil {
		return End{}, err
	}
	if in.Decode(&done) != nil || done.End == nil {
		return End{}, errKilled
	}
	return *done.End, nil
}

// StatusSignal is the base of the exit statuses of jobs that a signal has killed, as shells have it.
const StatusSignal = 128

// Exit statuses of a job that cannot be started.
const (
	statusNotExecutable = 126
	statusNotFound      = 127
)

// signalDelay is how long the starter may take to notice a signal that has ended the job.
const signalDelay = 100 * time.Millisecond

// RunJob is the work: it asks the daemon at a socket, runs the job if it may, and reports how the job has ended. Then it waits for the
// signal with which the daemon stops the work, so that the daemon does not take the end for a failure. The guard sends that signal to
// the job as well.
func RunJob(socket string, term int64, argv []string) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	in, out := json.NewDecoder(conn), json.NewEncoder(conn)
	var answer message
	if err := errors.Join(out.Encode(message{Term: term}), in.Decode(&answer)); err != nil {
		return fmt.Errorf("the daemon does not answer: %w", err)
	}
	if answer.Run {
		end := End{Status: runJob(argv)}
		late := time.NewTimer(signalDelay)
		defer late.Stop()
		select {
		case <-signals:
			end.Signaled = true
		case <-late.C:
		}
		if err := out.Encode(message{End: &end}); err != nil {
			return fmt.Errorf("the daemon does not answer: %w", err)
		}
	}
	gone := make(chan struct{})
	go func() { // ends with the daemon, or this process
		in.Decode(&answer)
		close(gone)
	}()
	select {
	case <-signals:
	case <-gone:
	}
	return nil
}

// runJob runs the job and returns its exit status.
func runJob(argv []string) int {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	var ended *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &ended):
		if s, ok := ended.Sys().(syscall.WaitStatus); ok && s.Signaled() {
			return StatusSignal + int(s.Signal())
		}
		return ended.ExitCode()
	}
	fmt.Fprintf(os.Stderr, "zkelectd exec: cannot start the job: %v\n", err)
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return statusNotFound
	}
	return statusNotExecutable
}
