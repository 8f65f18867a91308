package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/boottime"
)

// Timing of the daemon's side.
const (
	sendLimit   = time.Second           // a guard that takes nothing for so long is hung
	answerLimit = 5 * time.Second       // a guard that does not start anything for so long is hung
	overdue     = 50 * time.Millisecond // a guard has killed by then what the lease no longer covers
)

// ErrLost says that the guard is dead or hung, and that the work has been killed without it.
var ErrLost = errors.New("the guard is lost")

// Client is the daemon's side of the guard. It is safe for concurrent use.
type Client struct {
	log    *slog.Logger
	socket *os.File
	guard  int // its pid
	every  time.Duration
	timer  *time.Timer
	life   context.Context // over when the guard is lost
	lose   context.CancelCauseFunc

	writing sync.Mutex

	mu      sync.Mutex
	seq     int
	running *Work
	leased  time.Duration // the deadline that the guard has confirmed
	doubted bool          // it is over, and the guard has been given a last moment
	session *Credentials
}

// Connect takes the daemon's end of the socket, at fd. Whoever calls it is a child of the guard. Close ends it.
func Connect(fd int, log *slog.Logger) (*Client, error) {
	if _, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err != nil {
		return nil, fmt.Errorf("there is no guard at file descriptor %d: %w; start zkelectd with 'zkelectd run'", fd, err)
	}
	unix.CloseOnExec(fd)
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	c := &Client{log: log, socket: os.NewFile(uintptr(fd), "guard"), guard: os.Getppid(), every: askedToBeat(log)}
	c.life, c.lose = context.WithCancelCause(context.Background())
	c.timer = time.AfterFunc(time.Hour, c.expire)
	go c.read()
	return c, nil
}

// Close hangs up, which the guard takes for the daemon's end.
func (c *Client) Close() {
	c.timer.Stop()
	c.socket.Close()
}

// Pid is the guard's.
func (c *Client) Pid() int { return c.guard }

// Every is how often the service manager's watchdog has to hear of the daemon, by Beat or Waits; 0 for never.
func (c *Client) Every() time.Duration { return c.every }

// Life is over when the guard is lost. The work is dead or dying then, and none can be started.
func (c *Client) Life() context.Context { return c.life }

// Err is an [ErrLost] with the reason once Life is over, nil before.
func (c *Client) Err() error { return context.Cause(c.life) }

// read ends with the socket.
func (c *Client) read() {
	for {
		m, err := readFrame(c.socket)
		if err != nil {
			if !errors.Is(err, os.ErrClosed) {
				c.abandon(fmt.Errorf("%w: %w", ErrLost, err))
			}
			return
		}
		c.take(m)
	}
}

func (c *Client) take(m message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.running
	if m.Kind == kindLeased {
		c.leased = m.At
		c.watch()
		return
	}
	if w == nil || w.seq != m.Seq || c.Err() != nil {
		return
	}
	switch m.Kind {
	case kindStarted:
		if m.Error != "" {
			c.running = nil
			w.started <- errors.New(m.Error)
			return
		}
		w.pid = m.Pid
		w.started <- nil
		c.watch()
	case kindExited:
		w.status = m.Status
		close(w.exited)
	case kindDead:
		w.output = m.Output
		c.running = nil
		close(w.dead)
	}
}

// watch sets the timer that looks after the guard. mu is held.
func (c *Client) watch() {
	c.doubted = false
	c.timer.Stop()
	if enforced && c.running != nil && c.leased != 0 && c.Err() == nil {
		c.timer.Reset(max(0, c.leased+overdue-boottime.Now()))
	}
}

