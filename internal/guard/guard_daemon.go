package guard

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"zkelectd/internal/boottime"
	"zkelectd/internal/harden"
)

// daemon is one daemon process, from its start to its death.
type daemon struct {
	pid          int
	socket       *os.File
	startedAt    time.Duration
	socketClosed bool // its socket has been read to the end
	abandoned    bool // no message from it counts any more, and its work must be killed
	killing      bool // it is to be killed, until it is dead
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
		Env: append(os.Environ(), g.notifier.environment()...), Files: []uintptr{0, 1, 2, far.Fd(), g.keeper.report.Fd()},
		// A process group of its own, so that signals from a terminal reach it through the guard only. No parent death signal:
		// a daemon that outlives its guard closes the session once the work is dead.
		Sys: &syscall.SysProcAttr{Setpgid: true},
	}
	if last := g.lastConfigFile(); last != nil {
		defer last.Close()
		attr.Env, attr.Files = append(attr.Env, configVariable+"=yes"), append(attr.Files, last.Fd())
	}
	var pid int
	err = harden.WithChildScore(func() (err error) {
		pid, err = syscall.ForkExec(g.opt.Path, g.opt.Argv, attr)
		return err
	})
	if err != nil {
		near.Close()
		return fmt.Errorf("cannot start the daemon: %w", err)
	}
	d := &daemon{pid: pid, socket: near, startedAt: boottime.Now()}
	g.daemon, g.respawnAt, g.heartbeatDeadline = d, 0, 0
	g.sendToDaemon(message{Kind: kindKeeper, Containment: &ContainmentRecord{Mode: g.opt.Containment, Keeper: g.keeper.Process}})
	go g.readDaemon(d)
	return nil
}

// readDaemon runs until the socket ends.
func (g *guard) readDaemon(d *daemon) {
	for {
		m, err := readFrame(d.socket)
		g.fromDaemon <- incoming{daemon: d, msg: m, err: err}
		if err != nil {
			return
		}
	}
}

// daemonExited decides what follows the daemon's exit. Exit statuses 0 and 1 are final; after a panic or a signal the daemon
// is restarted.
func (g *guard) daemonExited(status syscall.WaitStatus) {
	d := g.daemon
	g.daemon, g.lease, g.heartbeatDeadline = nil, 0, 0
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
	g.log.Error("the daemon has died: killing its work, closing its session and restarting it", "pid", d.pid, "status", exitText(status), "after", g.respawnDelay)
}

// receiveFromDaemon handles a message or the end of the socket. A daemon that closes its socket is about to exit; one that
// violates the protocol is killed.
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
		d.abandoned, g.heartbeatDeadline = true, boottime.Now()+exitTimeout
	default:
		d.abandoned, d.killing = true, true
		g.log.Error("killing the daemon", "pid", d.pid, "err", err)
	}
}

// receiveFromDead handles the remaining messages of a dead daemon, until its socket ends. Only those about its session, its
// pending hooks and its configuration still count.
func (g *guard) receiveFromDead(in incoming) {
	switch {
	case in.err != nil:
		g.deadDaemon.socket.Close()
		g.deadDaemon = nil
	case in.msg.Kind == kindSession && !g.deadDaemon.abandoned:
		g.session = in.msg.Session
	case in.msg.Kind == kindPendingHooks && !g.deadDaemon.abandoned:
		g.pendingHooks = in.msg.PendingHooks
	case in.msg.Kind == kindConfig && !g.deadDaemon.abandoned:
		g.setLastConfig(in.msg.Config)
	}
}

// handle carries out a message from the daemon.
func (g *guard) handle(m message) error {
	switch m.Kind {
	case kindLease:
		g.lease = m.At
		if g.work != nil && g.work.unit != nil {
			g.work.unit.open()
		}
		g.keeper.send(m)
		g.sendToDaemon(message{Kind: kindLeaseConfirmed, At: m.At})
	case kindHeartbeat:
		g.heartbeatDeadline = 0
		if enforced {
			g.heartbeatDeadline = m.At
		}
		g.notifier.feedWatchdog()
	case kindAlive:
		g.notifier.feedWatchdog()
	case kindNotify:
		g.notifier.notify(m.Notify)
	case kindSession:
		g.session = m.Session
	case kindPendingHooks:
		g.pendingHooks = m.PendingHooks
	case kindConfig:
		g.setLastConfig(m.Config)
	case kindStart:
		if m.Spec == nil || len(m.Spec.Argv) == 0 && m.Spec.Unit == nil || g.work != nil {
			return fmt.Errorf("%w: unexpected or incomplete start message %d", errProtocol, m.Seq)
		}
		g.start(m)
	case kindStop, kindKill:
		if g.work != nil && g.work.seq == m.Seq {
			g.stop(g.work, m)
		}
	default:
		return fmt.Errorf("%w: unknown message kind %q", errProtocol, m.Kind)
	}
	return nil
}

// sendToDaemon sends a message without waiting. A daemon that has let the socket's buffer fill up is hung and is killed.
func (g *guard) sendToDaemon(m message) {
	d := g.daemon
	if d == nil || d.abandoned {
		return
	}
	if err := writeFrame(nonblockingWriter{d.socket}, m); err != nil && !isHangUp(err) {
		d.abandoned, d.killing = true, true
	}
}

// isHangUp reports whether err means that the daemon has closed its socket, perhaps with unread messages in it. That is not a
// fault: the daemon may be exiting, and is not killed for it. A writer leaves it to the reader to notice.
func isHangUp(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}
