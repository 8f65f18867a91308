package guard

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/sys/boottime"
)

// Timing of the daemon's side: how long it waits before it treats the guard as hung.
const (
	sendTimeout  = time.Second            // for the guard to read a message
	startTimeout = 5 * time.Second        // for the guard to answer a start message
	pingTimeout  = time.Second            // for a guard whose answer is late to answer anything
	guardOverdue = 150 * time.Millisecond // for the guard to kill the work after the end of the lease
	// for the guard to read a later lease from the board: nothing depends on when it does
	guardLate = time.Second
	drainTime = 5 * time.Millisecond // for this process to read a message that was sent before a deadline
)

// ErrLost reports that the guard is dead or hung, and that the daemon kills the work without it.
var ErrLost = errors.New("the guard is lost")

// Client is the daemon's side of the guard. It is safe for concurrent use.
type Client struct {
	log              *slog.Logger
	socket           *socket
	guard            int // the guard's pid
	watchdogInterval time.Duration
	owners           []Process // the guard and this process
	sessionFile      string    // empty if there is none
	// plus the id of a leadership: the number of its files; grows by less than one in a microsecond
	firstFile int
	ctx       context.Context // canceled when the guard is lost
	cancel    context.CancelCauseFunc
	reports   *os.File // the pipe by which keepers report if the guard is dead
	board     *board

	deviceNews chan struct{}
	hello      chan struct{} // closed once the guard's first message has arrived, or the guard is lost
	greeted    sync.Once
	closed     chan struct{} // closed by Close

	writing sync.Mutex
	asked   int // lease messages sent; guarded by writing
	// updating is held while the session changes, until the guard and the session file have that: what is set last is
	// sent and written last. It is locked before mu, and never on the way to a kill. A leadership has its own.
	updating sync.Mutex

	mu          sync.Mutex
	timer       *boottime.Timer // for checkExpired; nil once the client is closed
	seq         int             // of the last work
	answered    int             // lease messages that the guard has confirmed
	leadership  int             // the id of the last leadership
	leaderships map[int]*Leadership
	containment Containment
	device      DeviceState   // what the guard has reported about the watchdog device
	usesDevice  bool          // the guard was asked to check one
	fed         time.Duration // when a heartbeat was sent that feeds the service manager's watchdog
	heard       time.Duration // when the guard's last message was read
	survivors   []LeadershipRecord
	session     *Credentials
	deadKeepers map[int]bool // the numbers of keepers that have reported that all of their works are dead

	search func(root int, except ...int) []int // for killDescendants; nil for descendants
}

// Connect returns a client that uses the socket to the guard at file descriptor fd, and the keeper's pipe at fd+1. The
// process must be a child of the guard. The client must be closed.
func Connect(fd int, log *slog.Logger) (*Client, error) {
	// Not os.Getppid: if the guard has just died, the parent is the process that adopted this one.
	guard, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return nil, fmt.Errorf("there is no guard at file descriptor %d: %w; start zkelectd with 'zkelectd run'", fd, err)
	}
	unix.CloseOnExec(fd)
	unix.CloseOnExec(fd + 1)
	shared, err := inheritBoard(fd+boardFD-SocketFD, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd+1, true); err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	socket, err := newSocket(fd, "guard")
	if err != nil {
		return nil, err
	}
	c := &Client{log: log, socket: socket, guard: int(guard.Pid), watchdogInterval: watchdogInterval(log), board: shared,
		sessionFile: inheritLock(fd+lockFD-SocketFD, log),
		hello:       make(chan struct{}), deviceNews: make(chan struct{}, 1), closed: make(chan struct{}),
		leaderships: make(map[int]*Leadership),
		firstFile:   int(boottime.Now() / time.Microsecond), leadership: shared.lastID()}
	// The guard comes first: an operator who reads that it still runs stops it, and with it the daemon.
	for _, owner := range []Process{{Role: "guard", Pid: c.guard}, {Role: "daemon", Pid: os.Getpid()}} {
		p, ok := Identify(owner.Role, owner.Pid)
		if !ok {
			return nil, fmt.Errorf("cannot read when the %s (process %d) was started: has it exited, or is "+
				"/proc not mounted?", owner.Role, owner.Pid)
		}
		c.owners = append(c.owners, p)
	}
	c.reports, c.deadKeepers = os.NewFile(uintptr(fd+1), "keepers"), make(map[int]bool)
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	if c.timer, err = boottime.NewTimer(); err != nil {
		return nil, err
	}
	go c.checkLeases(c.timer.C) // until Close
	go c.read()
	go c.readReports()
	return c, nil
}