// expire finds work that outlives what the guard has confirmed of its lease: then the guard is hung, and the daemon kills
// in its stead. The timer's clock stands still while the host is suspended, the lease's doesn't: so it looks again.
func (c *Client) expire() {
	c.mu.Lock()
	due := c.running != nil && c.leased != 0 && c.Err() == nil
	switch {
	case due && boottime.Now() < c.leased+overdue:
		c.watch()
		due = false
	case due && !c.doubted:
		// After a pause of this process a confirmation may wait to be read.
		c.doubted, due = true, false
		c.timer.Reset(settle)
	}
	c.mu.Unlock()
	if due {
		c.abandon(fmt.Errorf("%w: it has not ended the work with the lease", ErrLost))
	}
}

// abandon does without the guard: for good, since a guard that is merely slow must not start anything later. The guard
// is killed, then everything below it but this process.
func (c *Client) abandon(cause error) {
	c.mu.Lock()
	if c.Err() != nil {
		c.mu.Unlock()
		return
	}
	c.lose(cause)
	w := c.running
	c.running = nil
	c.timer.Stop()
	c.mu.Unlock()
	left := descendants(c.guard, os.Getpid()) // before its death leaves them to others
	if os.Getppid() == c.guard && c.guard != 1 {
		syscall.Kill(c.guard, syscall.SIGKILL)
	}
	if w != nil {
		select {
		case w.started <- cause:
		default:
		}
		go w.mourn(left) // ends when nothing of it is left
	}
	c.log.Error("killing the work: "+cause.Error(), "guard", c.guard)
}

// send tells the guard something. What is wrong shows on the reading side.
func (c *Client) send(m message) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := c.socket.SetWriteDeadline(time.Now().Add(sendLimit)); err != nil {
		return
	}
	if err := writeFrame(c.socket, m); errors.Is(err, os.ErrDeadlineExceeded) {
		c.socket.Close() // part of a frame may be out: nothing can follow it
		c.abandon(fmt.Errorf("%w: it takes no messages", ErrLost))
	}
}

// Lease allows work until deadline, of CLOCK_BOOTTIME; 0 allows none.
func (c *Client) Lease(deadline time.Duration) { c.send(message{Kind: kindLease, At: deadline}) }

// Beat promises that the daemon speaks again before until; 0 that it need not. A daemon that breaks it is killed.
func (c *Client) Beat(until time.Duration) { c.send(message{Kind: kindBeat, At: until}) }

// Waits says that the daemon is alive, though it has no session on which it could be told to be hung.
func (c *Client) Waits() { c.send(message{Kind: kindWaits}) }

// Notify has the guard tell the service manager something, in the words of sd_notify(3); without one it is lost.
func (c *Client) Notify(state string) { c.send(message{Kind: kindNotify, Notify: state}) }

// Session hands over what it takes to close the session after the daemon's death, and keeps it in its File.
func (c *Client) Session(s Credentials) {
	c.mu.Lock()
	c.session = &s
	c.mu.Unlock()
	c.keep()
	c.send(message{Kind: kindSession, Session: &s})
}

// SessionClosed says that there is nothing to close any more.
func (c *Client) SessionClosed() {
	c.mu.Lock()
	s := c.session
	c.session = nil
	c.mu.Unlock()
	c.send(message{Kind: kindSession})
	if s != nil {
		Forget(s.File)
	}
}

// keep brings the session file up to date, or says in the log that it could not.
func (c *Client) keep() error {
	c.mu.Lock()
	s, w := c.session, c.running
	c.mu.Unlock()
	if s == nil || s.File == "" {
		return nil
	}
	f := SessionFile{Session: *s, Boot: boot()}
	if w != nil {
		f.Unit = w.unit
	}
	owners := []struct {
		role string
		pid  int
	}{{"guard", c.guard}, {"daemon", os.Getpid()}}
	if w != nil && w.pid != 0 {
		owners = append(owners, struct {
			role string
			pid  int
		}{"leader-only work", w.pid})
	}
	for _, o := range owners {
		if p, ok := identify(o.role, o.pid); ok {
			f.Processes = append(f.Processes, p)
		}
	}
	err := f.Keep(s.File)
	if err != nil {
		c.log.Error("'zkelectd release' will not find this session", "err", err)
	}
	return err
}
