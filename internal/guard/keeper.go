package guard

import (
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
	"zkelectd/internal/harden"
)

// keeperArgument is the command line argument with which the program is started as the keeper.
const keeperArgument = "keeper"

// reportFD is the file descriptor at which the keeper finds the pipe for its report to the daemon. The guard's socket is at
// [SocketFD].
const reportFD = 4

// reportDead is the keeper's report: the guard is gone, and all of the work is dead.
const reportDead = 'd'

// Timing of the keeper.
const (
	keeperDelay     = 20 * time.Millisecond // how long after a deadline the keeper acts if the guard has not
	eagerSweeps     = 50                    // the number of sweeps without a pause, to outrun work that keeps forking
	unkillableAfter = time.Second           // a process that survives SIGKILL this long hangs in the kernel
)

// keeper is the state of the process between guard and work. It starts the work and is its subreaper, so every process that
// the work orphans becomes the keeper's child, and wait4 reports reliably whether any is left. The keeper kills all of the
// work when the guard says so, when the lease has ended and the guard has not acted, and when the guard is gone.
type keeper struct {
	guard     *os.File
	report    *os.File
	fromGuard chan incoming
	signals   chan os.Signal
	timer     *timer
	children  *childList
	isInit    bool // this is process 1 of a PID namespace

	work       *task
	lease      time.Duration // 0 for none
	lastChance bool          // the lease has ended, and the guard gets drainTime to extend it
	orphaned   bool          // the guard is gone: work must end, then the keeper
}

// MaybeRunKeeper runs the keeper and exits if a guard has started this process as its keeper; otherwise it does nothing. The
// keeper takes over the process, with its signals and all its children.
func MaybeRunKeeper() {
	if len(os.Args) != 2 || os.Args[1] != keeperArgument {
		return
	}
	if _, err := unix.GetsockoptInt(SocketFD, unix.SOL_SOCKET, unix.SO_TYPE); err == nil {
		os.Exit(runKeeper())
	}
}

func runKeeper() int {
	runtime.LockOSThread() // a parent death signal is tied to the thread that forked
	log := slog.New(slog.NewTextHandler(os.Stderr, nil)).With("process", "keeper")
	k, err := newKeeper()
	if err != nil {
		log.Error("the keeper cannot start", "err", err)
		return 1
	}
	go k.readGuard()
	for !k.orphaned || k.work != nil {
		select {
		case sig := <-k.signals:
			if sig == syscall.SIGCHLD {
				k.reap()
			}
		case in := <-k.fromGuard:
			k.receive(in)
		case <-k.timer.c:
		}
		k.advance()
	}
	k.report.Write([]byte{reportDead})
	return 0
}

func newKeeper() (*keeper, error) {
	unix.CloseOnExec(SocketFD)
	unix.CloseOnExec(reportFD)
	if err := unix.SetNonblock(SocketFD, true); err != nil { // a stopped guard must not block the keeper
		return nil, os.NewSyscallError("fcntl", err)
	}
	if err := harden.DisableCoreDumps(); err != nil {
		return nil, err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, os.NewSyscallError("prctl(PR_SET_CHILD_SUBREAPER)", err)
	}
	k := &keeper{
		guard: os.NewFile(SocketFD, "guard"), report: os.NewFile(reportFD, "report"),
		fromGuard: make(chan incoming), signals: make(chan os.Signal, 16), isInit: os.Getpid() == 1,
	}
	if k.isInit {
		if err := mountProc(); err != nil {
			return nil, err
		}
	}
	var err error
	if k.children, err = openChildList(); err != nil {
		return nil, err
	}
	if k.timer, err = newTimer(); err != nil {
		return nil, err
	}
	// Signals from a terminal are for the guard. They are caught and not ignored, as the work would inherit ignored signals.
	signal.Notify(k.signals, syscall.SIGCHLD, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
	protectKeeper()
	k.send(message{Kind: kindReady})
	return k, nil
}

// mountProc mounts a /proc for this PID namespace, so that it shows the pids that its processes have there.
func mountProc() error {
	if err := errors.Join(unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")); err != nil {
		return fmt.Errorf("cannot mount /proc for a PID namespace: %w", err)
	}
	// Drop the capability that a keeper without root got for the mount: the work must not have it.
	return os.NewSyscallError("prctl(PR_CAP_AMBIENT)", unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0))
}