// Close closes the socket. The guard then kills the work and expects the daemon to exit.
func (c *Client) Close() {
	c.mu.Lock()
	if c.timer != nil {
		c.timer.Close()
		c.timer = nil
		close(c.closed)
	}
	c.mu.Unlock()
	c.socket.Close()
	c.reports.Close()
}

// GuardPid returns the pid of the guard.
func (c *Client) GuardPid() int { return c.guard }

// WatchdogInterval returns how often the daemon has to call Heartbeat or ReportAlive for the service manager's
// watchdog; 0 if there is no watchdog.
func (c *Client) WatchdogInterval() time.Duration { return c.watchdogInterval }

// Context returns a context that is canceled when the guard is lost. The work is then dead or being killed, and no
// other can be started.
func (c *Client) Context() context.Context { return c.ctx }

// Err returns an [ErrLost] with the reason once the guard is lost, and nil before.
func (c *Client) Err() error { return context.Cause(c.ctx) }

// Containment returns how the work is contained; empty until the guard has reported it.
func (c *Client) Containment() Containment {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.containment
}

// CheckDevice has the guard find out whether a watchdog device works. The guard opens it, which starts its timer, and
// stops it again unless work needs it. [Client.DeviceNews] reports the result.
func (c *Client) CheckDevice(s DeviceSpec) {
	c.mu.Lock()
	c.usesDevice = true
	c.mu.Unlock()
	c.send(message{Kind: kindDevice, Device: &s})
}

// DeviceState returns what the guard last reported about the watchdog device.
func (c *Client) DeviceState() DeviceState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.device
}

// DeviceNews returns a channel that receives a value after each change of DeviceState.
func (c *Client) DeviceNews() <-chan struct{} { return c.deviceNews }

// Survivors returns the names of the leaderships of earlier daemons whose work may still run. This host must take no
// part in those groups until it is dead. Survivors waits until the guard has reported them.
func (c *Client) Survivors() []string {
	<-c.hello
	c.mu.Lock()
	defer c.mu.Unlock()
	var names []string
	for _, r := range c.survivors {
		names = append(names, r.Name)
	}
	return names
}

// CheckGroups returns an error if the works of n groups could not be told apart. It waits until the guard has reported
// how work is contained.
func (c *Client) CheckGroups(n int) error {
	<-c.hello
	c.mu.Lock()
	defer c.mu.Unlock()
	if n > 1 && c.containment == KeeperContainment {
		return errSeveralGroups
	}
	return nil
}

// read runs until the socket ends.
func (c *Client) read() {
	for in := bufio.NewReader(c.socket); ; {
		m, err := readFrame(in)
		if err != nil {
			if !errors.Is(err, os.ErrClosed) {
				c.loseGuard(fmt.Errorf("%w: %w", ErrLost, err))
			}
			c.greeted.Do(func() { close(c.hello) })
			return
		}
		c.receive(m)
	}
}

// receive handles a message from the guard.
func (c *Client) receive(m message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = boottime.Now()
	switch m.Kind {
	case kindHello:
		c.containment, c.survivors = m.Containment.Mode, m.Survivors
		c.greeted.Do(func() { close(c.hello) })
	case kindSurvivors:
		c.survivors = m.Survivors
		go c.saveSurvivors() // ends once the session file is written
	case kindLeaseConfirmed:
		c.answered++
		c.armTimer()
		for _, l := range c.leaderships {
			close(l.confirmed)
			l.confirmed = make(chan struct{})
		}
	case kindDevice:
		if m.DeviceState != nil {
			c.device = *m.DeviceState
			wake(c.deviceNews)
		}
	case kindGone:
		if l := c.leaderships[m.Leadership]; l != nil {
			if w := l.running; w != nil && !w.startSent && c.Err() == nil {
				// its prepare message follows, and nobody would get the answer
				w.end(ErrAbandoned)
				w.finish("was not started")
			}
			l.setGone()
		}
	default:
		for _, l := range c.leaderships {
			if w := l.running; w != nil && w.seq == m.Seq && c.Err() == nil {
				w.receive(m)
				return
			}
		}
	}
}

