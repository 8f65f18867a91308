package guard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/sys/harden"
)

// keeperArgument is the command line argument with which the program is started as the keeper.
const keeperArgument = "keeper"

// reportFD is the file descriptor at which the keeper finds the pipe for its report to the daemon: the guard is gone,
// and all of the keeper's works are dead. See [Client.readReports]. The guard's socket is at [SocketFD].
const reportFD = 4

// Timing of the keeper.
const (
	keeperDelay     = 20 * time.Millisecond // how long after a deadline the keeper acts if the guard has not
	eagerSweeps     = 50                    // the number of sweeps without a pause, to outrun work that keeps forking
	unkillableAfter = time.Second           // a process that survives SIGKILL this long hangs in the kernel
)

// keeper is the state of a process between guard and works. It starts works and is their subreaper, so every process
// that they orphan becomes the keeper's child. The keeper kills a work when the guard says so, when its lease has ended
// and the guard has not acted, and all of them when the guard is gone.
//
// It has several works only if each is in a control group, which then proves that the work is dead. Otherwise wait4
// does, which reports reliably whether any child is left.
type keeper struct {
	seq       int // its number
	guard     *socket
	out       outbox
	report    *os.File
	board     *board
	fromGuard chan incoming
	signals   chan os.Signal
	timer     *boottime.Timer
	launcher  *launcher
	children  *childList
	reaper    reaper
	none      bool   // wait4 has reported that this process has no children
	mount     string // of the control groups of version 2; empty if it is not known

	works    map[int]*task // by their numbers
	orphaned bool          // the guard is gone: the works must end, then the keeper
}

// MaybeRunKeeper runs the keeper and exits if a guard has started this process as its keeper; otherwise it does
// nothing. The keeper takes over the process, with its signals and all its children.
func MaybeRunKeeper() {
	if len(os.Args) != 2 || os.Args[1] != keeperArgument {
		return
	}
	if _, err := unix.GetsockoptInt(SocketFD, unix.SOL_SOCKET, unix.SO_TYPE); err == nil {
		os.Exit(runKeeper())
	}
}

func runKeeper() int {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil)).With("process", "keeper")
	k, err := newKeeper()
	if err != nil {
		log.Error("the keeper cannot start", "err", err)
		return 1
	}
	go readFrames(k.guard, k.fromGuard, incoming{})
	for !k.orphaned || len(k.works) > 0 {
		select {
		case sig := <-k.signals:
			if sig == syscall.SIGCHLD {
				k.reap()
			}
		case in := <-k.fromGuard:
			k.receive(in)
		case t := <-k.launcher.read:
			t.programRead = true // advance starts it
		case t := <-k.launcher.launched:
			k.launched(t)
		case <-k.timer.C:
			k.advance() // kills come first
			k.checkKillable()
		}
		k.advance()
	}
	if k.seq != 0 {
		k.report.Write(binary.BigEndian.AppendUint64(nil, uint64(k.seq)))
	}
	return 0
}

// protectKeeper is protect for the keeper. It logs nothing, as the guard lacks the same permissions and logs that.
func protectKeeper() {
	debug.SetGCPercent(guardGC)
	harden.Protect(harden.Options{
		OOMScore: harden.OOMScoreGuard, Procs: keeperProcs, LeastProcs: keeperProcs, Threads: guardThreads,
		Heap: guardHeap, Log: slog.New(slog.DiscardHandler),
	})
}

func newKeeper() (*keeper, error) {
	unix.CloseOnExec(SocketFD)
	unix.CloseOnExec(reportFD)
	socket, err := newSocket(SocketFD, "guard") // a stopped guard does not block the keeper
	if err != nil {
		return nil, err
	}
	if err := harden.DisableCoreDumps(); err != nil {
		return nil, err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, os.NewSyscallError("prctl(PR_SET_CHILD_SUBREAPER)", err)
	}
	k := &keeper{
		guard: socket, report: os.NewFile(reportFD, "report"),
		fromGuard: make(chan incoming), signals: make(chan os.Signal, 16), works: make(map[int]*task),
	}
	if k.board, err = inheritBoard(keeperBoardFD, unix.PROT_READ); err != nil {
		return nil, err
	}
	k.out = newOutbox(k.guard, keeperOutbox)
	k.launcher = newLauncher()
	if k.children, err = openChildList(k.launcher.forker.thread); err != nil {
		return nil, err
	}
	if k.timer, err = boottime.NewTimer(); err != nil {
		return nil, err
	}
	k.mount, _ = ownCgroup()
	// Signals from a terminal are for the guard. They are caught and not ignored, as the work would inherit ignored
	// signals.
	signal.Notify(k.signals, syscall.SIGCHLD, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1,
		syscall.SIGQUIT)
	protectKeeper()
	k.board.touch() // where not all memory can be locked, the line above has dropped it
	k.send(message{Kind: kindReady})
	return k, nil
}

