package guard

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	Path string
	Argv []string
	// Respawn starts the daemon again when it has died; otherwise the guard ends with it.
	Respawn bool
	// Close ends a session on the server.
	Close func(ctx context.Context, c Credentials) error
	// Log must not wait for whoever reads it, see package lossy: whatever holds the guard up holds up the end of the work.
	Log *slog.Logger
}

// SocketFD is where the daemon finds its end of the socket.
const SocketFD = 3

// Timing of the guard's own affairs.
const (
	respawnFirst = 100 * time.Millisecond
	respawnMost  = 10 * time.Second
	steady       = time.Minute     // a daemon that has lived for so long begins anew with the first pause
	hangUp       = 2 * time.Second // so long may a daemon that has hung up take to end
	closeMost    = 5 * time.Second
	calming      = 2 * time.Second      // when nothing much happens any more
	settle       = 5 * time.Millisecond // what was sent before a deadline has arrived by then
)

// guard is level-triggered: after each event, advance does what is due. One goroutine, on one thread, does it all.
type guard struct {
	opt       Options
	log       *slog.Logger
	signals   chan os.Signal
	inbox     chan letter
	closings  chan error
	timer     *timer
	groups    string // where to make control groups; empty for nowhere
	ungrouped bool   // it was said that there can be none
	service   *service

	daemon  *daemon // nil while none runs
	late    *daemon // a dead one of which not all was read yet
	work    *work   // nil while none runs
	session *Credentials
	lease   time.Duration // work may go on until then
	silence time.Duration // the daemon is hung if it has not spoken by then; 0 if it need not

	stopping bool // asked to end
	over     bool // the daemon is not to be started again
	status   int  // the daemon's exit status
	again    time.Duration
	pause    time.Duration
	closing  bool
	calm     time.Duration // when to give back memory; 0 if that is done
}

// daemon is one run of the daemon.
type daemon struct {
	pid    int
	socket *os.File
	began  time.Duration
	ended  bool // nothing more comes from its socket
	gone   bool // it says nothing any more: its work must end
	doomed bool // it is to be killed
}

// letter is a message, or the end of the socket, from one run of the daemon.
type letter struct {
	from *daemon
	msg  message
	err  error
}

// Run starts the daemon and guards it until it has ended for good. It returns the exit status to end with: that of the
// daemon, or 128 and the signal that killed it. It takes over the process: its signals and all its children.
func Run(opt Options) (int, error) {
	// Death signals follow the thread that forked.
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 1, os.NewSyscallError("prctl(PR_SET_CHILD_SUBREAPER)", err)
	}
	t, err := newTimer()
	if err != nil {
		return 1, err
	}
	defer t.close()
	g := &guard{
		opt: opt, log: opt.Log, timer: t, groups: cgroupParent(), service: openService(opt.Log),
		signals: make(chan os.Signal, 16), inbox: make(chan letter), closings: make(chan error, 1),
	}
	defer g.service.close()
	signal.Notify(g.signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGCHLD)
	defer signal.Stop(g.signals)
	clearCgroups(g.groups)
	if err := g.spawn(); err != nil {
		return 1, err
	}
	for !g.finished() {
		select {
		case sig := <-g.signals:
			g.signalled(sig.(syscall.Signal))
		case l := <-g.inbox:
			g.receive(l)
		case err := <-g.closings:
			g.closed(err)
		case <-t.c: // advance looks at the clock
		}
		g.advance()
	}
	return g.status, nil
}

func (g *guard) finished() bool {
	return g.over && g.daemon == nil && g.late == nil && g.work == nil && g.session == nil && !g.closing
}

