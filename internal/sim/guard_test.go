package sim

import (
	"errors"
	"time"

	"zkelectd/internal/transition"
)

// work is the leader-only work on a host.
type work struct {
	h     *host
	term  int64
	hook  bool
	dying bool
	run   int // the run of the daemon that started it
}

// crash kills the daemon. The guard, if it is alive, ends the work, closes the session and starts the daemon again.
func (h *host) crash(guarded bool) {
	if !h.alive {
		return
	}
	guarded = guarded && !h.unguarded
	h.w.log("%s: the daemon dies, guarded: %v", h.id, guarded)
	h.alive, h.paused, h.waiting = false, false, nil
	var s *session
	if h.loop != nil {
		s = h.loop.s
		s.ended = "dead"
		s.stopHearing()
		h.loop.close()
		h.loop = nil
	}
	if !guarded {
		if h.work != nil {
			h.dead("died with its host")
		}
		h.w.after(h.w.between(0, 2*h.timeout), h.start)
		return
	}
	h.closer = s
	if s != nil && h.w.broken.name == leaveEarly {
		h.closeSession(s)
	}
	if h.work == nil {
		h.cleanUp()
		return
	}
	h.kill()
}

// killGuard kills the guard: the work dies with it, and the daemon exits once it has released.
func (h *host) killGuard() {
	if !h.alive || h.unguarded {
		return
	}
	h.w.log("%s: the guard dies", h.id)
	h.unguarded = true
	if w := h.work; w != nil && !w.dying {
		w.dying = true
		h.w.after(h.w.between(0, 20*time.Millisecond), func() {
			if h.work == w {
				h.dead("died with its guard")
			}
		})
	}
	h.leave()
}

// leave makes the daemon release and exit.
func (h *host) leave() {
	if h.leaving = true; h.loop == nil {
		h.alive = false
		h.w.after(h.w.between(0, 2*h.timeout), h.start)
		return
	}
	l := h.loop
	h.w.after(h.w.between(0, 20*time.Millisecond), func() { h.process(l.s, func() { l.step(quitEvent) }) })
}

// cleanUp is what the guard does once the daemon and its work are dead, when it gets to it.
func (h *host) cleanUp() {
	if late := h.guardDelay(forever); late > 0 {
		run := h.run
		h.w.after(late, func() {
			if !h.alive && h.run == run {
				h.cleanUp()
			}
		})
		return
	}
	if h.closer != nil {
		h.closeSession(h.closer)
		h.closer = nil
	}
	h.lease = 0
	h.w.after(h.w.between(100*time.Millisecond, 300*time.Millisecond), h.start)
}

// pause stops the daemon with SIGSTOP; the guard and the child continue.
func (h *host) pause(d time.Duration) {
	if !h.alive || h.paused {
		return
	}
	run := h.run
	h.paused = true
	if h.loop != nil {
		h.loop.s.stopHearing()
	}
	// Its last heartbeat was up to T/4 ago, and the guard waits T for the next one.
	h.w.after(h.w.between(h.timeout*3/4, h.timeout)+h.guardDelay(forever), func() {
		if h.alive && h.run == run && h.paused && !h.unguarded {
			h.crash(true)
		}
	})
	h.w.after(d, func() {
		if h.alive && h.run == run && h.paused {
			h.resume()
		}
	})
}

func (h *host) resume() {
	h.w.log("%s: the daemon resumes", h.id)
	h.paused = false
	if h.loop != nil {
		if s := h.loop.s; h.w.tree.Alive(s.id) {
			if s.up && h.net == netFine && !h.w.down {
				s.touch()
			}
		} else {
			h.waiting = append(h.waiting, func() { s.end("expired") })
		}
	}
	waiting := h.waiting
	h.waiting = nil
	for _, do := range waiting {
		do()
	}
}

// extend sets the guard's deadline of the lease.
func (h *host) extend(deadline time.Duration) {
	h.lease = deadline
	if deadline == 0 {
		return
	}
	h.w.at(h.when(deadline)+h.guardDelay(time.Duration(killTakes*float64(h.timeout)/h.rate)), func() {
		if h.lease == deadline && h.work != nil && h.clock() >= h.lease {
			h.w.log("%s: the lease ends, the guard kills the work", h.id)
			h.kill()
		}
	})
}

// startWork starts leader-only work.
func (h *host) startWork(term int64, hook bool) {
	if h.work != nil {
		h.w.fail("S1: %s starts work twice", h.id)
		return
	}
	h.work = &work{h: h, term: term, hook: hook, run: h.run}
	h.w.check.workStarted(h)
}

// killTakes is how long a kill of the work may take, as a share of T. K has to cover it, whatever the product computes.
const killTakes = 0.15

// kill ends the work.
func (h *host) kill() {
	w := h.work
	if w == nil || w.dying {
		return
	}
	w.dying = true
	most := 10 * time.Millisecond
	if h.w.chance(h.w.traits.slowKill) {
		most = time.Duration(killTakes * float64(h.timeout) / h.rate)
	}
	took := h.w.between(0, most)
	if full := time.Duration(killTakes * float64(h.timeout) / h.rate); h.slowest {
		h.slowest, took = false, full
	} else if h.w.chance(h.w.traits.slowKill / 2) {
		took = most
	}
	if late := h.clock() - h.lease; h.lease > 0 && late > 0 { // a guard that acts late has less time left for the kill
		took = min(took, max(0, time.Duration(killTakes*float64(h.timeout))-late))
	}
	h.w.after(took, func() {
		if h.work == w {
			h.dead("was killed")
		}
	})
}

// dead ends the work.
func (h *host) dead(how string) {
	w := h.work
	h.work = nil
	h.w.log("%s: its work of term %d %s", h.id, w.term, how)
	h.w.check.ends(h)
	if !h.alive {
		if h.closer != nil {
			h.cleanUp()
		}
		return
	}
	if w.run != h.run || h.loop == nil {
		return
	}
	l := h.loop
	h.process(l.s, func() {
		if w.hook {
			l.step(transition.HookDone{Err: errors.New("hook " + how)})
		} else {
			l.childDead(how)
		}
	})
}
