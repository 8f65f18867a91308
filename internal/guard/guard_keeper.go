package guard

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/boottime"
)

// keeperProcess is the guard's hold on its keeper.
type keeperProcess struct {
	Process
	pid    int
	socket *os.File
	word   *os.File      // for the daemon, which learns by it of the work's end when the guard is dead
	heard  bool          // it was told to kill the work, and is at it
	left   time.Duration // when it was told to end
}

// Timing of what the guard does where the keeper does not.
const (
	keeperStart = 5 * time.Second        // a keeper that is not up by then is no use
	startLimit  = time.Second            // a keeper that does not take what to start by then is hung
	helpAfter   = 5 * time.Millisecond   // a keeper that has not ended the work by then is helped
	keeperHung  = 500 * time.Millisecond // one that has not by then is killed
)

// keep starts a keeper and waits until it is up. Nothing works meanwhile.
func (g *guard) keep() error {
	near, far, err := socketpair()
	if err != nil {
		return err
	}
	defer far.Close()
	word, said, err := os.Pipe()
	if err != nil {
		near.Close()
		return err
	}
	defer said.Close()
	k := &keeperProcess{socket: near, word: word}
	attr := &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2, far.Fd(), said.Fd()}, Sys: &syscall.SysProcAttr{Setpgid: true}}
	if g.opt.Containment == PidnsContainment {
		namespaces(attr.Sys)
	}
	err = inherited(func() (err error) {
		k.pid, err = syscall.ForkExec(g.opt.Path, []string{g.opt.Argv[0], keeperArgument}, attr)
		return err
	})
	if err == nil {
		err = k.up()
	}
	if err != nil {
		k.close()
		return fmt.Errorf("the keeper cannot be started (child.containment: %s): %w", g.opt.Containment, err)
	}
	g.keeper = k
	g.hasten(k.pid)
	go g.listen(k)
	return nil
}

// namespaces has a keeper start as the first process of a PID namespace of its own. It dies with the guard, by the kernel's
// hand, and all of the namespace with it.
func namespaces(sys *syscall.SysProcAttr) {
	sys.Cloneflags = syscall.CLONE_NEWPID | syscall.CLONE_NEWNS
	sys.Pdeathsig = syscall.SIGKILL
	if uid, gid := os.Geteuid(), os.Getegid(); uid != 0 {
		sys.Cloneflags |= syscall.CLONE_NEWUSER
		sys.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		sys.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
		sys.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN} // within its namespace, until it has mounted /proc: see ownProc
	}
}

// up waits for the keeper's first message.
func (k *keeperProcess) up() error {
	k.socket.SetReadDeadline(time.Now().Add(keeperStart))
	defer k.socket.SetReadDeadline(time.Time{})
	if _, err := readFrame(k.socket); err != nil {
		syscall.Kill(k.pid, syscall.SIGKILL)
		var status syscall.WaitStatus
		syscall.Wait4(k.pid, &status, 0, nil)
		return fmt.Errorf("it says nothing and %s", ending(status))
	}
	k.Process, _ = Identify("keeper", k.pid)
	return nil
}

func (k *keeperProcess) close() {
	k.socket.Close()
	k.word.Close()
}

// hangUp lets the keeper end: there is no work. One that does not is killed.
func (k *keeperProcess) hangUp() {
	switch {
	case k == nil:
	case k.left == 0:
		k.left = boottime.Now() + hangUp
		shutdown(k.socket)
	case past(k.left):
		syscall.Kill(k.pid, syscall.SIGKILL)
	}
}

// listen ends with the socket.
func (g *guard) listen(k *keeperProcess) {
	for {
		m, err := readFrame(k.socket)
		g.kept <- letter{kept: k, msg: m, err: err}
		if err != nil {
			return
		}
	}
}

// tell sends the keeper a message. One that takes nothing is not waited for: the guard does without.
func (k *keeperProcess) tell(m message) {
	if k != nil {
		writeFrame(instant{k.socket}, m)
	}
}

// hand has the keeper start something, which may be long. Nothing works meanwhile.
func (k *keeperProcess) hand(m message) error {
	k.socket.SetWriteDeadline(time.Now().Add(startLimit))
	defer k.socket.SetWriteDeadline(time.Time{})
	if err := writeFrame(k.socket, m); err != nil {
		return fmt.Errorf("the keeper takes no messages: %w", err)
	}
	return nil
}

// hear takes in what the keeper says of the work.
func (g *guard) hear(l letter) {
	w := g.work
	if l.kept != g.keeper || l.err != nil || w == nil || w.unit != nil || w.seq != l.msg.Seq {
		return
	}
	m := l.msg
	if w.limit != 0 {
		g.hearUndo(w, m)
	}
	switch m.Kind {
	case kindHeard:
		g.keeper.heard = true
		return
	case kindStarted:
		if m.Error != "" {
			g.finish(w)
		} else {
			w.pid = g.translate(m.Pid)
			m.Pid, m.Containment = w.pid, g.hold(w)
		}
	case kindExited:
		w.status = m.Status
	case kindDead:
		g.finish(w)
	case kindAlarm:
		g.alarm(w, m.Error)
		return
	default:
		return
	}
	if w.limit == 0 {
		g.tell(m)
	}
}

// translate finds the pid that a process of the keeper's namespace has in this one.
func (g *guard) translate(pid int) int {
	if g.opt.Containment != PidnsContainment {
		return pid
	}
	for _, p := range listed(g.keeper.pid) {
		if innermost(p) == pid {
			return p
		}
	}
	return 0
}

// innermost is the pid of a process in its own namespace, 0 if that can't be read.
func innermost(pid int) int {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if ids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			fields := strings.Fields(ids)
			inner, _ := strconv.Atoi(fields[len(fields)-1])
			return inner
		}
	}
	return 0
}

// unkept follows the keeper's end. What it has left behind is this process' now, unless the kernel has killed it with the
// namespace. The daemon is ended too: it could not learn of the work's end any more, should this process die.
func (g *guard) unkept(status syscall.WaitStatus) {
	k := g.keeper
	g.keeper = nil
	k.close()
	if g.ended() {
		return
	}
	g.log.Error("the keeper is dead: all of the work is killed, and the daemon started again", "pid", k.pid, "how", ending(status))
	if g.work != nil && g.work.unit == nil {
		g.work.doomed, g.work.unkept = true, true
	}
	if g.daemon != nil {
		g.daemon.gone, g.daemon.doomed = true, true
	}
}