// spawn starts the daemon.
func (g *guard) spawn() error {
	near, far, err := socketpair()
	if err != nil {
		return err
	}
	defer far.Close()
	pid, err := syscall.ForkExec(g.opt.Path, g.opt.Argv, &syscall.ProcAttr{
		Env: append(os.Environ(), g.service.environment()...), Files: []uintptr{0, 1, 2, far.Fd()},
		// A group of its own, so that a terminal's signals come through the guard alone. No death signal: a daemon that
		// outlives its guard kills what is left of the work and closes the session.
		Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		near.Close()
		return fmt.Errorf("cannot start the daemon: %w", err)
	}
	d := &daemon{pid: pid, socket: near, began: boottime.Now()}
	g.daemon, g.again, g.silence = d, 0, 0
	go g.read(d)
	return nil
}

// read ends with the socket.
func (g *guard) read(d *daemon) {
	for {
		m, err := readFrame(d.socket)
		g.inbox <- letter{d, m, err}
		if err != nil {
			return
		}
	}
}

// drain takes in what had been sent before a deadline that has passed: after a pause of this process all of it is there at
// once, in no order, and an extension must not come too late for that.
func (g *guard) drain() {
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

// expired tells that work goes on without a lease.
func (g *guard) expired() bool {
	return enforced && g.work != nil && !g.work.doomed && !g.work.reaped && (g.lease == 0 || past(g.lease))
}

func (g *guard) signalled(sig syscall.Signal) {
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

// reap buries every child that has ended: the daemon, the work, and what either left behind.
func (g *guard) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil || pid <= 0:
			return
		case g.daemon != nil && pid == g.daemon.pid:
			g.died(status)
		case g.work != nil && pid == g.work.pid:
			g.work.reaped, g.work.next = true, 0
			g.tell(message{Kind: kindExited, Seq: g.work.seq, Status: ending(status)})
		}
	}
}

// died decides what follows the daemon's end. Its own verdict (0, 1) is final; a panic or a signal is not.
func (g *guard) died(status syscall.WaitStatus) {
	d := g.daemon
	g.daemon, g.lease, g.silence = nil, 0, 0
	if d.ended {
		d.socket.Close()
	} else {
		// Its death may overtake what it had said of its session, which is to be closed.
		g.late = d
		d.socket.SetReadDeadline(time.Now().Add(hangUp)) // somebody else may hold the far end open
	}
	g.status = status.ExitStatus()
	if status.Signaled() {
		g.status = 128 + int(status.Signal())
	}
	if final := status.Exited() && g.status <= 1; final || g.stopping || !g.opt.Respawn {
		g.over = true
		g.service.stop()
		if !final {
			g.log.Error("the daemon is dead", "pid", d.pid, "how", ending(status))
		}
		return
	}
	g.service.say("STATUS=The daemon " + ending(status) + "; it is started again")
	g.pause = min(max(respawnFirst, 2*g.pause), respawnMost)
	if boottime.Now()-d.began > steady {
		g.pause = respawnFirst
	}
	g.again = boottime.Now() + g.pause
	g.log.Error("the daemon is dead: its work is killed, its session closed, and it is started again", "pid", d.pid, "how", ending(status), "after", g.pause)
}

// advance does what is due.
func (g *guard) advance() {
	g.drain()
	if d := g.daemon; d != nil && (d.doomed || past(g.silence)) {
		if !d.doomed {
			g.log.Error("the daemon is hung and is killed", "pid", d.pid)
		}
		d.gone, d.doomed, g.silence = true, true, 0
		syscall.Kill(d.pid, syscall.SIGKILL)
	}
	if w := g.work; w != nil {
		g.judge(w)
		g.reap()
		if w.sweep(g.spare()) {
			if w.unit != nil {
				g.tell(message{Kind: kindExited, Seq: w.seq, Status: w.outcome()})
			}
			g.tell(message{Kind: kindDead, Seq: w.seq, Output: w.close()})
			g.work = nil
		}
	}
	if g.daemon == nil && g.late == nil && g.work == nil {
		g.undertake()
	}
	if past(g.calm) {
		g.calm = 0
		shrink()
	}
	g.schedule()
}

// spare is the daemon's pid, which is never part of the work.
func (g *guard) spare() int {
	if g.daemon == nil {
		return 0
	}
	return g.daemon.pid
}

// judge dooms the work that may not go on: S1.
func (g *guard) judge(w *work) {
	switch {
	case w.doomed || w.reaped:
		return
	case g.daemon == nil, g.daemon.gone:
	case g.expired():
		g.log.Error("the lease has ended: killing the work", w.who())
	case past(w.killAt):
		g.log.Warn("the child did not stop in time and is killed", w.who())
	default:
		return
	}
	w.doomed = true
}

// undertake closes the dead daemon's session, now that nothing works on the strength of it, and starts the next daemon.
func (g *guard) undertake() {
	switch {
	case g.closing:
	case g.session != nil:
		g.closing = true
		c := *g.session
		go func() { // ends in time: the limit is the context's
			ctx, cancel := context.WithTimeout(context.Background(), min(closeMost, c.Timeout))
			defer cancel()
			g.closings <- g.opt.Close(ctx, c)
		}()
	case g.over:
	case g.stopping:
		g.over = true
	case past(g.again):
		if err := g.spawn(); err != nil {
			g.pause = min(2*g.pause, respawnMost)
			g.again = boottime.Now() + g.pause
			g.log.Error("the daemon is not started again yet", "err", err, "after", g.pause)
		}
	}
}

