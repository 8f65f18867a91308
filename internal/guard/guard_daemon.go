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

// daemon is one run of the daemon.
type daemon struct {
	pid    int
	socket *os.File
	began  time.Duration
	ended  bool // nothing more comes from its socket
	gone   bool // it says nothing any more: its work must end
	doomed bool // it is to be killed
}

// letter is a message, or the end of the socket, from one run of the daemon or keeper.
type letter struct {
	from *daemon
	kept *keeperProcess
	msg  message
	err  error
}

// spawn starts the daemon.
func (g *guard) spawn() error {
	near, far, err := socketpair()
	if err != nil {
		return err
	}
	defer far.Close()
	attr := &syscall.ProcAttr{
		Env: append(os.Environ(), g.service.environment()...), Files: []uintptr{0, 1, 2, far.Fd(), g.keeper.word.Fd()},
		// A group of its own, so that a terminal's signals come through the guard alone. No death signal: a daemon that
		// outlives its guard closes the session once the work is dead.
		Sys: &syscall.SysProcAttr{Setpgid: true},
	}
	if last := g.lastConfig(); last != nil {
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
	d := &daemon{pid: pid, socket: near, began: boottime.Now()}
	g.daemon, g.again, g.silence = d, 0, 0
	g.tell(message{Kind: kindKept, Containment: &ContainmentRecord{Mode: g.opt.Containment, Keeper: g.keeper.Process}})
	go g.read(d)
	return nil
}

// read ends with the socket.
func (g *guard) read(d *daemon) {
	for {
		m, err := readFrame(d.socket)
		g.inbox <- letter{from: d, msg: m, err: err}
		if err != nil {
			return
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

// lastWords takes in what a dead daemon had said of its session, of what is to be undone and of its configuration, until
// nothing more comes.
func (g *guard) lastWords(l letter) {
	switch {
	case l.err != nil:
		g.late.socket.Close()
		g.late = nil
	case l.msg.Kind == kindSession && !g.late.gone:
		g.session = l.msg.Session
	case l.msg.Kind == kindOwe && !g.late.gone:
		g.undo = l.msg.PendingHooks
	case l.msg.Kind == kindConfig && !g.late.gone:
		g.keepConfig(l.msg.Config)
	}
}

// obey does what a message says.
func (g *guard) obey(m message) error {
	switch m.Kind {
	case kindLease:
		g.lease = m.At
		if g.work != nil && g.work.unit != nil {
			g.work.unit.prepare()
		}
		g.keeper.tell(m)
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
	case kindOwe:
		g.undo = m.PendingHooks
	case kindConfig:
		g.keepConfig(m.Config)
	case kindStart:
		if m.Spec == nil || len(m.Spec.Argv) == 0 && m.Spec.Unit == nil || g.work != nil {
			return fmt.Errorf("%w: start %d out of turn", errNonsense, m.Seq)
		}
		g.start(m)
	case kindStop, kindKill:
		if g.work != nil && g.work.seq == m.Seq {
			g.stop(g.work, m)
		}
	default:
		return fmt.Errorf("%w: a message of kind %q", errNonsense, m.Kind)
	}
	return nil
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

// hungUp reports whether a daemon has closed the socket, maybe before it had read everything: that is no fault, and its
// end is to be its own. The writing side leaves it to the reading side.
func hungUp(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}
