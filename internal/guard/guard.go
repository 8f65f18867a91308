package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Options configure [Run].
type Options struct {
	// Path is the daemon's program and Argv its arguments, with the program name first. The daemon finds its end of the
	// socket at [SocketFD]. The keeper runs the same program, which must call [MaybeRunKeeper] before anything else.
	Path string
	Argv []string
	// Containment selects how the work is contained; the default is [Auto].
	Containment Containment
	// Realtime requests a real-time priority for guard and keeper.
	Realtime bool
	// Respawn restarts a daemon that has died; otherwise the guard exits with it.
	Respawn bool
	// Close closes a session on the server. It returns the outcome of releasing leadership; empty if the session held none.
	Close func(ctx context.Context, c Credentials) (leadership string, err error)
	// Log must never block (see package asynclog): anything that delays the guard delays a kill.
	Log *slog.Logger
}

// SocketFD is the file descriptor at which the daemon and the keeper find their end of the socket to the guard.
const SocketFD = 3

// Timing of the guard.
const (
	minRespawnDelay = 100 * time.Millisecond
	maxRespawnDelay = 10 * time.Second
	stableAfter     = time.Minute          // a daemon that ran this long is respawned with the minimum delay again
	exitTimeout     = 2 * time.Second      // how long a daemon may take to exit after it closed its socket
	closeTimeout    = 5 * time.Second      // for closing a session
	drainTime       = 5 * time.Millisecond // how long messages sent before a deadline may take to be read after it
)

// guard is the state of the guard process. It is level-triggered: after each event, advance does whatever is due. A single
// goroutine, locked to its thread, owns all of it.
type guard struct {
	opt          Options
	log          *slog.Logger
	signals      chan os.Signal
	fromDaemon   chan incoming
	fromKeeper   chan incoming
	closeResults chan closeResult
	timer        *timer
	cgroupParent string // the control group in which to create others; empty if there is none
	children     *childList
	notifier     *notifier

	keeper            *keeperProcess // nil while none runs
	daemon            *daemon        // nil while none runs
	deadDaemon        *daemon        // a dead daemon whose messages have not all been read; nil for none
	work              *work          // nil while none runs
	session           *Credentials
	pendingHooks      []Spec        // the hooks to run before the session of a dead daemon is closed
	hookSeq           int           // the Seq of the last such hook; counts down, as the daemon's count up
	hookFailed        bool          // one of these hooks has failed
	lastConfig        []byte        // the last good configuration file; nil until a daemon has sent one
	lease             time.Duration // the work may run until then; 0 for no lease
	heartbeatDeadline time.Duration // without a heartbeat by then the daemon is hung; 0 for no deadline

	stopping       bool // the guard was asked to exit
	noRespawn      bool // no daemon is started any more
	exitStatus     int  // of the last daemon
	respawnAt      time.Duration
	respawnDelay   time.Duration
	closingSession bool
	noChildren     bool // wait4 has reported that this process has no children
}

// Run starts the daemon and guards it until it has exited for good. It returns the exit status for this process: that of the
// daemon, or 128 plus the number of the signal that killed it. It takes over the process, with its signals and all its
// children.
func Run(opt Options) (int, error) {
	runtime.LockOSThread() // a parent death signal is tied to the thread that forked
	g, err := newGuard(opt)
	if err != nil {
		return 1, err
	}
	defer g.close()
	if err := g.startKeeper(); err != nil {
		return 1, err
	}
	g.protect()
	if g.keeper == nil && !g.stopping { // on a busy machine the rehearsal may have killed the keeper as hung
		if err := g.startKeeper(); err != nil {
			return 1, err
		}
	}
	if g.stopping { // a signal has arrived during the rehearsal
		g.noRespawn = true
		g.keeper.requestExit()
	} else if err := g.startDaemon(); err != nil {
		return 1, err
	}
	for !g.finished() {
		select {
		case sig := <-g.signals:
			g.handleSignal(sig.(syscall.Signal))
		case in := <-g.fromDaemon:
			g.receiveFromDaemon(in)
		case in := <-g.fromKeeper:
			g.receiveFromKeeper(in)
		case c := <-g.closeResults:
			g.sessionClosed(c)
		case <-g.timer.c: // advance reads the clock
		}
		g.advance()
	}
	return g.exitStatus, nil
}

func newGuard(opt Options) (*guard, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, os.NewSyscallError("prctl(PR_SET_CHILD_SUBREAPER)", err)
	}
	g := &guard{
		opt: opt, log: opt.Log,
		signals: make(chan os.Signal, 16), fromDaemon: make(chan incoming), fromKeeper: make(chan incoming), closeResults: make(chan closeResult, 1),
	}
	if err := g.setUpContainment(); err != nil {
		return nil, err
	}
	var err error
	if g.children, err = openChildList(); err != nil {
		return nil, err
	}
	if g.timer, err = newTimer(); err != nil {
		g.children.close()
		return nil, err
	}
	g.notifier = newNotifier(opt.Log)
	signal.Notify(g.signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGCHLD)
	return g, nil
}

func (g *guard) close() {
	signal.Stop(g.signals)
	g.notifier.close()
	g.timer.close()
	g.children.close()
}

