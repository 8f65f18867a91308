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

// keeperArgument is the argument by which the program is asked to be a keeper.
const keeperArgument = "keeper"

// wordFD is where the keeper finds the pipe for its word to the daemon, beside the guard's socket at [SocketFD].
const wordFD = 4

// wordDead is the keeper's word: the guard is gone, and so is all of the work.
const wordDead = 'd'

// Timing of the keeper.
const (
	keeperLag  = 20 * time.Millisecond // the guard ends work at the lease's end; the keeper, if that has not
	eagerTries = 50                    // so many sweeps follow one another without a pause, against what forks faster
	undying    = time.Second           // what has survived SIGKILL for so long hangs in the kernel
)

// keeper is the process between guard and work. It starts the work and is its subreaper, so that whatever the work leaves
// behind becomes the keeper's child: wait4 then says as a fact whether anything is left. It kills all of it when it is told
// to, when the lease is over and the guard has not acted, and when the guard is gone.
type keeper struct {
	guard    *os.File
	word     *os.File
	inbox    chan letter
	signals  chan os.Signal
	timer    *timer
	children *offspring
	first    bool // of a PID namespace

	work     *task
	lease    time.Duration // 0 for none
	doubted  bool          // it is over, and the guard has been given a last moment
	orphaned bool          // the guard is gone
}

// BeKeeper makes this process a keeper if a guard has started it as one, and ends with it; else it does nothing. It takes
// over the process: its signals and all its children.
func MaybeRunKeeper() {
	if len(os.Args) != 2 || os.Args[1] != keeperArgument {
		return
	}
	if _, err := unix.GetsockoptInt(SocketFD, unix.SOL_SOCKET, unix.SO_TYPE); err == nil {
		os.Exit(runKeeper())
	}
}

func runKeeper() int {
	runtime.LockOSThread() // death signals follow the thread that forked
	log := slog.New(slog.NewTextHandler(os.Stderr, nil)).With("process", "keeper")
	k, err := newKeeper()
	if err != nil {
		log.Error("the keeper cannot start", "err", err)
		return 1
	}
	go k.read()
	for !k.orphaned || k.work != nil {
		select {
		case sig := <-k.signals:
			if sig == syscall.SIGCHLD {
				k.reap()
			}
		case l := <-k.inbox:
			k.receive(l)
		case <-k.timer.c:
		}
		k.advance()
	}
	k.word.Write([]byte{wordDead})
	return 0
}

func newKeeper() (*keeper, error) {
	unix.CloseOnExec(SocketFD)
	unix.CloseOnExec(wordFD)
	if err := unix.SetNonblock(SocketFD, true); err != nil { // so that no message waits for a guard that stands still
		return nil, os.NewSyscallError("fcntl", err)
	}
	if err := harden.DisableCoreDumps(); err != nil {
		return nil, err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, os.NewSyscallError("prctl(PR_SET_CHILD_SUBREAPER)", err)
	}
	k := &keeper{
		guard: os.NewFile(SocketFD, "guard"), word: os.NewFile(wordFD, "word"),
		inbox: make(chan letter), signals: make(chan os.Signal, 16), first: os.Getpid() == 1,
	}
	if k.first {
		if err := ownProc(); err != nil {
			return nil, err
		}
	}
	var err error
	if k.children, err = newOffspring(); err != nil {
		return nil, err
	}
	if k.timer, err = newTimer(); err != nil {
		return nil, err
	}
	// Signals of a terminal are for the guard. Caught, not ignored: the work would inherit that.
	signal.Notify(k.signals, syscall.SIGCHLD, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
	protectKeeper()
	k.tell(message{Kind: kindLeased}) // up
	return k, nil
}

// ownProc mounts the /proc of this PID namespace, so that the processes in it find themselves there.
func ownProc() error {
	if err := errors.Join(unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")); err != nil {
		return fmt.Errorf("cannot mount /proc for a PID namespace: %w", err)
	}
	// Not for the work: what a keeper that is not root was given for the mount.
	return os.NewSyscallError("prctl(PR_CAP_AMBIENT)", unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0))
}

// read ends with the socket.
func (k *keeper) read() {
	for {
		m, err := readFrame(k.guard)
		k.inbox <- letter{msg: m, err: err}
		if err != nil {
			return
		}
	}
}

// receive does what the guard says. Without a guard nothing may work.
func (k *keeper) receive(l letter) {
	m := l.msg
	if l.err != nil {
		k.orphaned = true
		if k.work != nil {
			k.work.doomed = true
		}
		return
	}
	switch m.Kind {
	case kindLease:
		k.lease, k.doubted = m.At, false
		k.check()
	case kindStart:
		k.start(m)
	case kindStop:
		if k.work != nil && k.work.seq == m.Seq {
			k.work.stop(m.Grace)
		}
	case kindKill:
		if k.work != nil && k.work.seq == m.Seq {
			k.work.doomed = true
			k.tell(message{Kind: kindHeard, Seq: m.Seq})
		}
	}
}

func (k *keeper) start(m message) {
	t, err := launch(m)
	if err != nil {
		k.tell(message{Kind: kindStarted, Seq: m.Seq, Error: err.Error()})
		return
	}
	k.work, k.lease, k.doubted = t, m.At, false
	harden.RefreshLocks()
	k.tell(message{Kind: kindStarted, Seq: m.Seq, Pid: t.pid})
	k.check()
}

