package guard

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/sys/harden"
)

// daemon is one daemon process, from its start to its death.
type daemon struct {
	pid          int
	socket       *socket
	startedAt    time.Duration
	socketClosed bool          // its socket has been read to the end
	listens      bool          // it handles signals
	abandoned    bool          // no message from it counts any more, and its work must be killed
	killing      bool          // it is to be killed, until it is dead
	exitBy       time.Duration // it is killed if it has not exited by then; 0 if it has not closed its socket
	out          outbox
}

// incoming is a message, or the error that ended the socket, from one daemon or keeper process.
type incoming struct {
	daemon *daemon
	keeper *keeperProcess
	msg    message
	err    error
}

// spawn starts the daemon.
func (g *guard) startDaemon() error {
	near, far, err := socketpair()
	if err != nil {
		return err
	}
	defer far.Close()
	attr := &syscall.ProcAttr{
		Env: append(os.Environ(), g.notifier.environment()...), Files: []uintptr{0, 1, 2, far.Fd(), g.report.Fd()},
		// A separate process group, so that signals from a terminal reach it through the guard only. No parent death signal:
		// a daemon that outlives its guard closes the session once the work is dead.
		Sys: &syscall.SysProcAttr{Setpgid: true},
	}
	config := g.startConfigFile()
	if config != nil {
		defer config.Close()
		attr.Env = append(attr.Env, configVariable+"=yes")
	}
	// At configFD, resultFD, boardFD and lockFD.
	attr.Files = append(attr.Files, descriptor(config), descriptor(g.opt.Result), g.boardFile.Fd(),
		descriptor(g.opt.SessionLock))
	g.board.reset(g.lastLeadership)
	var pid int
	err = g.forker.do(func() error {
		return harden.WithChildScore(func() (err error) {
			pid, err = syscall.ForkExec(g.opt.Path, g.opt.Argv, attr)
			return err
		})
	})
	if err != nil {
		near.Close()
		return fmt.Errorf("cannot start the daemon: %w", err)
	}
	d := &daemon{pid: pid, socket: near, out: newOutbox(near, daemonOutbox), startedAt: boottime.Now()}
	g.daemon, g.respawnAt = d, 0
	g.sendToDaemon(message{Kind: kindHello, Containment: &ContainmentRecord{Mode: g.opt.Containment},
		Survivors: g.survivors()})
	go readFrames(near, g.fromDaemon, incoming{daemon: d})
	return nil
}

// daemonExited decides what follows the daemon's exit. Exit statuses 0 and 1 are final; after a panic or a signal the
// daemon is restarted.
func (g *guard) daemonExited(status syscall.WaitStatus) {
	d := g.daemon
	g.daemon = nil
	// Work may take K (docs/protocol.md) to die before the others stop waiting for it.
	survival := minSurvival
	if g.session != nil {
		survival = max(survival, g.session.Timeout*3/20)
	}
	g.survivedAt, g.inheritedAt = boottime.Now()+survival, 1
	if d.socketClosed {
		d.socket.Close()
	} else {
		// Messages about the session that has to be closed may still be unread.
		g.deadDaemon = d
		d.socket.SetReadDeadline(time.Now().Add(exitTimeout)) // another process may hold the far end open
	}
	g.exitStatus = status.ExitStatus()
	if status.Signaled() {
		g.exitStatus = 128 + int(status.Signal())
	}
	if final := status.Exited() && g.exitStatus <= 1; final || g.stopping || !g.opt.Respawn {
		g.noRespawn = true
		g.notifier.notifyStopping()
		if !final {
			g.log.Error("the daemon has died", "pid", d.pid, "status", exitText(status))
		}
		return
	}
	g.notifier.notify("STATUS=The daemon " + exitText(status) + "; it will be restarted")
	g.respawnDelay = min(max(minRespawnDelay, 2*g.respawnDelay), maxRespawnDelay)
	if boottime.Now()-d.startedAt > stableAfter {
		g.respawnDelay = minRespawnDelay
	}
	g.respawnAt = boottime.Now() + g.respawnDelay
	g.log.Error("the daemon has died: killing its work, closing its session and restarting it", "pid", d.pid, "status",
		exitText(status), "after", g.respawnDelay)
}

