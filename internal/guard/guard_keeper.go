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

// keeperProcess is the keeper as the guard sees it.
type keeperProcess struct {
	Process
	pid     int
	socket  *os.File
	report  *os.File      // the pipe for the daemon, on which the keeper reports that all work is dead when the guard is gone
	killing bool          // it has confirmed that it is killing the work
	exitBy  time.Duration // it is killed if it has not exited by then; 0 if it was not asked to exit
}

// How long the guard waits for the keeper.
const (
	keeperStartTimeout = 5 * time.Second        // for it to start
	keeperSendTimeout  = time.Second            // for it to read a start message
	assistAfter        = 5 * time.Millisecond   // the guard then helps it kill the work
	keeperHungAfter    = 500 * time.Millisecond // a keeper that has not confirmed a kill by then is killed
)

// startKeeper starts a keeper and waits until it is ready. It may block, because no work is running.
func (g *guard) startKeeper() error {
	near, far, err := socketpair()
	if err != nil {
		return err
	}
	defer far.Close()
	report, reportWriter, err := os.Pipe()
	if err != nil {
		near.Close()
		return err
	}
	defer reportWriter.Close()
	k := &keeperProcess{socket: near, report: report}
	attr := &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2, far.Fd(), reportWriter.Fd()}, Sys: &syscall.SysProcAttr{Setpgid: true}}
	if g.opt.Containment == PidnsContainment {
		inNewPIDNamespace(attr.Sys)
	}
	err = withChildLimits(func() (err error) {
		k.pid, err = syscall.ForkExec(g.opt.Path, []string{g.opt.Argv[0], keeperArgument}, attr)
		return err
	})
	if err == nil {
		err = k.waitReady()
	}
	if err != nil {
		k.close()
		return fmt.Errorf("cannot start the keeper (child.containment: %s): %w", g.opt.Containment, err)
	}
	g.keeper = k
	g.makeRealtime(k.pid)
	go g.readKeeper(k)
	return nil
}

// inNewPIDNamespace makes the keeper process 1 of a PID namespace of its own. When the guard dies the kernel kills the
// keeper, and with it every process of the namespace.
func inNewPIDNamespace(sys *syscall.SysProcAttr) {
	sys.Cloneflags = syscall.CLONE_NEWPID | syscall.CLONE_NEWNS
	sys.Pdeathsig = syscall.SIGKILL
	if uid, gid := os.Geteuid(), os.Getegid(); uid != 0 {
		sys.Cloneflags |= syscall.CLONE_NEWUSER
		sys.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		sys.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
		sys.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN} // within its user namespace, until mountProc is done
	}
}

// waitReady waits for the keeper's first message.
func (k *keeperProcess) waitReady() error {
	k.socket.SetReadDeadline(time.Now().Add(keeperStartTimeout))
	defer k.socket.SetReadDeadline(time.Time{})
	if _, err := readFrame(k.socket); err != nil {
		syscall.Kill(k.pid, syscall.SIGKILL)
		var status syscall.WaitStatus
		syscall.Wait4(k.pid, &status, 0, nil)
		return fmt.Errorf("it did not report that it is ready, and %s", exitText(status))
	}
	k.Process, _ = Identify("keeper", k.pid)
	return nil
}

func (k *keeperProcess) close() {
	k.socket.Close()
	k.report.Close()
}

// requestExit asks the keeper to exit, as there is no more work. A later call kills a keeper that has not exited in time.
func (k *keeperProcess) requestExit() {
	switch {
	case k == nil:
	case k.exitBy == 0:
		k.exitBy = boottime.Now() + exitTimeout
		closeWrite(k.socket)
	case past(k.exitBy):
		syscall.Kill(k.pid, syscall.SIGKILL)
	}
}

// readKeeper runs until the socket ends.
func (g *guard) readKeeper(k *keeperProcess) {
	for {
		m, err := readFrame(k.socket)
		g.fromKeeper <- incoming{keeper: k, msg: m, err: err}
		if err != nil {
			return
		}
	}
}

// send sends the keeper a message without waiting. If the keeper does not read, the guard acts without it.
func (k *keeperProcess) send(m message) {
	if k != nil {
		writeFrame(nonblockingWriter{k.socket}, m)
	}
}

// sendStart sends a start message, which may be long. It may block, because no work is running.
func (k *keeperProcess) sendStart(m message) error {
	k.socket.SetWriteDeadline(time.Now().Add(keeperSendTimeout))
	defer k.socket.SetWriteDeadline(time.Time{})
	if err := writeFrame(k.socket, m); err != nil {
		return fmt.Errorf("the keeper does not read its messages: %w", err)
	}
	return nil
}

// receiveFromKeeper handles a message from the keeper about the current work and passes it on to the daemon.
func (g *guard) receiveFromKeeper(in incoming) {
	w := g.work
	if in.keeper != g.keeper || in.err != nil || w == nil || w.unit != nil || w.seq != in.msg.Seq {
		return
	}
	m := in.msg
	if w.hookDeadline != 0 {
		g.checkHook(w, m)
	}
	switch m.Kind {
	case kindKilling:
		g.keeper.killing = true
		return
	case kindStarted:
		if m.Error != "" {
			g.releaseWork(w)
		} else {
			w.pid = g.hostPid(m.Pid)
			m.Pid, m.Containment = w.pid, g.containmentRecord(w)
		}
	case kindExited:
		w.status = m.Status
	case kindDead:
		g.releaseWork(w)
	case kindUnkillable:
		g.reportUnkillable(w, m.Error)
		return
	default:
		return
	}
	if w.hookDeadline == 0 {
		g.sendToDaemon(m)
	}
}

// hostPid returns the pid in this PID namespace of a process whose pid in the keeper's namespace is given; 0 if it is gone.
func (g *guard) hostPid(pid int) int {
	if g.opt.Containment != PidnsContainment {
		return pid
	}
	for _, p := range childrenOf(g.keeper.pid) {
		if innermostPid(p) == pid {
			return p
		}
	}
	return 0
}

// innermostPid returns the pid of a process in its own PID namespace; 0 if it cannot be read.
func innermostPid(pid int) int {
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

// keeperExited handles the death of the keeper. Its children are now this process's own, unless the kernel has killed them
// with the PID namespace. The daemon is killed as well: it holds the pipe of the dead keeper, so if this process died too,
// nothing could report to it that the work is dead.
func (g *guard) keeperExited(status syscall.WaitStatus) {
	k := g.keeper
	g.keeper = nil
	k.close()
	if g.onlyKeeperLeft() {
		return
	}
	g.log.Error("the keeper has died: killing all of the work and restarting the daemon", "pid", k.pid, "status", exitText(status))
	if g.work != nil && g.work.unit == nil {
		g.work.killing, g.work.keeperDead = true, true
	}
	if g.daemon != nil {
		g.daemon.abandoned, g.daemon.killing = true, true
	}
}
