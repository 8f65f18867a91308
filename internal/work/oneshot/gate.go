// Package oneshot runs a job once per occasion, as the leader-only work of a group: it records runs in ZooKeeper, and
// connects the daemon with the process that starts the job. It does not elect, and it does not enforce the lease: the
// daemon and its guard do.
package oneshot

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// End is how a job has ended.
type End struct {
	Status int `json:"status"`
	// Signaled is set if the starter was asked to stop before.
	Signaled bool `json:"signaled,omitempty"`
}

// message is what the starter of a job and the daemon send each other: the starter asks for its term and slot, the
// daemon answers, and the starter reports the end.
type message struct {
	Term int64  `json:"term,omitempty"`
	Slot string `json:"slot,omitempty"`
	Run  bool   `json:"run,omitempty"`
	End  *End   `json:"end,omitempty"`
}

// Gate is the daemon's side of the socket. Only one starter at a time is served.
type Gate struct {
	listener *net.UnixListener

	mu     sync.Mutex
	conn   *net.UnixConn // to the starter; it waits until this is closed
	closed bool
}

// NewGate listens at a new address, for processes that inherit this one's environment. The address has no file, which
// would remain if the daemon were killed, and is chosen only when it is taken: other users can see abstract addresses,
// and could take one that they knew before.
func NewGate() (*Gate, error) {
	address := "@zkelectd-exec-" + rand.Text()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: address, Net: "unix"})
	if err != nil {
		return nil, err
	}
	if err := os.Setenv(addressVariable, address); err != nil {
		l.Close()
		return nil, err
	}
	return &Gate{listener: l}, nil
}

// addressVariable is the environment variable with the address of a gate. Unlike an argument, only this user can see
// it.
const addressVariable = "EXEC_JOB_ADDRESS"

// dial connects with the gate of the daemon, and takes its variable out of the environment.
func dial() (*net.UnixConn, error) {
	address := os.Getenv(addressVariable)
	os.Unsetenv(addressVariable) // the job does not get it
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: address, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("cannot ask the daemon of zkelectd exec: %w", err)
	}
	if user, err := peerUser(conn); err != nil || user != os.Geteuid() {
		// the daemon has ended, and somebody has taken its address
		conn.Close()
		return nil, errors.Join(fmt.Errorf("user %d answers at %s instead of the daemon", user, address), err)
	}
	return conn, nil
}

// peerUser returns the user id of the process at the other end of a socket.
func peerUser(conn *net.UnixConn) (user int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if failed != nil {
		return 0, os.NewSyscallError("getsockopt(SO_PEERCRED)", failed)
	}
	return int(cred.Uid), nil
}

// Close lets the starter end. It may be called while Serve runs, and more than once.
func (g *Gate) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.listener.Close()
	if g.conn != nil {
		g.conn.Close()
	}
}

// accept waits for the starter. Other users can see the address, so they are turned away.
func (g *Gate) accept() (*net.UnixConn, error) {
	for {
		conn, err := g.listener.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if user, err := peerUser(conn); err != nil || user != os.Geteuid() {
			conn.Close()
			continue
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.closed {
			conn.Close()
			return nil, net.ErrClosed
		}
		g.conn = conn
		return conn, nil
	}
}

// errKilled is why a job has no end.
var errKilled = errors.New("the job was killed, because this host may have lost the lease, or a process of " +
	"zkelectd has failed")

// Serve waits for a starter, calls begin with its term and slot, and lets it run the job unless begin returns an
// error, which Serve then returns. It returns how the job has ended.
func (g *Gate) Serve(begin func(term int64, slot string) error) (End, error) {
	conn, err := g.accept()
	if err != nil {
		return End{}, err
	}
	in := json.NewDecoder(conn)
	var asked, done message
	if in.Decode(&asked) != nil {
		return End{}, errKilled
	}
	err = begin(asked.Term, asked.Slot)
	if json.NewEncoder(conn).Encode(message{Run: err == nil}) != nil && err == nil {
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

// RunJob is the work: it asks the daemon, runs the job if it may, and reports how the job has ended. Then it waits for
// the signal with which the daemon stops the work, so that the daemon does not take the end for a failure. The guard
// sends that signal to the job as well.
func RunJob(term int64, slot string, argv []string) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
	conn, err := dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	in, out := json.NewDecoder(conn), json.NewEncoder(conn)
	var answer message
	if err := errors.Join(out.Encode(message{Term: term, Slot: slot}), in.Decode(&answer)); err != nil {
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