// receive handles a message from the guard or the end of its socket. Without a guard, all works must end.
func (k *keeper) receive(in incoming) {
	m := in.msg
	if in.err != nil {
		k.orphaned = true
		for _, t := range k.works {
			t.killing = true
		}
		return
	}
	t := k.works[m.Seq]
	switch {
	case m.Kind == kindHello:
		k.seq = m.Seq
	case m.Kind == kindLease: // advance reads the board
		k.checkKillable()
	case m.Kind == kindStart && t == nil:
		k.start(m)
	case m.Kind == kindStop && t != nil:
		t.stop(m.Grace)
	case m.Kind == kindKill && t != nil:
		t.killing = true
		k.send(message{Kind: kindKilling, Seq: m.Seq})
	}
}

// start starts a work in other goroutines: a program on a disk that hangs must not delay the kill of another work, nor
// its start.
func (k *keeper) start(m message) {
	t := &task{seq: m.Seq, spec: m.Spec, until: m.At}
	if m.At == 0 {
		t.place = k.board.place(m.Place, m.Leadership)
	}
	if m.Dir != "" {
		var err error
		if t.group, err = openCgroup(m.Dir); err != nil {
			k.send(message{Kind: kindStarted, Seq: m.Seq, Error: err.Error()})
			return
		}
	}
	if k.mount == "" {
		k.mount, _ = ownCgroup()
	}
	k.works[t.seq] = t
	k.launcher.add(t)
}

// launched handles the end of an attempt to start a work.
func (k *keeper) launched(t *task) {
	t.launching = false
	status, exited := k.launcher.finish(t.pid)
	if t.launchErr != nil {
		k.failed(t, t.launchErr)
		return
	}
	harden.RefreshLocks()
	k.send(message{Kind: kindStarted, Seq: t.seq, Pid: t.pid})
	if exited {
		k.exited(t, status)
	}
	k.checkKillable()
}

// failed handles a work that could not be started.
func (k *keeper) failed(t *task, err error) {
	delete(k.works, t.seq)
	t.writeState(stateDead)
	t.output.close()
	t.close()
	k.send(message{Kind: kindStarted, Seq: t.seq, Error: err.Error()})
}

// checkKillable reports to the guard a process that runs as another user and that this process may not signal. A
// control group would kill it nevertheless.
func (k *keeper) checkKillable() {
	for _, t := range k.works {
		if t.group != nil || t.unkillable != "" || t.needsSweep() {
			continue
		}
		for _, pid := range descendants(os.Getpid()) {
			if errors.Is(syscall.Kill(pid, 0), syscall.EPERM) {
				k.reportUnkillable(t, deniedError(pid).Error())
			}
		}
	}
}

// deniedError is the pid of a process that this process may not signal.
type deniedError int

func (pid deniedError) Error() string {
	return fmt.Sprintf("zkelectd has no permission to signal process %d of the work, which runs as user %s: run "+
		"zkelectd as root, "+
		"or delegate control groups to it (Delegate=yes), or do not change users in the command", int(pid),
		processUser(int(pid)))
}

// reportUnkillable tells the guard, once for each piece of work, why the work cannot be killed.
func (k *keeper) reportUnkillable(t *task, text string) {
	if t.unkillable == "" {
		t.unkillable = text
		k.send(message{Kind: kindUnkillable, Seq: t.seq, Error: text})
	}
}

// processUser returns the id of the user that a process runs as.
func processUser(pid int) string {
	info, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	if err != nil {
		return "unknown"
	}
	return fmt.Sprint(info.Sys().(*syscall.Stat_t).Uid)
}

// reap waits for exited children.
func (k *keeper) reap() {
	k.none = k.reaper.reap(func(pid int, status syscall.WaitStatus) {
		if t := k.workOf(pid); t != nil {
			k.exited(t, status)
		} else {
			k.launcher.keep(pid, status)
		}
	})
}

// workOf returns the work whose main process has a pid and was not reaped; nil if there is none.
func (k *keeper) workOf(pid int) *task {
	for _, t := range k.works {
		if !t.launching && t.pid == pid && !t.reaped {
			return t
		}
	}
	return nil
}

// exited handles the exit of the main process of a work.
func (k *keeper) exited(t *task, status syscall.WaitStatus) {
	t.reaped, t.nextSweep = true, 0
	k.send(message{Kind: kindExited, Seq: t.seq, Status: exitText(status)})
}

// advance does everything that is due. Before anything that needs a list of processes, which may take longer the more
// processes there are, all work that may not run any longer is killed as far as that is possible without one.
func (k *keeper) advance() {
	for _, t := range k.works {
		k.enforce(t)
	}
	if len(k.works) == 0 || k.reaper.more {
		k.reap()
	}
	for _, t := range k.works {
		k.conclude(t)
	}
	k.out.flush()
	k.launcher.next()
	k.timer.Set(k.nextCheck())
}

// send sends the guard a message without waiting: a guard that does not read is stopped or hung.
func (k *keeper) send(m message) {
	if !k.orphaned {
		k.out.send(m)
	}
}