// receiveFromDaemon handles a message or the end of the socket. A daemon that closes its socket is about to exit; one
// that violates the protocol is killed.
func (g *guard) receiveFromDaemon(in incoming) {
	d := in.daemon
	d.socketClosed = in.err != nil
	if d == g.deadDaemon {
		g.receiveFromDead(in)
		return
	}
	if d != g.daemon || d.abandoned {
		return
	}
	err := in.err
	if err == nil {
		err = g.handle(in.msg)
	}
	switch {
	case err == nil:
	case errors.Is(err, io.EOF), isHangUp(err):
		d.abandoned, d.exitBy = true, boottime.Now()+exitTimeout
	default:
		d.abandoned, d.killing = true, true
		g.log.Error("killing the daemon", "pid", d.pid, "err", err)
	}
}

// receiveFromDead handles the remaining messages of a dead daemon, until its socket ends. Only those about what is left
// to do after it still count.
func (g *guard) receiveFromDead(in incoming) {
	d := g.deadDaemon
	if in.err != nil {
		d.socket.Close()
		g.deadDaemon = nil
		return
	}
	if !d.abandoned {
		g.note(d, in.msg)
	}
}

// note takes note of what is left to do after a daemon. It ignores other messages.
func (g *guard) note(d *daemon, m message) error {
	l := g.find(d, m.Leadership)
	switch {
	case m.Kind == kindSession:
		g.session = m.Session
	case m.Kind == kindConfig:
		g.setLastConfig(m.Config)
	case m.Kind == kindOpen:
		return g.open(d, m)
	case m.Kind == kindRelease && l != nil:
		l.release = m.Release
	case m.Kind == kindPendingHooks && l != nil:
		l.hooks = m.PendingHooks
	}
	return nil
}

// handle carries out a message from the daemon. Messages for a leadership that is unknown or was abandoned have no
// effect: a loop that was hung may still send them.
func (g *guard) handle(m message) error {
	switch m.Kind {
	case kindHeartbeat:
		g.notifier.feedWatchdog() // advance reads the board
	case kindAlive:
		g.daemonListens()
		g.notifier.feedWatchdog()
	case kindNotify:
		g.notifier.notify(m.Notify)
	case kindSession, kindConfig, kindOpen, kindRelease, kindPendingHooks:
		return g.note(g.daemon, m)
	case kindAbandon, kindClose:
		g.abandon(m)
	case kindLease:
		g.readLeases()
	case kindDevice:
		return g.checkDevice(m.Device)
	case kindPrepare:
		if m.Spec == nil || len(m.Spec.Argv) == 0 && m.Spec.Unit == nil || g.findWork(m.Seq) != nil || !m.Spec.Reset.valid() {
			return fmt.Errorf("%w: unexpected or incomplete prepare message %d", errProtocol, m.Seq)
		}
		g.prepare(m)
	case kindStart, kindStop, kindKill:
		if w := g.findWork(m.Seq); w != nil {
			g.request(w, m)
		}
	default:
		return fmt.Errorf("%w: unknown message kind %q", errProtocol, m.Kind)
	}
	return nil
}

// daemonDeadline returns when the daemon has to be killed: without another heartbeat it is hung; 0 for never.
func (g *guard) daemonDeadline() time.Duration {
	switch d := g.daemon; {
	case d == nil || d.killing:
		return 0
	case d.exitBy != 0:
		return d.exitBy
	case enforced && !d.abandoned:
		return g.board.heartbeat().deadline()
	}
	return 0
}

// sendToDaemon sends a message without waiting. A daemon that does not read its messages is hung and is killed.
func (g *guard) sendToDaemon(m message) {
	if d := g.daemon; d != nil && !d.abandoned {
		g.checkSent(d.out.send(m))
	}
}

// checkSent handles an error from sending to the daemon.
func (g *guard) checkSent(err error) {
	if err != nil && !isHangUp(err) {
		g.daemon.abandoned, g.daemon.killing = true, true
	}
}

// isHangUp reports whether err means that the daemon has closed its socket, perhaps with unread messages in it. That is
// not a fault: the daemon may be exiting, and is not killed for it. A writer leaves it to the reader to notice.
func isHangUp(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}
