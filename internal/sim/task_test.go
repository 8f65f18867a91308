package sim

import (
	"errors"
	"time"

	"zkelectd/internal/transition"
)

func (l *loop) preStart(term int64) {
	h := l.h
	if !h.w.chance(h.w.traits.hooks) {
		l.inline = append(l.inline, transition.HookDone{})
		return
	}
	if h.clock() >= h.lease || h.unguarded {
		l.inline = append(l.inline, transition.HookDone{Err: errors.New("the lease is over")})
		return
	}
	h.startWork(term, true)
	w := h.work
	fails := h.w.chance(h.w.traits.failing)
	h.w.after(h.w.between(0, time.Second), func() {
		if h.work != w || w.dying {
			return
		}
		h.work = nil
		h.w.check.ends(h)
		h.process(l.s, func() {
			var err error
			if fails {
				err = errors.New("hook failed")
			}
			l.step(transition.HookDone{Err: err})
		})
		if !h.alive && h.closer != nil {
			h.cleanUp()
		}
	})
}

// forever is how long post_stop takes for a leader that never releases.
const forever = time.Hour

func (l *loop) postStop() {
	undoing := l.h.undoing
	if undoing == forever && l.snap.Elected.Record.Incarnation == l.self.Name {
		undoing = 10 * time.Second // it is not asked to release: its hook is stopped
	}
	if undoing == 0 {
		l.inline = append(l.inline, transition.HookDone{})
		return
	}
	l.h.w.after(undoing, func() { l.h.process(l.s, func() { l.step(transition.HookDone{}) }) })
}

func (l *loop) startChild(term int64) {
	h, t := l.h, &l.h.w.traits
	switch {
	case h.clock() >= h.lease || h.unguarded:
		l.inline = append(l.inline, transition.ChildFailed{Err: errors.New("the lease is over")})
		return
	case h.refuses:
		l.inline = append(l.inline, transition.ChildFailed{Err: errors.New("cannot be started")})
		return
	}
	l.early = false
	h.startWork(term, false)
	l.inline = append(l.inline, transition.ChildStarted{})
	w := h.work
	if !h.stalls {
		h.w.after(h.w.between(0, t.ready), func() {
			if h.work == w {
				h.process(l.s, func() { l.step(transition.ChildReady{}) })
			}
		})
	}
	if h.w.chance(t.dying) {
		h.w.after(h.w.between(0, 2*time.Second), func() {
			if h.work == w {
				h.dead("exited")
			}
		})
	}
}

// stopTask asks the child to stop; a stubborn one is killed after grace.
func (l *loop) stopTask(grace time.Duration) {
	h := l.h
	w := h.work
	if w == nil {
		return
	}
	if l.h.w.broken.name == releaseEarly && !w.hook {
		l.childDead("is taken to be dead")
	}
	if w.hook || grace <= 0 {
		h.kill()
		return
	}
	if h.stubborn {
		h.w.at(h.when(h.clock()+grace), func() {
			if h.work == w {
				h.kill()
			}
		})
		return
	}
	h.w.after(h.w.between(0, min(grace, h.stop/2)), func() {
		if h.work == w && !w.dying {
			h.dead("stopped")
		}
	})
}

// childDead reports the end of the child, once.
func (l *loop) childDead(how string) {
	if l.early {
		return
	}
	l.early = l.h.work != nil
	l.inline = append(l.inline, transition.ChildDead{Status: how})
	if !l.early {
		next := l.inline[len(l.inline)-1]
		l.inline = l.inline[:len(l.inline)-1]
		l.step(next)
	}
}
