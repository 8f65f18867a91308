package guard

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"syscall"
	"time"

	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/sys/harden"
)

// Resources that package harden reserves for the guard and the keeper.
const (
	// with more, each message would wake a thread in vain that looks for work; a call that waits leaves its processor
	// to others
	guardProcs = 1
	// the thread that starts a program keeps its processor until the program is executed, which a disk may delay
	keeperProcs  = 2
	guardThreads = 8       // at most six were ever seen in use
	guardHeap    = 1 << 20 // the garbage collector runs before this is used up, see guardGC
	guardGC      = 25      // percent; the first collection starts at this share of 4 MB
)

// protect makes sure that the guard can kill without the disk and without new memory or threads. It is called before
// the first daemon is started. The keeper protects itself, see protectKeeper.
func (g *guard) protect() {
	debug.SetGCPercent(guardGC)
	harden.Protect(harden.Options{
		OOMScore: harden.OOMScoreGuard, Procs: guardProcs, Threads: guardThreads, Heap: guardHeap, Log: g.log,
		Rehearse: func() {
			if err := g.rehearse(); err != nil {
				g.log.Warn("cannot rehearse a kill: the first one may need the disk", "err", err)
			}
		},
	})
	g.makeRealtime(os.Getpid())
}

// makeRealtime gives a process a real-time priority, if the options request it. On a busy host a process with normal
// priority may have to wait for a processor, and that time counts against K (docs/protocol.md), the time within which a
// kill must succeed.
func (g *guard) makeRealtime(pid int) {
	if !g.opt.Realtime {
		return
	}
	if err := harden.SetRealtime(pid); err != nil {
		g.log.Warn("cannot apply a real-time priority: on a busy host a kill may take longer", "pid", pid, "err", err)
	}
}

// Limits of the rehearsal.
const (
	rehearsalLease   = 10 * time.Millisecond
	rehearsalTimeout = 5 * time.Second
	noPid            = 1 << 30 // above any real pid: nothing can be signaled by it
)

// rehearse executes the code for the end of a lease, in guard and keeper, from the last lease message to the proof of
// death. The work is a process that only waits. Afterwards the code and data of a kill are in memory and can be locked.
func (g *guard) rehearse() error {
	near, far, err := socketpair()
	if err != nil {
		return err
	}
	defer far.Close() // ends readFrames
	log := g.log
	g.log = slog.New(slog.NewTextHandler(io.Discard, nil))
	d := &daemon{pid: noPid, socket: near, out: newOutbox(near, daemonOutbox)}
	l := &leadership{id: 1, name: "rehearsal", daemon: d, place: g.board.place(1, 1)}
	l.place.setDeadline(boottime.Now() + time.Hour)
	g.daemon, g.leaderships = d, append(g.leaderships, l)
	done := make(chan struct{})
	go func() {
		defer close(done)
		readFrames(near, g.fromDaemon, incoming{daemon: d})
	}()
	defer func() {
		near.Close()
		for waiting := true; waiting; {
			select {
			case <-g.fromDaemon:
			case <-done:
				waiting = false
			}
		}
		g.returnKeeper(l)
		g.log, g.daemon = log, nil
		if l.work == nil { // otherwise it is still killed
			g.leaderships = nil
		}
	}()
	path, env := harden.RehearsalProcess()
	g.prepare(message{Leadership: l.id, Spec: &Spec{Path: path, Argv: []string{"zkelectd"}, Env: env,
		StopSignal: syscall.SIGTERM}})
	if l.work == nil || !l.work.prepared {
		return errors.New("the work cannot be prepared")
	}
	g.start(l.work)
	l.place.setDeadline(boottime.Now() + rehearsalLease)
	if err := writeFrame(far, message{Kind: kindLease}); err != nil {
		return err
	}
	descendants(os.Getpid())
	g.checkOrphans()
	return g.runUntilWorkEnds(l)
}

// runUntilWorkEnds runs the guard's event loop until no work is left.
func (g *guard) runUntilWorkEnds(l *leadership) error {
	limit := time.NewTimer(rehearsalTimeout)
	defer limit.Stop()
	for l.work != nil {
		if !g.step(limit.C) {
			return fmt.Errorf("process %d did not die within %s", l.work.pid, rehearsalTimeout)
		}
	}
	return nil
}
