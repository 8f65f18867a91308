package guard

import (
	"cmp"
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

	"zkelectd/internal/boottime"
)

// Options are what a guard needs.
type Options struct {
	// Path is the daemon's program, Argv its arguments with the name first. It finds its end of the socket at [SocketFD].
	// The same program is the keeper, for which it calls [BeKeeper] before anything else.
	Path string
	Argv []string
	// Containment is what holds the work; [Auto] by default.
	Containment Containment
	// Realtime gives guard and keeper a real-time priority, if that is permitted.
	Realtime bool
	// Respawn starts the daemon again when it has died; otherwise the guard ends with it.
	Respawn bool
	// Close ends a session on the server, and says what has become of the leadership that was held in it; empty for nothing.
	Close func(ctx context.Context, c Credentials) (leadership string, err error)
	// Log must not wait for whoever reads it, see package lossy: whatever holds the guard up holds up the end of the work.
	Log *slog.Logger
}

// SocketFD is where the daemon, and the keeper, find their end of the socket.
const SocketFD = 3

// Timing of the guard's own affairs.
const (
	respawnFirst = 100 * time.Millisecond
	respawnMost  = 10 * time.Second
	steady       = time.Minute     // a daemon that has lived for so long begins anew with the first pause
	hangUp       = 2 * time.Second // so long may a daemon that has hung up take to end
	closeMost    = 5 * time.Second
	settle       = 5 * time.Millisecond // what was sent before a deadline has arrived by then
)

// guard is level-triggered: after each event, advance does what is due. One goroutine, on one thread, does it all.
type guard struct {
	opt      Options
	log      *slog.Logger
	signals  chan os.Signal
	inbox    chan letter
	kept     chan letter // from the keeper
	closings chan closing
	timer    *timer
	groups   string // where to make control groups; empty for nowhere
	children *offspring
	service  *service

	keeper  *keeperProcess // nil while none runs
	daemon  *daemon        // nil while none runs
	late    *daemon        // a dead one of which not all was read yet
	work    *work          // nil while none runs
	session *Credentials
	undo    []Spec        // what has to be run before the session of a dead daemon is closed
	undone  int           // counts down what was run of it
	unclean bool          // some of it has failed
	config  []byte        // the last good configuration file; nil until a daemon has handed one over
	lease   time.Duration // work may go on until then
	silence time.Duration // the daemon is hung if it has not spoken by then; 0 if it need not

	stopping  bool // asked to end
	over      bool // the daemon is not to be started again
	status    int  // the daemon's exit status
	again     time.Duration
	pause     time.Duration
	closing   bool
	childless bool // the kernel says that this process has no child
}

// Run starts the daemon and guards it until it has ended for good. It returns the exit status to end with: that of the
// daemon, or 128 and the signal that killed it. It takes over the process: its signals and all its children.
func Run(opt Options) (int, error) {
	// Death signals follow the thread that forked.
	runtime.LockOSThread()
	g, err := newGuard(opt)
	if err != nil {
		return 1, err
	}
	defer g.close()
	if err := g.keep(); err != nil {
		return 1, err
	}
	g.protect()
	if g.keeper == nil && !g.stopping { // a busy machine may be too slow for the rehearsal
		if err := g.keep(); err != nil {
			return 1, err
		}
	}
	if g.stopping { // already
		g.over = true
		g.keeper.hangUp()
	} else if err := g.spawn(); err != nil {
		return 1, err
	}
	for !g.finished() {
		select {
		case sig := <-g.signals:
			g.signaled(sig.(syscall.Signal))
		case l := <-g.inbox:
			g.receive(l)
		case l := <-g.kept:
			g.hear(l)
		case c := <-g.closings:
			g.closed(c)
		case <-g.timer.c: // advance looks at the clock
		}
		g.advance()
	}
	return g.status, nil
}

func newGuard(opt Options) (*guard, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, os.NewSyscallError("prctl(PR_SET_CHILD_SUBREAPER)", err)
	}
	g := &guard{
		opt: opt, log: opt.Log,
		signals: make(chan os.Signal, 16), inbox: make(chan letter), kept: make(chan letter), closings: make(chan closing, 1),
	}
	if err := g.contain(); err != nil {
		return nil, err
	}
	var err error
	if g.children, err = newOffspring(); err != nil {
		return nil, err
	}
	if g.timer, err = newTimer(); err != nil {
		g.children.close()
		return nil, err
	}
	g.service = openService(opt.Log)
	signal.Notify(g.signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGCHLD)
	return g, nil
}

func (g *guard) close() {
	signal.Stop(g.signals)
	g.service.close()
	g.timer.close()
	g.children.close()
}

// contain chooses the containment, and ends what dead guards have left behind.
func (g *guard) contain() error {
	parent := cgroupParent()
	clearCgroups(parent)
	return g.choose(parent)
}

// choose settles the containment, where control groups can be made in parent.
func (g *guard) choose(parent string) error {
	g.groups = parent
	c := &g.opt.Containment
	if *c == "" {
		*c = Auto
	}
	if *c == Auto || *c == CgroupContainment {
		try, err := newCgroup(g.groups, 0)
		if err == nil {
			try.remove()
			try.close()
			*c = CgroupContainment
		} else if *c == CgroupContainment {
			return fmt.Errorf("child.containment is cgroup, and there can be none: %w", err)
		} else {
			*c = KeeperContainment
			g.log.Info("the work has no control group of its own: should guard, daemon and keeper be killed at once, some of it may survive", "reason", err)
		}
	}
	if *c != CgroupContainment {
		g.groups = ""
	}
	g.log.Info("the work is contained", "containment", string(*c))
	return nil
}

