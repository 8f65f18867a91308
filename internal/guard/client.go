package guard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/boottime"
	"zkelectd/internal/procinfo"
)

// Timing of the daemon's side.
const (
	sendLimit   = time.Second            // a guard that takes nothing for so long is hung
	answerLimit = 5 * time.Second        // a guard that does not start anything for so long is hung
	overdue     = 150 * time.Millisecond // a guard has killed by then what the lease no longer covers
)

// ErrLost says that the guard is dead or hung, and that the work has been killed without it.
var ErrLost = errors.New("the guard is lost")

// Client is the daemon's side of the guard. It is safe for concurrent use.
type Client struct {
	log              *slog.Logger
	socket           *os.File
	guard            int // its pid
	watchdogInterval time.Duration
	timer            *time.Timer
	owners           []Process       // the guard and this process
	life             context.Context // over when the guard is lost
	lose             context.CancelCauseFunc
	word             word

	writing sync.Mutex

	mu      sync.Mutex
	seq     int
	running *Work
	hold    *ContainmentRecord // of work that is started
	keeper  *proof
	alarm   string
	leased  time.Duration // the deadline that the guard has confirmed
	allowed time.Duration // the deadline that it was told last; 0 for none
	doubted bool          // it is over, and the guard has been given a last moment
	session *Credentials
	undo    []Spec
}

// word is what the keeper says when the guard is dead.
type word struct {
	pipe  *os.File
	dead  chan struct{} // closed when it has said that all of the work is
	ended chan struct{} // closed when it says nothing any more
}

// Connect takes the daemon's end of the socket, at fd, and of the keeper's pipe behind it. It must be called in a child of
// the guard. Close ends it.
func Connect(fd int, log *slog.Logger) (*Client, error) {
	// Not the parent's pid: a guard that has just died would be taken for whoever adopts this process.
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
	c := &Client{log: log, socket: os.NewFile(uintptr(fd), "guard"), guard: int(guard.Pid), watchdogInterval: askedToBeat(log)}
	// The guard comes first: whoever is told that it still runs stops it, and the daemon with it.
	for _, owner := range []Process{{Role: "guard", Pid: c.guard}, {Role: "daemon", Pid: os.Getpid()}} {
		p, ok := Identify(owner.Role, owner.Pid)
		if !ok {
			return nil, fmt.Errorf("when the %s, process %d, was started cannot be read: has it ended, or is /proc not mounted?", owner.Role, owner.Pid)
		}
		c.owners = append(c.owners, p)
	}
	c.word = word{os.NewFile(uintptr(fd+1), "keeper"), make(chan struct{}), make(chan struct{})}
	c.life, c.lose = context.WithCancelCause(context.Background())
	c.timer = time.AfterFunc(time.Hour, c.expire)
	go c.read()
	go c.word.read()
	return c, nil
}

// read ends with the pipe.
func (w *word) read() {
	defer close(w.ended)
	var said [1]byte
	if n, err := w.pipe.Read(said[:]); err == nil && n == 1 && said[0] == wordDead {
		close(w.dead)
	}
}

// Close hangs up, which the guard takes for the daemon's end.
func (c *Client) Close() {
	c.timer.Stop()
	c.socket.Close()
	c.word.pipe.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keeper != nil {
		c.keeper.close()
		c.keeper = nil
	}
}

// Pid is the guard's.
func (c *Client) GuardPid() int { return c.guard }

// Owners are the guard and the daemon, which is this process.
func (c *Client) Owners() (guard, daemon Process) { return c.owners[0], c.owners[1] }

// Every is how often the service manager's watchdog has to hear of the daemon, by Beat or Waits; 0 for never.
func (c *Client) WatchdogInterval() time.Duration { return c.watchdogInterval }

// Life is over when the guard is lost. The work is dead or dying then, and none can be started.
func (c *Client) Context() context.Context { return c.life }

// Err is an [ErrLost] with the reason once Life is over, nil before.
func (c *Client) Err() error { return context.Cause(c.life) }

// Containment is what holds the work; empty until the guard has said it.
func (c *Client) Containment() Containment {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hold == nil {
		return ""
	}
	return c.hold.Mode
}

// Alarm says what of the work can't be killed, and why; empty if nothing is known to be so.
func (c *Client) Unkillable() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.alarm
}

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
	switch {
	case m.Kind == kindLeased:
		c.leased = m.At
		c.watch()
		return
	case m.Kind == kindKept:
		c.kept(m.Containment)
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
		w.take(m.Containment)
		w.started <- nil
	case kindExited:
		w.status = m.Status
		close(w.exited)
	case kindAlarm:
		c.alarm = m.Error
		w.alarmed(m.Error)
	case kindDead:
		w.output = m.Output
		c.running, c.alarm = nil, ""
		w.close()
		close(w.dead)
	}
}

// kept takes in who the keeper is, while it lives. mu is held.
func (c *Client) kept(h *ContainmentRecord) {
	c.hold = h
	if h == nil {
		return
	}
	p, err := newProof(*h)
	if err != nil {
		c.log.Warn("should the guard be lost, the end of the work can't be proven, and its session is left to expire", "err", err)
		return
	}
	c.keeper = p
}

// watch sets the timer that looks after the guard. mu is held.
func (c *Client) watch() {
	c.doubted = false
	c.timer.Stop()
	if enforced && c.running != nil && c.leased != 0 && c.Err() == nil {
		c.timer.Reset(max(0, c.deadline()+overdue-boottime.Now()))
	}
}

