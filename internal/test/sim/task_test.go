package sim

import (
	"errors"
	"slices"
	"time"

	"zkelectd/internal/transition"
)

func (l *loop) preStart(term int64) {
	m := l.m
	if !m.w.chance(m.w.traits.hooks) {
		l.inline = append(l.inline, transition.HookDone{})
		return
	}
	if m.clock() >= m.lease || m.unguarded || l.in.refused() {
		l.inline = append(l.inline, transition.HookDone{Err: errors.New("the lease is over")})
		return
	}
	l.startWork(term, true)
	w := m.work
	fails := m.w.chance(m.w.traits.failing)
	m.w.after(m.w.between(0, time.Second), func() {
		if m.work != w || w.dying {
			return
		}
		m.work = nil
		m.g.check.ends(m)
		l.process(func() {
			var err error
			if fails {
				err = errors.New("hook failed")
			}
			l.step(transition.HookDone{Err: err})
		})
		if !m.alive && m.closer != nil && !m.working() {
			m.cleanUp()
		}
	})
}

// forever is how long post_stop takes for a leader that never releases.
const forever = time.Hour

// neverReleases reports whether post_stop of one of the host's groups never ends.
func (h *host) neverReleases() bool {
	return slices.ContainsFunc(h.members, func(m *member) bool { return m.undoing == forever || m.freezing })
}

func (l *loop) postStop() {
	undoing := l.m.undoing
	if undoing == forever && l.snap.Elected.Record.Incarnation == l.self.Name {
		undoing = 10 * time.Second // it is not asked to release: its hook is stopped
	}
	if undoing == 0 {
		l.inline = append(l.inline, transition.HookDone{})
		return
	}
	l.m.w.after(undoing, func() { l.process(func() { l.step(transition.HookDone{}) }) })
}

func (l *loop) startChild(term int64) {
	m := l.m
	switch {
	case m.clock() >= m.lease || m.unguarded || l.in.refused():
		l.inline = append(l.inline, transition.ChildFailed{Err: errors.New("the lease is over")})
		return
	case m.standby != nil:
		l.early = false
		l.promote(term)
		return
	case m.refuses:
		l.inline = append(l.inline, transition.ChildFailed{Err: errors.New("cannot be started")})
		return
	}
	l.early = false
	if m.work == nil { // else it runs already, by a breakage
		l.startWork(term, false)
	}
	l.inline = append(l.inline, transition.ChildStarted{})
	l.watch(m.work)
}

// watch reports that the child is ready, and may have it exit.
func (l *loop) watch(w *work) {
	m, t := l.m, &l.m.w.traits
	if m.w.values {
		l.publish(w)
	}
	if !m.stalls {
		m.w.after(m.w.between(0, t.ready), func() {
			if m.work == w {
				l.process(func() { l.step(transition.ChildReady{}) })
			}
		})
	}
	if m.w.chance(t.dying) {
		m.w.after(m.w.between(0, 2*time.Second), func() {
			if m.work == w {
				m.dead("exited")
			}
		})
	}
}

// publish lets the child change its value again and again.
func (l *loop) publish(w *work) {
	m := l.m
	m.w.after(m.w.between(0, 2*time.Second), func() {
		if m.work != w {
			return
		}
		l.process(func() { l.step(transition.ValueGiven{Term: l.machine.Term(), Value: m.clock().String()}) })
		l.publish(w)
	})
}

// stopTask asks the child to stop; a stubborn one is killed after grace.
func (l *loop) stopTask(grace time.Duration) {
	m := l.m
	w := m.work
	if !l.in.refused() {
		m.endFencing()
	}
	if w == nil || l.in.refused() {
		return
	}
	if w.promotion && !w.dying {
		m.demote(w, grace)
		return
	}
	if l.m.w.broken.name == releaseEarly && !w.hook {
		l.childDead("is taken to be dead")
	}
	if w.hook || grace <= 0 {
		m.kill()
		return
	}
	if m.stubborn {
		m.w.at(m.when(m.clock()+grace), func() {
			if m.work == w {
				m.kill()
			}
		})
		return
	}
	m.w.after(m.w.between(0, min(grace, m.stop/2)), func() {
		if m.work == w && !w.dying {
			m.dead("stopped")
		}
	})
}

// childDead reports the end of the child, once.
func (l *loop) childDead(how string) {
	if l.early {
		return
	}
	l.early = l.m.work != nil
	l.inline = append(l.inline, transition.ChildDead{Status: how, Unused: how == "was not promoted"})
	if !l.early {
		next := l.inline[len(l.inline)-1]
		l.inline = l.inline[:len(l.inline)-1]
		l.step(next)
	}
}