func (g *guard) finished() bool {
	return g.ended() && g.keeper == nil
}

// ended reports whether all that remains is to end the keeper.
func (g *guard) ended() bool {
	return g.over && g.daemon == nil && g.late == nil && g.work == nil && g.session == nil && !g.closing && len(g.undo) == 0
}

// drain takes in what had been sent before a deadline that has passed: after a pause of this process all of it is there at
// once, in no order, and an extension must not come too late for that.
func (g *guard) drain() {
	if !g.expired() && !past(g.silence) {
		return
	}
	limit := time.NewTimer(settle)
	defer limit.Stop()
	for g.expired() || past(g.silence) {
		select {
		case l := <-g.inbox:
			g.receive(l)
		case <-limit.C:
			return
		}
	}
}

// expired reports whether work goes on without a lease.
func (g *guard) expired() bool {
	return enforced && g.work != nil && !g.work.doomed && (g.deadline() == 0 || past(g.deadline()))
}

// deadline is until when the work, of which there is some, may go on: an undo has its own, as it only takes back what
// leadership has brought about.
func (g *guard) deadline() time.Duration {
	if g.work.limit != 0 {
		return g.work.limit
	}
	return g.lease
}

func (g *guard) signaled(sig syscall.Signal) {
	if sig == syscall.SIGCHLD {
		g.reap()
		return
	}
	if sig != syscall.SIGHUP {
		g.stopping = true
		g.service.stop()
	}
	if g.daemon != nil {
		syscall.Kill(g.daemon.pid, sig)
	} else if g.stopping {
		g.over, g.status = true, 128+int(sig)
	}
}

// reap waits for exited children: the daemon, the keeper, and what a keeper that was killed has left behind.
func (g *guard) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG|syscall.WALL, nil)
		g.childless = errors.Is(err, syscall.ECHILD)
		switch {
		case pid <= 0:
			return
		case g.daemon != nil && pid == g.daemon.pid:
			g.died(status)
		case g.keeper != nil && pid == g.keeper.pid:
			g.unkept(status)
		}
	}
}

// advance does what is due.
func (g *guard) advance() {
	g.drain()
	if w := g.work; w != nil {
		g.judge(w)
	}
	if d := g.daemon; d != nil && (d.doomed || past(g.silence)) {
		syscall.Kill(d.pid, syscall.SIGKILL)
		if !d.doomed {
			g.log.Error("the daemon is hung and is killed", "pid", d.pid)
		}
		d.gone, d.doomed, g.silence = true, true, 0
	}
	if w := g.work; w != nil {
		g.judge(w)
		g.reap()
		g.sweep(w)
	}
	if g.daemon == nil && g.late == nil && g.work == nil {
		g.undertake()
	}
	g.schedule()
}

// undertake runs what undoes the dead daemon's leadership, closes its session, now that nothing works on the strength of it,
// and starts the next daemon.
func (g *guard) undertake() {
	switch {
	case g.closing:
	case len(g.undo) > 0:
		g.runUndo()
	case g.session != nil && g.unclean:
		g.session, g.unclean = nil, false
	case g.session != nil:
		g.closing = true
		c := *g.session
		go func() { // ends in time: the limit is the context's
			ctx, cancel := context.WithTimeout(context.Background(), min(closeMost, c.Timeout))
			defer cancel()
			leadership, err := g.opt.Close(ctx, c)
			g.closings <- closing{leadership, err}
		}()
	case g.ended():
		g.keeper.hangUp()
	case g.over:
	case g.stopping:
		g.over = true
		g.keeper.hangUp()
	case g.keeper == nil:
		g.try(g.keep)
	case past(g.again):
		g.try(g.spawn)
	}
}

// try starts something, or puts it off.
func (g *guard) try(start func() error) {
	if !past(max(1, g.again)) {
		return
	}
	if err := start(); err != nil {
		g.pause = min(max(respawnFirst, 2*g.pause), respawnMost)
		g.again = boottime.Now() + g.pause
		g.log.Error("the daemon is not started again yet", "err", err, "after", g.pause)
	}
}

// closing is how the closing of a session went, see [Options.Close].
type closing struct {
	leadership string
	err        error
}

func (g *guard) closed(how closing) {
	g.closing = false
	c := g.session
	g.session = nil
	if how.err != nil {
		g.log.Warn("the dead daemon's session is left to expire", "err", how.err, "leadership", cmp.Or(how.leadership, "none"))
		return
	}
	g.log.Info("closed the dead daemon's session", "session", fmt.Sprintf("0x%x", c.ID), "leadership", cmp.Or(how.leadership, "none"))
	RemoveSessionFile(*c)
}

func (g *guard) schedule() {
	at := g.silence
	if g.work != nil {
		at = earliest(at, g.work.due())
		if enforced && !g.work.doomed {
			at = earliest(at, max(1, g.deadline()))
		}
	}
	if g.daemon == nil {
		at = earliest(at, g.again)
	}
	if g.keeper != nil && g.keeper.left != 0 {
		at = earliest(at, g.keeper.left)
	}
	g.timer.set(at)
}