// send sends a message to the guard. It reports no errors: the reading side notices that the guard is gone.
func (c *Client) send(m message) {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.write(m)
}

// write sends a message. The caller must hold writing.
func (c *Client) write(m message) {
	if m.Kind == kindLease {
		c.asked++
	}
	frame, err := appendFrame(nil, m)
	if err != nil {
		c.log.Error("the guard does not get a message", "err", err)
		return
	}
	if err := c.socket.WriteWithin(frame, sendTimeout); errors.Is(err, os.ErrDeadlineExceeded) {
		closeWrite(c.socket) // nothing can follow a frame that may have been sent in part
		c.loseGuard(fmt.Errorf("%w: it does not read its messages", ErrLost))
	}
}

// Heartbeat shows that the daemon is alive, and promises another call before until; 0 promises none. The guard kills a
// daemon that breaks the promise. A later time than the last one need not wake the guard, unless it has to feed the
// service manager's watchdog.
func (c *Client) Heartbeat(until time.Duration) {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.mu.Lock()
	now, beat := boottime.Now(), c.board.heartbeat()
	last := beat.deadline()
	later := last != 0 && until > last && (c.watchdogInterval == 0 || now < c.fed+c.watchdogInterval/2)
	beat.setDeadline(until)
	if !later {
		c.fed = now
	}
	c.mu.Unlock()
	if !later {
		c.write(message{Kind: kindHeartbeat})
	}
}

// ReportAlive shows that the daemon is alive while it has no session, and therefore no deadline for its next heartbeat.
// The first call also shows that it handles signals: only then does the guard pass on requests to reload.
func (c *Client) ReportAlive() { c.send(message{Kind: kindAlive}) }

// Notify passes a state in the format of sd_notify(3) on to the service manager, if there is one.
func (c *Client) Notify(state string) { c.send(message{Kind: kindNotify, Notify: state}) }

// SetSession gives the guard what it needs to close the session after the daemon's death, and writes the session file
// that the guard has locked.
func (c *Client) SetSession(s Credentials) {
	s.File = c.sessionFile
	c.updating.Lock()
	defer c.updating.Unlock()
	c.mu.Lock()
	c.session = &s
	all := slices.Collect(maps.Values(c.leaderships))
	survivors := c.survivors
	c.mu.Unlock()
	c.writeSessionFile()
	if s.File != "" { // files of an earlier session are now obsolete, and records of survivors are in the file of this one
		removeLeadershipFiles(s.File, survivors, func(path string) bool {
			return slices.ContainsFunc(all, func(l *Leadership) bool { return leadershipFile(s.File, l.file) == path })
		})
	}
	for _, l := range all {
		l.update(func() message { return message{} })
	}
	c.send(message{Kind: kindSession, Session: &s})
}

// SetAccess replaces the servers and the settings for connecting to them, for the process that closes the session
// after the daemon's death.
func (c *Client) SetAccess(servers []string, access json.RawMessage) {
	c.updating.Lock()
	defer c.updating.Unlock()
	c.mu.Lock()
	if c.session == nil {
		c.mu.Unlock()
		return
	}
	s := *c.session
	s.Servers, s.Access = servers, access
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

// saveSurvivors updates the session file after a change of the survivors.
func (c *Client) saveSurvivors() {
	c.updating.Lock()
	defer c.updating.Unlock()
	c.writeSessionFile()
}

// writeSessionFile updates the session file, except for the leaderships. The caller must hold updating.
func (c *Client) writeSessionFile() {
	c.mu.Lock()
	s := c.session
	f := SessionFile{Boot: currentBootID(), Namespace: pidNamespace(), Processes: c.owners, Survivors: c.survivors}
	c.mu.Unlock()
	if s == nil || s.File == "" {
		return
	}
	f.Session = *s
	c.logUnsaved(f.Write(s.File))
}

// logUnsaved logs an error from writing one of the session's files, and returns it.
func (c *Client) logUnsaved(err error) error {
	if err != nil {
		c.log.Error("'zkelectd release' will not find this session, or the work that depends on it", "err", err)
	}
	return err
}

// sessionPath returns the path of the session file; empty if there is none.
func (c *Client) sessionPath() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == nil {
		return ""
	}
	return c.session.File
}