func (g *guard) closed(err error) {
	g.closing = false
	c := g.session
	g.session = nil
	if err != nil {
		g.log.Warn("the dead daemon's session is left to expire", "err", err)
		return
	}
	g.log.Info("closed the dead daemon's session", "session", fmt.Sprintf("0x%x", c.ID))
	Forget(c.File)
}

func (g *guard) schedule() {
	at := earliest(g.silence, g.calm)
	if g.work != nil {
		at = earliest(at, g.work.due())
		if enforced && !g.work.doomed && !g.work.reaped {
			at = earliest(at, g.lease)
		}
	}
	if g.daemon == nil {
		at = earliest(at, g.again)
	}
	g.timer.set(at)
}

// receive takes in a message. A daemon that hangs up is at its end; one that speaks nonsense is treated as dead.
func (g *guard) receive(l letter) {
	d := l.from
	d.ended = l.err != nil
	if d == g.late {
		g.lastWords(l)
		return
	}
	if d != g.daemon || d.gone {
		return
	}
	err := l.err
	if err == nil {
		err = g.obey(l.msg)
	}
	switch {
	case err == nil:
	case errors.Is(err, io.EOF), hungUp(err):
		d.gone, g.silence = true, boottime.Now()+hangUp
	default:
		d.gone, d.doomed = true, true
		g.log.Error("the daemon is taken for dead and killed", "pid", d.pid, "err", err)
	}
}

// lastWords takes in what a dead daemon had said of its session, until nothing more comes.
func (g *guard) lastWords(l letter) {
	switch {
	case l.err != nil:
		g.late.socket.Close()
		g.late = nil
	case l.msg.Kind == kindSession && !g.late.gone:
		g.session = l.msg.Session
	}
}

// obey does what a message says.
func (g *guard) obey(m message) error {
	w := g.work
	switch m.Kind {
	case kindLease:
		g.lease = m.At
		g.tell(message{Kind: kindLeased, At: m.At})
	case kindBeat:
		g.silence = 0
		if enforced {
			g.silence = m.At
		}
		g.service.alive()
	case kindWaits:
		g.service.alive()
	case kindNotify:
		g.service.say(m.Notify)
	case kindSession:
		g.session = m.Session
		g.calm = boottime.Now() + calming
	case kindStart:
		if m.Spec == nil || len(m.Spec.Argv) == 0 && m.Spec.Unit == nil || w != nil {
			return fmt.Errorf("%w: start %d out of turn", errNonsense, m.Seq)
		}
		g.start(m)
	case kindStop, kindKill:
		if w == nil || w.seq != m.Seq {
			return nil // over already
		}
		if m.Kind == kindKill {
			m.Grace = 0
		}
		w.stop(m.Grace)
	default:
		return fmt.Errorf("%w: a message of kind %q", errNonsense, m.Kind)
	}
	return nil
}

// start starts work, if there is a lease for it.
func (g *guard) start(m message) {
	if enforced && (g.lease == 0 || past(g.lease)) {
		g.tell(message{Kind: kindStarted, Seq: m.Seq, Error: "the lease is over"})
		return
	}
	w, err := launch(m.Seq, m.Spec, g.groups)
	if err != nil {
		g.tell(message{Kind: kindStarted, Seq: m.Seq, Error: err.Error()})
		return
	}
	g.work = w
	if w.group == nil && w.unit == nil && !g.ungrouped {
		g.ungrouped = true
		g.log.Info("the child has no control group of its own: what hides from its parents is searched for in /proc",
			"hint", "in a systemd unit set Delegate=yes, and neither RestrictNamespaces= nor ProtectControlGroups=")
	}
	g.calm = boottime.Now() + calming
	g.tell(message{Kind: kindStarted, Seq: m.Seq, Pid: w.pid})
}

// tell sends a message to the daemon. One that has let the socket fill is hung, and is not waited for.
func (g *guard) tell(m message) {
	d := g.daemon
	if d == nil || d.gone {
		return
	}
	if err := writeFrame(instant{d.socket}, m); err != nil && !hungUp(err) {
		d.gone, d.doomed = true, true
	}
}

// hungUp tells that a daemon has closed the socket, maybe before it had read all that it was told: that is no fault, and its
// end is to be its own. Whoever writes leaves it to whoever reads.
func hungUp(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}
