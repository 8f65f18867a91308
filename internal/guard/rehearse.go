package guard

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"syscall"
	"time"

	"zkelectd/internal/boottime"
	"zkelectd/internal/harden"
)

// What guard and keeper need to kill: see package harden.
const (
	guardProcs   = 2       // its own goroutine, and what reads and logs beside it
	guardThreads = 8       // at most six were seen at work
	guardHeap    = 1 << 20 // collected before it is used up, see guardGC
	guardGC      = 25      // percent; the first collection is due at that share of 4 MB
)

// protect keeps the guard able to kill without the disk and without new memory or threads; the keeper has done so itself.
// No daemon runs yet.
func (g *guard) protect() {
	debug.SetGCPercent(guardGC)
	harden.Protect(harden.Options{
		OOMScore: harden.OOMScoreGuard, Procs: guardProcs, Threads: guardThreads, Heap: guardHeap, Log: g.log,
		Rehearse: func() {
			if err := g.rehearse(); err != nil {
				g.log.Warn("the way to a kill could not be rehearsed: a first kill may need the disk", "err", err)
			}
		},
	})
	g.hasten(os.Getpid())
}

// hasten gives a process a real-time priority, if that is asked for: where many programs compete for the processors, an
// ordinary process waits for its turn, and that time is part of K.
func (g *guard) hasten(pid int) {
	if !g.opt.Realtime {
		return
	}
	if err := harden.SetRealtime(pid); err != nil {
		g.log.Warn("guard.realtime is not in force: on a busy host a kill may take longer", "pid", pid, "err", err)
	}
}

// protectKeeper is the keeper's part. What is not permitted the guard reports.
func protectKeeper() {
	debug.SetGCPercent(guardGC)
	harden.Protect(harden.Options{
		OOMScore: harden.OOMScoreGuard, Procs: guardProcs, Threads: guardThreads, Heap: guardHeap, Log: slog.New(slog.DiscardHandler),
	})
}

// Limits of the rehearsal.
const (
	rehearsalLease = 10 * time.Millisecond
	rehearsalMost  = 5 * time.Second
	noPid          = 1 << 30 // above any process id: the daemon of the rehearsal must not be signaled
)

// rehearse plays the end of a lease, in guard and keeper, from the last message to the proof of death, on a process that
// only waits.
func (g *guard) rehearse() error {
	near, far, err := socketpair()
	if err != nil {
		return err
	}
	defer far.Close() // ends read
	log := g.log
	g.log = slog.New(slog.NewTextHandler(io.Discard, nil))
	d := &daemon{pid: noPid, socket: near}
	g.daemon, g.lease = d, boottime.Now()+time.Hour
	over := make(chan struct{})
	go func() {
		defer close(over)
		g.read(d)
	}()
	defer func() {
		near.Close()
		for waiting := true; waiting; {
			select {
			case <-g.inbox:
			case <-over:
				waiting = false
			}
		}
		g.log, g.daemon, g.lease = log, nil, 0
	}()
	path, env := harden.RehearsalProcess()
	g.start(message{Kind: kindStart, Spec: &Spec{Path: path, Argv: []string{"zkelectd"}, Env: env, StopSignal: syscall.SIGTERM}})
	if err := writeFrame(far, message{Kind: kindLease, At: boottime.Now() + rehearsalLease}); err != nil {
		g.lease = 0
	}
	descendants(os.Getpid())
	g.children.each(func(int) {})
	return g.play()
}

// play turns the guard's loop until no work is left.
func (g *guard) play() error {
	limit := time.NewTimer(rehearsalMost)
	defer limit.Stop()
	for g.work != nil {
		select {
		case sig := <-g.signals:
			g.signaled(sig.(syscall.Signal))
		case l := <-g.inbox:
			g.receive(l)
		case l := <-g.kept:
			g.hear(l)
		case <-g.timer.c:
		case <-limit.C:
			return fmt.Errorf("process %d did not die within %s", g.work.pid, rehearsalMost)
		}
		g.advance()
	}
	return nil
}
