package guard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Timing of the daemon's side: how long it waits before it treats the guard as hung.
const (
	sendTimeout  = time.Second            // for the guard to read a message
	startTimeout = 5 * time.Second        // for the guard to answer a start message
	guardOverdue = 150 * time.Millisecond // for the guard to kill the work after the end of the lease
)

// ErrLost reports that the guard is dead or hung, and that the daemon kills the work without it.
var ErrLost = errors.New("the guard is lost")

// Client is the daemon's side of the guard. It is safe for concurrent use.
type Client struct {
	log              *slog.Logger
	socket           *os.File
	guard            int // the guard's pid
	watchdogInterval time.Duration
	timer            *time.Timer
	owners           []Process       // the guard and this process
	ctx              context.Context // canceled when the guard is lost
	cancel           context.CancelCauseFunc
	report           keeperReport

	writing sync.Mutex
	// updating is held while the session or the hooks change, until the guard and the session file have that: what is set last is
	// sent and written last. It is locked before mu, and never on the way to a kill.
	updating sync.Mutex

	mu           sync.Mutex
	seq          int
	running      *Work
	containment  *ContainmentRecord // the mode and the keeper; nil until the guard has sent them
	keeperHandle *containmentHandle
	unkillable   string
	confirmed    time.Duration // the deadline that the guard has confirmed
	requested    time.Duration // the deadline that the guard was sent last; 0 for none
	lastChance   bool          // the deadline has passed, and the guard gets drainTime to confirm another
	session      *Credentials
	pendingHooks []Spec
}

// Connect returns a client that uses the socket to the guard at file descriptor fd, and the keeper's pipe at fd+1. The process
// must be a child of the guard. The client must be closed.
func Connect(fd int, log *slog.Logger) (*Client, error) {
	// Not os.Getppid: if the guard has just died, the parent is the process that adopted this one.
	guard, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return nil, fmt.Errorf("there is no guard at file descriptor %d: %w; start zkelectd with 'zkelectd run'", fd, err)
	}
	for _, f := range []int{fd, fd + 1} {
		unix.CloseOnExec(f)
		if err := unix.SetNonblock(f, true); err != nil {
			return nil, os.NewSyscallError("fcntl", err)
		}
	}
	c := &Client{log: log, socket: os.NewFile(uintptr(fd), "guard"), guard: int(guard.Pid), watchdogInterval: watchdogInterval(log)}
	// The guard comes first: an operator who reads that it still runs stops it, and with it the daemon.
	for _, owner := range []Process{{Role: "guard", Pid: c.guard}, {Role: "daemon", Pid: os.Getpid()}} {
		p, ok := Identify(owner.Role, owner.Pid)
		if !ok {
			return nil, fmt.Errorf("cannot read when the %s (process %d) was started: has it exited, or is /proc not mounted?", owner.Role, owner.Pid)
		}
		c.owners = append(c.owners, p)
	}
	c.report = keeperReport{os.NewFile(uintptr(fd+1), "keeper"), make(chan struct{}), make(chan struct{})}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.timer = time.AfterFunc(time.Hour, c.checkExpired)
	go c.read()
	go c.report.read()
	return c, nil
}

// Close closes the socket. The guard then kills the work and expects the daemon to exit.
func (c *Client) Close() {
	c.timer.Stop()
	c.socket.Close()
	c.report.pipe.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keeperHandle != nil {
		c.keeperHandle.close()
		c.keeperHandle = nil
	}
}

// GuardPid returns the pid of the guard.
func (c *Client) GuardPid() int { return c.guard }

// Owners returns the guard and the daemon, which is this process.
func (c *Client) Owners() (guard, daemon Process) { return c.owners[0], c.owners[1] }

// WatchdogInterval returns how often the daemon has to call Heartbeat or ReportAlive for the service manager's watchdog; 0 if
// there is no watchdog.
func (c *Client) WatchdogInterval() time.Duration { return c.watchdogInterval }

// Context returns a context that is canceled when the guard is lost. The work is then dead or being killed, and no other can be
// started.
func (c *Client) Context() context.Context { return c.ctx }

// Err returns an [ErrLost] with the reason once the guard is lost, and nil before.
func (c *Client) Err() error { return context.Cause(c.ctx) }

// Containment returns how the work is contained; empty until the guard has reported it.
func (c *Client) Containment() Containment {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.containment == nil {
		return ""
	}
	return c.containment.Mode
}

// Unkillable returns which process of the work cannot be killed, and why; empty if no such process is known.
func (c *Client) Unkillable() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unkillable
}

// read runs until the socket ends.
func (c *Client) read() {
	for {
		m, err := readFrame(c.socket)
		if err != nil {
			if !errors.Is(err, os.ErrClosed) {
				c.loseGuard(fmt.Errorf("%w: %w", ErrLost, err))
			}
			return
		}
		c.receive(m)
	}
}

// receive handles a message from the guard.
func (c *Client) receive(m message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.running
	switch {
	case m.Kind == kindLeaseConfirmed:
		c.confirmed = m.At
		c.armTimer()
		return
	case m.Kind == kindKeeper:
		c.setKeeper(m.Containment)
		return
	case w == nil || w.seq != m.Seq || c.Err() != nil:
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
		w.setContainment(m.Containment)
		w.started <- nil
	case kindExited:
		w.status = m.Status
		close(w.exited)
	case kindUnkillable:
		c.unkillable = m.Error
		w.reportUnkillable(m.Error)
	case kindDead:
		w.output = m.Output
		c.running, c.unkillable = nil, ""
		w.close()
		close(w.dead)
	}
}