// setUpContainment kills the work that dead guards have left behind and chooses the containment.
func (g *guard) setUpContainment() error {
	parent := delegatedCgroup()
	clearCgroups(parent)
	return g.chooseContainment(parent)
}

// chooseContainment resolves [Auto] and checks the choice. Control groups are created in parent; empty if there is none.
func (g *guard) chooseContainment(parent string) error {
	g.cgroupParent = parent
	c := &g.opt.Containment
	if *c == "" {
		*c = Auto
	}
	if *c == Auto || *c == CgroupContainment {
		trial, err := newCgroup(g.cgroupParent, 0)
		switch {
		case err == nil:
			trial.remove()
			trial.close()
			*c = CgroupContainment
		case *c == CgroupContainment:
			return fmt.Errorf("child.containment is cgroup, but no control group can be created: %w", err)
		default:
			*c = KeeperContainment
			g.log.Info("the work gets no control group of its own; if guard, daemon and keeper are all killed at once, some of it may survive", "reason", err)
		}
	}
	if *c != CgroupContainment {
		g.cgroupParent = ""
	}
	g.log.Info("containment chosen", "containment", string(*c))
	return nil
}

// finished reports whether the guard can exit.
func (g *guard) finished() bool {
	return g.onlyKeeperLeft() && g.keeper == nil
}

// onlyKeeperLeft reports whether nothing remains to be done but to end the keeper.
func (g *guard) onlyKeeperLeft() bool {
	return g.noRespawn && g.daemon == nil && g.deadDaemon == nil && g.work == nil && g.session == nil && !g.closingSession && len(g.pendingHooks) == 0
}

// drainInbox reads the daemon's pending messages before a passed deadline is enforced. If this process was paused, the timer
// and the messages are ready at the same moment, and an extension that was sent in time must still count.
func (g *guard) drainInbox() {
	if !g.leaseExpired() && !past(g.heartbeatDeadline) {
		return
	}
	limit := time.NewTimer(drainTime)
	defer limit.Stop()
	for g.leaseExpired() || past(g.heartbeatDeadline) {
		select {
		case in := <-g.fromDaemon:
			g.receiveFromDaemon(in)
		case <-limit.C:
			return
		}
	}
}

// leaseExpired reports whether work is running without a lease and is not being killed yet.
func (g *guard) leaseExpired() bool {
	return enforced && g.work != nil && !g.work.killing && (g.workDeadline() == 0 || past(g.workDeadline()))
}

// workDeadline returns the time until which the current work may run; 0 if it may not run at all. A pending hook has its own
// deadline instead of the lease, as it only cleans up after the leadership.
func (g *guard) workDeadline() time.Duration {
	if g.work.hookDeadline != 0 {
		return g.work.hookDeadline
	}
	return g.lease
}

// handleSignal passes signals on to the daemon and takes note of those that ask the guard to exit.
func (g *guard) handleSignal(sig syscall.Signal) {
	if sig == syscall.SIGCHLD {
		g.reap()
		return
	}
	if sig != syscall.SIGHUP {
		g.stopping = true
		g.notifier.notifyStopping()
	}
	if g.daemon != nil {
		syscall.Kill(g.daemon.pid, sig)
	} else if g.stopping {
		g.noRespawn, g.exitStatus = true, 128+int(sig)
	}
}

// reap waits for exited children: the daemon, the keeper, and processes that this subreaper inherited from a dead keeper.
func (g *guard) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG|syscall.WALL, nil)
		g.noChildren = errors.Is(err, syscall.ECHILD)
		switch {
		case pid <= 0:
			return
		case g.daemon != nil && pid == g.daemon.pid:
			g.daemonExited(status)
		case g.keeper != nil && pid == g.keeper.pid:
			g.keeperExited(status)
		}
	}
}

// advance does everything that is due. Kills come first: the work before the daemon, since only the work is bound by S1.
func (g *guard) advance() {
	g.drainInbox()
	if w := g.work; w != nil {
		g.enforce(w)
	}
	if d := g.daemon; d != nil && (d.killing || past(g.heartbeatDeadline)) {
		syscall.Kill(d.pid, syscall.SIGKILL)
		if !d.killing {
			g.log.Error("killing the daemon: it is hung", "pid", d.pid)
		}
		d.abandoned, d.killing, g.heartbeatDeadline = true, true, 0
	}
	if w := g.work; w != nil {
		g.enforce(w)
		g.reap()
		g.sweep(w)
	}
	if g.daemon == nil && g.deadDaemon == nil && g.work == nil {
		g.cleanUpAndRespawn()
	}
	g.setTimer()
}

// setTimer arms the timer for the next point in time at which advance has something to do.
func (g *guard) setTimer() {
	at := g.heartbeatDeadline
	if g.work != nil {
		at = earliest(at, g.work.nextCheck())
		if enforced && !g.work.killing {
			at = earliest(at, max(1, g.workDeadline()))
		}
	}
	if g.daemon == nil {
		at = earliest(at, g.respawnAt)
	}
	if g.keeper != nil && g.keeper.exitBy != 0 {
		at = earliest(at, g.keeper.exitBy)
	}
	g.timer.set(at)
}
