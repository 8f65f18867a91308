package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/sys/boottime"
)

// Options configure [Run].
type Options struct {
	// Path is the daemon's program and Argv its arguments, with the program name first. The daemon finds its end of the
	// socket at [SocketFD]. The keeper runs the same program, which must call [MaybeRunKeeper] before anything else.
	Path string
	Argv []string
	// Config is the content of the configuration file, for the first daemon, and with ConfigOnce for all of them: then
	// the file cannot be read again. It is nil if there is no file. LastConfig is the configuration that was in force
	// when an earlier guard was killed; nil if none was.
	Config     []byte
	ConfigOnce bool
	LastConfig []byte
	// SessionLock is the lock of the session file, see [LockSessionFile], which the daemon shares; nil if there is no
	// session file.
	SessionLock *os.File
	// Result is passed on to the daemon, which takes it with [ResultFile]; nil for none.
	Result *os.File
	// Containment selects how the work is contained; the default is [Auto].
	Containment Containment
	// Realtime requests a real-time priority for guard and keeper.
	Realtime bool
	// KeepInput gives the work the standard input of this process; otherwise it has none.
	KeepInput bool
	// Respawn restarts a daemon that has died; otherwise the guard exits with it.
	Respawn bool
	// Close sends the releases and closes a session on the server. It returns the outcome of the releases; empty if
	// there were none.
	Close func(ctx context.Context, c Credentials) (leadership string, err error)
	// Signals comes from [CatchReload] if signals may have arrived before; nil otherwise.
	Signals chan os.Signal
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
	minSurvival     = time.Second          // a shorter K does not matter: the session lasts longer than that
	flushInterval   = 5 * time.Millisecond // between two attempts to send what did not fit into a socket's buffer
)

// guard is the state of the guard process. It is level-triggered: after each event, advance does whatever is due. A
// single goroutine owns all of it.
type guard struct {
	opt          Options
	log          *slog.Logger
	signals      chan os.Signal
	fromDaemon   chan incoming
	fromKeeper   chan incoming
	closeResults chan closeResult
	timer        *boottime.Timer
	cgroupParent string // the control group in which to create others; empty if there is none
	forker       *forker
	board        *board
	boardFile    *os.File
	children     *childList
	reaper       reaper
	notifier     *notifier
	device       device
	report       *os.File // the pipe by which keepers report to the daemon if this process is dead
	reportWriter *os.File

	keepers        []*keeperProcess // all that run
	keeper         *keeperProcess   // the one for the next work, see keeperFor; nil while there is none
	keeperSeq      int              // the number of the last keeper
	spareAt        time.Duration    // no keeper is started in advance before that, as the last one has failed
	task           int              // the number of the last work
	daemon         *daemon          // nil while none runs
	deadDaemon     *daemon          // a dead daemon whose messages have not all been read; nil for none
	leaderships    []*leadership    // of this daemon, and of dead ones while anything remains to be done for them
	lastLeadership int              // the id of the last one; ids are never reused
	session        *Credentials
	leaveSession   bool          // the session of the dead daemon is left to expire: work survives, or a hook has failed
	survivedAt     time.Duration // work of the dead daemon that still runs then survives it
	inheritedAt    time.Duration // when to kill again what the dead daemon has left behind; 0 if nothing is left
	inheritedDelay time.Duration
	lastConfig     []byte // the configuration in force; nil until a daemon has sent it

	early          []syscall.Signal // requests for a reload that have arrived before the daemon handled them
	stopping       bool             // the guard was asked to exit
	noRespawn      bool             // no daemon is started any more
	exitStatus     int              // of the last daemon
	respawnAt      time.Duration
	respawnDelay   time.Duration
	closingSession bool
	noChildren     bool // wait4 has reported that this process has no children

	removals sync.WaitGroup // of control groups that contain others
}

// Run starts the daemon and guards it until it has exited for good. It returns the exit status for this process: that
// of the daemon, or 128 plus the number of the signal that killed it. It takes over the process, with its signals and
// all its children.
func Run(opt Options) (int, error) {
	g, err := newGuard(opt)
	if err != nil {
		return 1, err
	}
	defer g.close()
	if err := g.startKeeper(); err != nil {
		return 1, err
	}
	if err := g.awaitKeeper(firstKeeperTimeout); err != nil {
		return 1, err
	}
	if g.stopping {
		return g.exitStatus, nil
	}
	g.protect()
	if g.stopping { // a signal has arrived during the rehearsal
		g.noRespawn = true
		g.advance() // asks the keeper to exit: nothing else would wake the loop below
	} else if err := g.startDaemon(); err != nil {
		return 1, err
	}
	for !g.finished() {
		g.step(nil)
	}
	return g.exitStatus, nil
}

// step handles the next event, and does everything that is then due. It reports false if limit has fired instead.
func (g *guard) step(limit <-chan time.Time) (inTime bool) {
	select {
	case sig := <-g.signals:
		g.handleSignal(sig.(syscall.Signal))
	case in := <-g.fromDaemon:
		g.receiveFromDaemon(in)
	case in := <-g.fromKeeper:
		g.receiveFromKeeper(in)
	case c := <-g.closeResults:
		g.sessionClosed(c)
	case <-g.timer.C: // advance reads the clock
	case <-g.device.news: // advance reads the result
	case <-limit:
		return false
	}
	g.advance()
	return true
}