// readGuard runs until the socket ends.
func (k *keeper) readGuard() {
	for {
		m, err := readFrame(k.guard)
		k.fromGuard <- incoming{msg: m, err: err}
		if err != nil {
			return
		}
	}
}

// receive handles a message from the guard or the end of its socket. Without a guard, work must end.
func (k *keeper) receive(in incoming) {
	m := in.msg
	if in.err != nil {
		k.orphaned = true
		if k.work != nil {
			k.work.killing = true
		}
		return
	}
	switch m.Kind {
	case kindLease:
		k.lease, k.lastChance = m.At, false
		k.checkKillable()
	case kindStart:
		k.start(m)
	case kindStop:
		if k.work != nil && k.work.seq == m.Seq {
			k.work.stop(m.Grace)
		}
	case kindKill:
		if k.work != nil && k.work.seq == m.Seq {
			k.work.killing = true
			k.send(message{Kind: kindKilling, Seq: m.Seq})
		}
	}
}

func (k *keeper) start(m message) {
	t, err := launch(m)
	if err != nil {
		k.send(message{Kind: kindStarted, Seq: m.Seq, Error: err.Error()})
		return
	}
	k.work, k.lease, k.lastChance = t, m.At, false
	harden.RefreshLocks()
	k.send(message{Kind: kindStarted, Seq: m.Seq, Pid: t.pid})
	k.checkKillable()
}

// checkKillable reports to the guard a process that runs as another user and that this process may not signal. A control group
// or PID namespace would kill it nevertheless.
func (k *keeper) checkKillable() {
	if t := k.work; t != nil && t.group == nil && !k.isInit && t.unkillable == "" {
		if pid := findUnkillable(); pid != 0 {
			k.reportPermission(pid)
		}
	}
}

// reportPermission reports a process that this process may not signal.
func (k *keeper) reportPermission(pid int) {
	k.reportUnkillable(fmt.Sprintf("zkelectd has no permission to signal process %d of the work, which runs as user %s: run zkelectd as root, "+
		"or delegate control groups to it (Delegate=yes), or do not change users in the command", pid, processUser(pid)))
}

// reportUnkillable tells the guard, once for each piece of work, why the work cannot be killed.
func (k *keeper) reportUnkillable(text string) {
	if k.work.unkillable == "" {
		k.work.unkillable = text
		k.send(message{Kind: kindUnkillable, Seq: k.work.seq, Error: text})
	}
}

// findUnkillable returns a descendant of this process that it may not signal; 0 if there is none.
func findUnkillable() int {
	for _, pid := range descendants(os.Getpid()) {
		if errors.Is(syscall.Kill(pid, 0), syscall.EPERM) {
			return pid
		}
	}
	return 0
}

// processUser returns the id of the user that a process runs as.
func processUser(pid int) string {
	info, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	if err != nil {
		return "unknown"
	}
	return fmt.Sprint(info.Sys().(*syscall.Stat_t).Uid)
}

// reap waits for exited children. It reports whether the kernel says that this process has no children left.
func (k *keeper) reap() (none bool) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG|syscall.WALL, nil)
		switch {
		case errors.Is(err, syscall.ECHILD):
			return true
		case pid <= 0: // none has exited, or wait4 failed
			return false
		case k.work != nil && pid == k.work.pid:
			k.work.reaped, k.work.nextSweep = true, 0
			k.send(message{Kind: kindExited, Seq: k.work.seq, Status: exitText(status)})
		}
	}
}