// check has the guard told of work that could not be killed, as it runs with the rights of somebody else.
func (k *keeper) check() {
	if t := k.work; t != nil && t.group == nil && !k.first && t.alarm == "" {
		if pid := unkillable(); pid != 0 {
			k.raise(pid)
		}
	}
}

func (k *keeper) raise(pid int) {
	k.alarm(fmt.Sprintf("process %d of the work may not be signaled by zkelectd (it runs as user %s): run zkelectd as root, "+
		"or delegate control groups to it (Delegate=yes), or don't change users in the command", pid, owner(pid)))
}

// alarm has the guard told, once.
func (k *keeper) alarm(text string) {
	if k.work.alarm == "" {
		k.work.alarm = text
		k.tell(message{Kind: kindAlarm, Seq: k.work.seq, Error: text})
	}
}

// unkillable finds a process below this one that may not be signaled, 0 if there is none.
func unkillable() int {
	for _, pid := range descendants(os.Getpid()) {
		if errors.Is(syscall.Kill(pid, 0), syscall.EPERM) {
			return pid
		}
	}
	return 0
}

func owner(pid int) string {
	info, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	if err != nil {
		return "unknown"
	}
	return fmt.Sprint(info.Sys().(*syscall.Stat_t).Uid)
}

// reap waits for exited children. It reports whether the kernel says that none is left.
func (k *keeper) reap() (none bool) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG|syscall.WALL, nil)
		switch {
		case errors.Is(err, syscall.ECHILD):
			return true
		case pid <= 0: // none has ended, or that can't be told
			return false
		case k.work != nil && pid == k.work.pid:
			k.work.reaped, k.work.next = true, 0
			k.tell(message{Kind: kindExited, Seq: k.work.seq, Status: ending(status)})
		}
	}
}

// advance does what is due.
func (k *keeper) advance() {
	if t := k.work; t != nil {
		k.tend(t)
	} else {
		k.reap()
	}
	k.timer.set(k.next())
}

// tend ends the work if it may not go on, and reports its death.
func (k *keeper) tend(t *task) {
	if !t.ending() && k.over() || past(t.killAt) {
		t.doomed = true
	}
	if !k.sweep(t) {
		return
	}
	t.mark(markDead)
	if t.alarm != "" {
		k.tell(message{Kind: kindAlarm, Seq: t.seq})
	}
	k.tell(message{Kind: kindDead, Seq: t.seq, Output: t.output.close()})
	k.work = nil
	t.close()
}

// next is when the keeper has to look again, 0 for not by itself.
func (k *keeper) next() time.Duration {
	switch t := k.work; {
	case t == nil:
		return 0
	case t.ending():
		return max(1, t.next)
	case enforced:
		return earliest(t.killAt, k.due())
	default:
		return t.killAt
	}
}

// due is when the keeper ends the work by itself.
func (k *keeper) due() time.Duration {
	if k.doubted {
		return boottime.Now() + settle
	}
	return k.lease + keeperLag
}

// over reports whether the lease has ended without the guard's having acted. After a pause of this process an extension may
// wait to be read, so the guard is given another moment then.
func (k *keeper) over() bool {
	if !enforced || boottime.Now() < k.lease+keeperLag {
		return false
	}
	if !k.doubted {
		k.doubted = true
		return false
	}
	return true
}

// sweep kills what is left of the work, once it is doomed or its main process has ended, and reports whether the kernel
// says that nothing is: no child of this process, which adopts all orphans, and nothing in the control group (A3).
func (k *keeper) sweep(t *task) (dead bool) {
	for range eagerTries {
		if !t.ending() || boottime.Now() < t.next {
			return false
		}
		none := k.reap()
		if t.reaped && none && !t.group.populated() {
			return true
		}
		k.kill(t)
		t.tries++
		if t.tries > eagerTries {
			t.later()
		}
	}
	t.later()
	return false
}

// kill kills what can be found. Nothing is opened before all that needs no opening was done.
func (k *keeper) kill(t *task) {
	t.group.kill()
	if k.first {
		syscall.Kill(-1, syscall.SIGKILL) // all of the namespace but this process
	}
	if !t.reaped {
		syscall.Kill(-t.pid, syscall.SIGKILL)
	}
	denied := 0
	end := func(pid int) {
		if group, err := syscall.Getpgid(pid); err == nil && group == t.pid {
			syscall.Kill(-t.pid, syscall.SIGKILL) // its members can't fork meanwhile
		}
		if errors.Is(syscall.Kill(pid, syscall.SIGKILL), syscall.EPERM) {
			denied = pid
		}
	}
	k.children.each(end)
	if t.tries > 0 {
		for _, pid := range descendants(os.Getpid()) {
			end(pid)
		}
	}
	switch now := boottime.Now(); {
	case t.tries == 0:
		t.killing = now
	case t.tries <= eagerTries:
	case denied != 0:
		k.raise(denied)
	case now-t.killing > undying:
		k.alarm(fmt.Sprintf("some of the work has not ended %s after it was killed, as processes in state D do not: see 'ps axo pid,stat,wchan,args'", undying))
	}
}

// tell sends the guard a message. One that takes nothing is stopped or hung: it is not waited for.
func (k *keeper) tell(m message) {
	if !k.orphaned {
		writeFrame(instant{k.guard}, m)
	}
}

// mark keeps what is known of the work for those who come when all others are dead.
func (t *task) mark(text string) {
	if t.marks != nil {
		t.marks.WriteAt([]byte(text), 0)
	}
}