// deadline is when the work must be over: what the guard has confirmed, or less where it was told so since. A lease that was
// given back leaves the last confirmed one in force. mu is held.
func (c *Client) deadline() time.Duration {
	if c.allowed == 0 {
		return c.leased
	}
	return min(c.leased, c.allowed)
}

// expire finds work that outlives what the guard has confirmed of its lease: then the guard is hung, and the daemon kills
// in its stead. The timer's clock stands still while the host is suspended, the lease's doesn't: so it looks again.
func (c *Client) expire() {
	c.mu.Lock()
	due := c.running != nil && c.leased != 0 && c.Err() == nil
	switch {
	case due && boottime.Now() < c.deadline()+overdue:
		c.watch()
		due = false
	case due && c.alarm != "":
		due = false // the guard does what it can: what can't be killed by it can't be killed by this process either
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
// is killed; its keeper, and this process, kill the work.
func (c *Client) abandon(cause error) {
	c.mu.Lock()
	if c.Err() != nil {
		c.mu.Unlock()
		return
	}
	c.lose(cause)
	w := c.running
	c.timer.Stop()
	c.mu.Unlock()
	if os.Getppid() == c.guard { // which may be process 1 of a container
		c.killBelow(w)
		syscall.Kill(c.guard, syscall.SIGKILL)
	}
	if w != nil {
		go w.mourn(cause) // ends when nothing of it is left
	}
	c.log.Error("killing the work: "+cause.Error(), "guard", c.guard)
}

// killBelow kills what is found below a guard that is hung, before its death leaves that to others. It spares the keeper,
// which has to tell how it went, and this process.
func (c *Client) killBelow(w *Work) {
	var keeper int
	c.mu.Lock()
	if c.hold != nil {
		keeper = c.hold.Keeper.Pid
	}
	c.mu.Unlock()
	for again, tries := w != nil, 0; again && tries < eagerTries; tries++ {
		again = false
		for _, pid := range descendants(c.guard, os.Getpid()) {
			if s, err := procinfo.ReadStat(pid); pid != keeper && err == nil && !s.Ended() {
				again = syscall.Kill(pid, syscall.SIGKILL) == nil || again
			}
		}
	}
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

// Lease allows work until deadline, of CLOCK_BOOTTIME; 0 allows none. Whoever shortens a lease must do so from one place,
// so that an older deadline is not sent after it. From here on this side too enforces a deadline that is shorter than the
// last one, whether or not the guard confirms it.
func (c *Client) SetLease(deadline time.Duration) {
	c.mu.Lock()
	c.allowed = deadline
	c.watch()
	c.mu.Unlock()
	c.send(message{Kind: kindLease, At: deadline})
}

// Beat promises that the daemon speaks again before until; 0 that it need not. A daemon that breaks it is killed.
func (c *Client) Heartbeat(until time.Duration) { c.send(message{Kind: kindBeat, At: until}) }

// Waits says that the daemon is alive, though it has no session on which it could be told to be hung.
func (c *Client) ReportAlive() { c.send(message{Kind: kindWaits}) }

// Notify has the guard tell the service manager something, in the words of sd_notify(3); without one it is lost.
func (c *Client) Notify(state string) { c.send(message{Kind: kindNotify, Notify: state}) }

// Owe says what has to be run after the work, should this daemon not live to do it: by the guard, before it closes the
// session, or, where that is dead too, at the next start or by 'zkelectd release' (A5 in docs/protocol.md). None clears it.
// The error says that what the latter two go by could not be written.
func (c *Client) SetPendingHooks(undo ...Spec) error {
	c.mu.Lock()
	c.undo = undo
	c.mu.Unlock()
	c.send(message{Kind: kindOwe, PendingHooks: undo})
	return c.keep()
}

// Session hands over what it takes to close the session after the daemon's death, and keeps it in its File.
func (c *Client) SetSession(s Credentials) {
	c.mu.Lock()
	c.session = &s
	c.mu.Unlock()
	if s.File != "" {
		if err := os.WriteFile(markFile(s.File), []byte(markDead), 0o600); err != nil { // no work is there yet
			c.log.Error("'zkelectd release' may not be able to tell that no work runs", "err", err)
		}
	}
	c.keep()
	c.send(message{Kind: kindSession, Session: &s})
}

// Access replaces how to reach the servers, for the process that closes the session after the daemon's death.
func (c *Client) SetAccess(access json.RawMessage) {
	c.amend(func(s *Credentials) { s.Access = access })
}

// Leave hands over what releases leadership, to be sent before the session is closed; nil for nothing.
func (c *Client) SetRelease(tx json.RawMessage) {
	c.amend(func(s *Credentials) { s.Release = tx })
}

// amend changes what was handed over with the session, if there is one.
func (c *Client) amend(change func(*Credentials)) {
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
	c.keep()
}

// SessionClosed says that there is nothing to close any more.
func (c *Client) ClearSession() {
	c.mu.Lock()
	s := c.session
	c.session = nil
	c.mu.Unlock()
	c.send(message{Kind: kindSession})
	if s != nil {
		RemoveSessionFile(*s)
	}
}

// keep brings the session file up to date, or says in the log that it could not.
func (c *Client) keep() error {
	c.mu.Lock()
	s, w, undo := c.session, c.running, c.undo
	f := SessionFile{Boot: boot(), Namespace: namespace(), Processes: c.owners, PendingHooks: undo}
	if c.hold != nil && s != nil {
		h := *c.hold
		h.StateFile = markFile(s.File)
		f.Containment = &h
	}
	c.mu.Unlock()
	if s == nil || s.File == "" {
		return nil
	}
	f.Session = *s
	if w != nil {
		f.Unit, f.Env = w.unit, w.stamp
		if w.hold != nil {
			f.Containment = w.hold
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