// advance does everything that is due.
func (k *keeper) advance() {
	if t := k.work; t != nil {
		k.enforce(t)
	} else {
		k.reap()
	}
	k.timer.set(k.nextCheck())
}

// enforce kills the work if it may not run any longer, and reports its death.
func (k *keeper) enforce(t *task) {
	if !t.needsSweep() && k.leaseExpired() || past(t.killAt) {
		t.killing = true
	}
	if !k.sweep(t) {
		return
	}
	t.writeState(stateDead)
	if t.unkillable != "" {
		k.send(message{Kind: kindUnkillable, Seq: t.seq})
	}
	k.send(message{Kind: kindDead, Seq: t.seq, Output: t.output.close()})
	k.work = nil
	t.close()
}

// nextCheck returns when advance has to be called next; 0 if only after an event.
func (k *keeper) nextCheck() time.Duration {
	switch t := k.work; {
	case t == nil:
		return 0
	case t.needsSweep():
		return max(1, t.nextSweep)
	case enforced:
		return earliest(t.killAt, k.enforceAt())
	default:
		return t.killAt
	}
}

// enforceAt returns when the keeper enforces the end of the lease by itself.
func (k *keeper) enforceAt() time.Duration {
	if k.lastChance {
		return boottime.Now() + drainTime
	}
	return k.lease + keeperDelay
}

// leaseExpired reports whether the lease has ended and the guard has not acted. If this process was paused, an extension may
// still be unread, so the first call after the end only starts a last wait of drainTime.
func (k *keeper) leaseExpired() bool {
	if !enforced || boottime.Now() < k.lease+keeperDelay {
		return false
	}
	if !k.lastChance {
		k.lastChance = true
		return false
	}
	return true
}

// sweep kills what is left of work that is to be killed or whose main process has ended. It reports whether the kernel says
// that nothing is left (A3): this process, which adopts all orphans, has no children, and the control group is empty.
func (k *keeper) sweep(t *task) (dead bool) {
	for range eagerSweeps {
		if !t.needsSweep() || boottime.Now() < t.nextSweep {
			return false
		}
		none := k.reap()
		if t.reaped && none && !t.group.populated() {
			return true
		}
		k.kill(t)
		t.sweeps++
		if t.sweeps > eagerSweeps {
			t.delaySweep()
		}
	}
	t.delaySweep()
	return false
}

// kill kills every process of the work that it finds. It first does everything that needs no file to be opened.
func (k *keeper) kill(t *task) {
	t.group.kill()
	if k.isInit {
		syscall.Kill(-1, syscall.SIGKILL) // every process of the namespace except this one
	}
	if !t.reaped {
		syscall.Kill(-t.pid, syscall.SIGKILL)
	}
	denied := 0
	killOne := func(pid int) {
		if group, err := syscall.Getpgid(pid); err == nil && group == t.pid {
			syscall.Kill(-t.pid, syscall.SIGKILL) // all at once, so that no member can fork meanwhile
		}
		if errors.Is(syscall.Kill(pid, syscall.SIGKILL), syscall.EPERM) {
			denied = pid
		}
	}
	k.children.forEach(killOne)
	if t.sweeps > 0 {
		for _, pid := range descendants(os.Getpid()) {
			killOne(pid)
		}
	}
	switch now := boottime.Now(); {
	case t.sweeps == 0:
		t.killStarted = now
	case t.sweeps <= eagerSweeps:
	case denied != 0:
		k.reportPermission(denied)
	case now-t.killStarted > unkillableAfter:
		k.reportUnkillable(fmt.Sprintf("some of the work still runs %s after SIGKILL, probably in state D (uninterruptible): see 'ps axo pid,stat,wchan,args'", unkillableAfter))
	}
}

// send sends the guard a message without waiting: a guard that does not read is stopped or hung.
func (k *keeper) send(m message) {
	if !k.orphaned {
		writeFrame(nonblockingWriter{k.guard}, m)
	}
}
