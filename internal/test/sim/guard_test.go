package sim

import (
	"errors"
	"time"

	"zkelectd/internal/transition"
)

// work is the leader-only work on a host.
type work struct {
	l     *loop // the instance that started it
	term  int64
	hook  bool
	dying bool
	hung  bool // it does nothing any more, but nothing proves that
	run   int  // the run of the daemon that started it

	promotion bool     // it is a run of promotable work as the leader's
	proc      *process // nil until the standby is warm
	leased    bool     // the guard enforces its lease
	ordered   bool     // it has been told to lead,
	promoted  bool     // and has answered
}

// crash kills the daemon. The guard, if it is alive, ends the work, closes the session and starts the daemon again.
func (h *host) crash(guarded bool) {
	if !h.alive {
		return
	}
	guarded = guarded && !h.unguarded
	h.thaw()
	h.w.log("%s: the daemon dies, guarded: %v", h.id, guarded)
	h.alive, h.paused, h.waiting = false, false, nil
	for _, m := range h.members {
		m.endFencing()
	}
	s := h.session
	if s != nil {
		s.ended = "dead"
		s.stopHearing()
		h.endInstances()
	}
	h.stopStandbys()
	if !guarded {
		for _, m := range h.members {
			if !h.unguarded {
				m.app = nil // the host is lost
			}
			if m.work != nil {
				m.dead("died with its host")
			}
		}
		h.w.after(h.w.between(0, 2*h.timeout), h.start)
		return
	}
	h.closer = s
	if s != nil && h.w.broken.name == finalEarly {
		h.closeSession(s)
	}
	if !h.working() {
		h.cleanUp()
		return
	}
	for _, m := range h.members {
		if h.w.broken.unleased(m.work, outlivesDaemon) {
			m.workOver("outlives its daemon")
			continue
		}
		m.kill()
	}
}

// crashForGood loses the host, and never starts it again.
func (h *host) crashForGood() {
	h.crash(false)
	h.alive = true
}

// killGuard kills the guard: the work dies with it, and the daemon exits once it has released.
func (h *host) killGuard() {
	if !h.alive || h.unguarded {
		return
	}
	h.w.log("%s: the guard dies", h.id)
	h.unguarded = true
	h.stopStandbys()
	for _, m := range h.members {
		m.endFencing()
		if w := m.work; w != nil && !w.dying {
			w.dying = true
			h.w.after(h.w.between(0, 20*time.Millisecond), func() {
				if m.work == w {
					m.dead("died with its guard")
				}
			})
		}
	}
	h.leave()
}

// leave makes the daemon release and exit.
func (h *host) leave() {
	h.thaw()
	if h.leaving = true; h.session == nil {
		h.alive = false
		h.w.after(h.w.between(0, 2*h.timeout), h.start)
		return
	}
	for _, m := range h.residents {
		if m.instance != nil {
			m.instance.quit()
		}
	}
	s := h.session
	h.w.after(0, func() {
		h.process(s, func() {
			if h.over() {
				h.sessionOver()
			}
		})
	})
}

// quit makes an instance release and end.
func (in *instance) quit() {
	in.beginEnd()
	for _, l := range in.loops {
		l.quit()
	}
}

// quit makes a loop release and end.
func (l *loop) quit() {
	l.m.w.after(l.m.w.between(0, 20*time.Millisecond), func() { l.process(func() { l.step(l.quitEvent()) }) })
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
	for _, m := range h.members {
		m.lease = 0
	}
	h.w.after(h.w.between(100*time.Millisecond, 300*time.Millisecond), h.start)
}

// pause stops the daemon with SIGSTOP; the guard and the child continue.
func (h *host) pause(d time.Duration) {
	if !h.alive || h.paused {
		return
	}
	run := h.run
	h.paused = true
	if h.session != nil {
		h.session.stopHearing()
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
	if h.session != nil {
		if s := h.session; h.w.tree.Alive(s.id) {
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
func (m *member) extend(deadline time.Duration) {
	m.lease = deadline
	if deadline == 0 {
		return
	}
	m.g.check.leaseEnd = m.when(deadline)
	m.w.at(m.when(deadline)+m.guardDelay(time.Duration(killTakes*float64(m.timeout)/m.rate)), func() {
		if m.lease == deadline && m.clock() >= m.lease {
			m.endFencing()
		}
		if m.lease == deadline && m.work != nil && m.clock() >= m.lease && (!m.work.promotion || m.work.leased) {
			m.w.log("%s: the lease ends, the guard kills the work", m.name)
			m.kill()
		}
	})
}

// startWork starts leader-only work.
func (l *loop) startWork(term int64, hook bool) {
	m := l.m
	if m.work != nil {
		m.g.fail("S1: %s starts work twice", m.name)
		return
	}
	m.work = &work{l: l, term: term, hook: hook, run: m.run}
	m.g.check.workStarted(m)
	m.r.checkWork(m)
}

// killTakes is how long a kill of the work may take, as a share of T. K has to cover it, whatever the product computes.
const killTakes = 0.15

// kill ends the work.
func (m *member) kill() {
	w := m.work
	if w == nil || w.dying {
		return
	}
	if w.awaits() {
		m.workOver("was not promoted")
		return
	}
	w.dying = true
	most := 10 * time.Millisecond
	if m.w.chance(m.w.traits.slowKill) {
		most = time.Duration(killTakes * float64(m.timeout) / m.rate)
	}
	took := m.w.between(0, most)
	if full := time.Duration(killTakes * float64(m.timeout) / m.rate); m.slowest {
		m.slowest, took = false, full
	} else if m.w.chance(m.w.traits.slowKill / 2) {
		took = most
	}
	if late := m.clock() - m.lease; m.lease > 0 && late > 0 { // a guard that acts late has less time left for the kill
		took = min(took, max(0, time.Duration(killTakes*float64(m.timeout))-late))
	}
	m.w.after(took, func() {
		if m.work == w {
			m.dead("was killed")
		}
	})
}

// dead ends the work.
func (m *member) dead(how string) {
	w := m.work
	if m.freezing && !w.hook && !w.awaits() {
		m.w.faults["work hung"]++
		m.w.log("%s: its work of term %d hangs in the kernel", m.name, w.term)
		w.dying, w.hung = true, true
		m.g.check.ends(m)
		if w.proc != nil {
			w.proc.hung, w.proc.leads = true, nil
		}
		return
	}
	if w.proc != nil {
		m.standby.ended(w.proc)
	}
	m.workOver(how)
}

// workOver handles that the work is not leader-only any more: it is dead, or a standby.
func (m *member) workOver(how string) {
	w := m.work
	m.work = nil
	m.w.log("%s: its work of term %d %s", m.name, w.term, how)
	if !w.promotion {
		m.g.check.ends(m)
	}
	if !m.alive {
		if m.closer != nil && !m.working() {
			m.cleanUp()
		}
		return
	}
	if w.run != m.run || m.session == nil {
		return
	}
	l := w.l
	l.changed()
	if l.in.abandoned && m.instance == l.in {
		l.in.ended()
	}
	l.process(func() {
		if w.hook {
			l.step(transition.HookDone{Err: errors.New("hook " + how)})
		} else {
			l.childDead(how)
		}
	})
}