// setKeeper records the keeper. The caller must hold mu.
func (c *Client) setKeeper(r *ContainmentRecord) {
	c.containment = r
	if r == nil {
		return
	}
	h, err := openContainment(*r)
	if err != nil {
		c.log.Warn("if the guard is lost, the death of the work cannot be proven, and the session will be left to expire", "err", err)
		return
	}
	c.keeperHandle = h
}

// send sends a message to the guard. It reports no errors: the reading side notices that the guard is gone.
func (c *Client) send(m message) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := c.socket.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return
	}
	if err := writeFrame(c.socket, m); errors.Is(err, os.ErrDeadlineExceeded) {
		c.socket.Close() // nothing can follow a frame that may have been sent in part
		c.loseGuard(fmt.Errorf("%w: it does not read its messages", ErrLost))
	}
}

// SetLease allows work until deadline, a reading of CLOCK_BOOTTIME; 0 allows none. A caller that shortens a lease must call it
// from one goroutine only, so that an older deadline is not sent after the shorter one. The client enforces a shorter deadline
// from now on as well, whether or not the guard confirms it.
func (c *Client) SetLease(deadline time.Duration) {
	c.mu.Lock()
	c.requested = deadline
	c.armTimer()
	c.mu.Unlock()
	c.send(message{Kind: kindLease, At: deadline})
}

// Heartbeat shows that the daemon is alive, and promises another call before until; 0 promises none. The guard kills a daemon
// that breaks the promise.
func (c *Client) Heartbeat(until time.Duration) { c.send(message{Kind: kindHeartbeat, At: until}) }

// ReportAlive shows that the daemon is alive while it has no session, and therefore no deadline for its next heartbeat.
func (c *Client) ReportAlive() { c.send(message{Kind: kindAlive}) }

// Notify passes a state in the format of sd_notify(3) on to the service manager, if there is one.
func (c *Client) Notify(state string) { c.send(message{Kind: kindNotify, Notify: state}) }

// SetPendingHooks sets the hooks that have to run after the work if this daemon dies before it runs them (A5 in
// docs/protocol.md). The guard runs them before it closes the session; if the guard is dead too, the next start or 'zkelectd
// release' does. An error means that the session file, which the latter two read, could not be written.
func (c *Client) SetPendingHooks(hooks ...Spec) error {
	c.updating.Lock()
	defer c.updating.Unlock()
	c.mu.Lock()
	c.pendingHooks = hooks
	c.mu.Unlock()
	c.send(message{Kind: kindPendingHooks, PendingHooks: hooks})
	return c.writeSessionFile()
}

// SetSession gives the guard what it needs to close the session after the daemon's death, and writes the session file.
func (c *Client) SetSession(s Credentials) {
	c.updating.Lock()
	defer c.updating.Unlock()
	c.mu.Lock()
	c.session = &s
	c.mu.Unlock()
	if s.File != "" {
		if err := os.WriteFile(workStateFile(s.File), []byte(stateDead), 0o600); err != nil { // no work has started yet
			c.log.Error("'zkelectd release' may not be able to determine whether work runs", "err", err)
		}
	}
	c.writeSessionFile()
	c.send(message{Kind: kindSession, Session: &s})
}

// SetAccess replaces the settings for connecting to the servers, for the process that closes the session after the daemon's
// death.
func (c *Client) SetAccess(access json.RawMessage) {
	c.updateSession(func(s *Credentials) { s.Access = access })
}

// SetRelease sets the transaction that releases leadership, which is sent before the session is closed; nil for none.
func (c *Client) SetRelease(tx json.RawMessage) {
	c.updateSession(func(s *Credentials) { s.Release = tx })
}

// updateSession changes the credentials of the session, if there is one.
func (c *Client) updateSession(change func(*Credentials)) {
	c.updating.Lock()
	defer c.updating.Unlock()
	c.mu.Lock()
	if c.session == nil {
		c.mu.Unlock()
		return
	}
	s := *c.session
	change(&s)
	c.session = &s
	c.mu.Unlock()
	c.send(message{Kind: kindSession, Session: &s})
	c.writeSessionFile()
}

// ClearSession tells the guard that the session has ended, and removes the session file.
func (c *Client) ClearSession() {
	c.updating.Lock()
	defer c.updating.Unlock()
	c.mu.Lock()
	s := c.session
	c.session = nil
	c.mu.Unlock()
	c.send(message{Kind: kindSession})
	if s != nil {
		RemoveSessionFile(*s)
	}
}

// writeSessionFile updates the session file, and logs an error if it cannot. The caller must hold updating.
func (c *Client) writeSessionFile() error {
	c.mu.Lock()
	s, w, hooks := c.session, c.running, c.pendingHooks
	f := SessionFile{Boot: currentBootID(), Namespace: pidNamespace(), Processes: c.owners, PendingHooks: hooks}
	if c.containment != nil && s != nil {
		r := *c.containment
		r.StateFile = workStateFile(s.File)
		f.Containment = &r
	}
	c.mu.Unlock()
	if s == nil || s.File == "" {
		return nil
	}
	f.Session = *s
	if w != nil {
		f.Unit, f.Env = w.unit, w.env
		if w.containment != nil {
			f.Containment = w.containment
		}
		if p, ok := Identify("leader-only work", w.pid); ok && w.pid != 0 {
			f.Work = &p
		}
	}
	err := f.Write(s.File)
	if err != nil {
		c.log.Error("'zkelectd release' will not find this session", "err", err)
	}
	return err
}