func newGuard(opt Options) (*guard, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, os.NewSyscallError("prctl(PR_SET_CHILD_SUBREAPER)", err)
	}
	g := &guard{
		opt: opt, log: opt.Log, lastConfig: opt.LastConfig,
		signals: opt.Signals, fromDaemon: make(chan incoming), fromKeeper: make(chan incoming),
		closeResults: make(chan closeResult, 1),
	}
	parent := delegatedCgroup()
	clearCgroups(parent)
	err := g.chooseContainment(parent)
	if err != nil {
		return nil, err
	}
	if g.board, g.boardFile, err = newBoard(); err != nil {
		return nil, err
	}
	g.forker = newForker()
	if g.children, err = openChildList(g.forker.thread); err != nil {
		return nil, err
	}
	if g.timer, err = boottime.NewTimer(); err != nil {
		return nil, err
	}
	if g.report, g.reportWriter, err = os.Pipe(); err != nil {
		return nil, err
	}
	g.notifier = newNotifier(opt.Log)
	if g.signals == nil {
		g.signals = CatchReload()
	}
	signal.Notify(g.signals, syscall.SIGCHLD)
	signal.Notify(g.signals, NotIgnored(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1,
		syscall.SIGQUIT)...)
	return g, nil
}

// close ends what does not end with this process.
func (g *guard) close() {
	signal.Stop(g.signals)
	g.removals.Wait()
	g.closeDevice()
}

// chooseContainment resolves [Auto] and checks the choice. Control groups are created in parent; empty if there is
// none.
func (g *guard) chooseContainment(parent string) error {
	g.cgroupParent = parent
	c := &g.opt.Containment
	if *c == "" {
		*c = Auto
	}
	reason := errors.New("child.containment is keeper")
	if *c == Auto || *c == CgroupContainment {
		trial, err := newCgroup(g.cgroupParent, 0)
		switch {
		case err == nil:
			trial.remove()
			trial.Close()
			*c = CgroupContainment
		case *c == CgroupContainment:
			return fmt.Errorf("child.containment is cgroup, but no control group can be created: %w", err)
		default:
			*c, reason = KeeperContainment, err
		}
	}
	if *c == KeeperContainment {
		g.log.Warn("the work gets no control group: work that forks very fast may outlive the lease, root can leave "+
			"it through another PID namespace, and if guard and keeper are killed at once some of it may survive",
			"reason", reason, "advice", "delegate control groups (Delegate=yes); docs/safety.md has the limits")
	}
	if *c != CgroupContainment {
		g.cgroupParent = ""
	}
	g.log.Info("containment chosen", "containment", string(*c))
	return nil
}

// finished reports whether the guard can exit.
func (g *guard) finished() bool { return g.onlyKeepersLeft() && len(g.keepers) == 0 }

// onlyKeepersLeft reports whether nothing remains to be done but to end the keepers.
func (g *guard) onlyKeepersLeft() bool {
	return g.noRespawn && g.daemon == nil && g.deadDaemon == nil && len(g.leaderships) == 0 && g.session == nil &&
		!g.closingSession
}

// reap waits for exited children: the daemon, keepers, and processes that this subreaper inherited from a dead keeper.
func (g *guard) reap() {
	g.noChildren = g.reaper.reap(func(pid int, status syscall.WaitStatus) {
		if g.daemon != nil && pid == g.daemon.pid {
			g.daemonExited(status)
			return
		}
		if i := slices.IndexFunc(g.keepers, func(k *keeperProcess) bool { return k.pid == pid }); i >= 0 {
			g.keeperExited(g.keepers[i], status)
		}
	})
}

// advance does everything that is due. Kills come first: the works before the daemon, since only they are bound by S1.
func (g *guard) advance() {
	g.enforceAll()
	g.limitPets()
	if d := g.daemon; d != nil && (d.killing || past(g.daemonDeadline())) {
		syscall.Kill(d.pid, syscall.SIGKILL)
		if !d.killing {
			g.log.Error("killing the daemon: it is hung", "pid", d.pid)
		}
		d.abandoned, d.killing = true, true
		g.enforceAll()
	}
	hasWork := slices.ContainsFunc(g.leaderships, func(l *leadership) bool { return l.work != nil })
	if hasWork || g.inheritedAt != 0 || g.reaper.more {
		g.reap()
		for _, l := range g.leaderships {
			if l.work != nil {
				g.sweep(l.work)
			}
		}
	}
	g.endInherited()
	g.limitPets()
	g.tendDevice()
	g.runPendingHooks()
	g.forgetLeaderships()
	if g.daemon == nil && g.deadDaemon == nil {
		g.cleanUpAndRespawn()
	}
	g.tendKeepers()
	if g.daemon != nil {
		g.checkSent(g.daemon.out.flush())
	}
	g.timer.Set(g.nextCheck())
}

// enforceAll kills all work that may not run any longer.
func (g *guard) enforceAll() {
	now := boottime.Now()
	for _, l := range g.leaderships {
		if l.work != nil {
			g.enforce(l.work, now)
		}
	}
}

// nextCheck returns when advance has to be called next; 0 if only after an event.
func (g *guard) nextCheck() time.Duration {
	at := g.daemonDeadline()
	for _, l := range g.leaderships {
		if l.work != nil {
			at = earliest(at, l.work.nextCheck(), l.work.nextDeviceCheck())
		}
	}
	if g.daemon == nil {
		at = earliest(at, g.respawnAt, g.inheritedAt)
		if g.deadDaemon == nil {
			at = earliest(at, g.survivedAt)
		}
	} else if g.keeper == nil && g.needsKeeper() {
		at = earliest(at, g.spareAt)
	}
	unsent := g.daemon != nil && g.daemon.out.pending()
	for _, k := range g.keepers {
		at = earliest(at, k.exitBy, k.readyBy)
		unsent = unsent || k.out.pending()
	}
	if unsent {
		at = earliest(at, boottime.Now()+flushInterval)
	}
	if g.reaper.more {
		at = 1
	}
	return at
}
