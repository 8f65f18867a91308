package guard

import (
	"fmt"
	"reflect"
	"slices"
	"time"
)

// preparation is work that is prepared before it may be started: nothing of it runs, and the guard starts it only under a lease.
type preparation struct {
	work *Work
	spec *Spec
	done chan struct{} // closed once it is prepared with the environment of spec, or has failed
	err  error         // why it has failed; set before done is closed
	gone chan struct{} // closed once it was discarded, and the guard knows that
}

// PrepareHeir is Prepare for work that may never start. It does nothing if that would keep one more process alive.
func (l *Leadership) PrepareHeir(opt WorkOptions) {
	if l.c.Containment() == CgroupContainment {
		l.Prepare(opt)
	}
}

// Prepare prepares the start of work, for which there need not be a lease yet. It does not wait. The next Start uses that if it starts
// the same work. Each other Start, and Discard, discard it. A second Prepare for the same work only changes the environment.
func (l *Leadership) Prepare(opt WorkOptions) {
	l.starting.Lock()
	defer l.starting.Unlock()
	w, spec, err := l.newWork(opt)
	if err == nil && l.adapt(spec) {
		return
	}
	l.discard()
	if p := l.last; p != nil {
		select {
		case <-p.gone:
		default:
			return // the guard would refuse it
		}
	}
	if err != nil || l.begin(w) != nil {
		return // Start reports it
	}
	done := make(chan struct{})
	p := &preparation{work: w, spec: spec, done: done, gone: make(chan struct{})}
	l.prepared = p
	go func() { // ends with the guard's answer, or without a guard
		defer close(done) // adapt replaces p.done
		p.err = w.prepare(spec)
	}()
}

// adapt gives the prepared work the environment of spec. It returns false if other work is prepared, or none. The caller must hold
// starting.
func (l *Leadership) adapt(spec *Spec) bool {
	p := l.prepared
	if p == nil || p.failed() {
		return false
	}
	same := *spec
	same.Env = p.spec.Env
	switch {
	case !reflect.DeepEqual(p.spec, &same):
		return false
	case slices.Equal(p.spec.Env, spec.Env):
		return true
	}
	before, next := p.done, make(chan struct{})
	p.spec, p.done = spec, next
	go func() { // ends when the preparation does
		defer close(next)
		if <-before; p.err == nil {
			p.work.setEnv(spec.Env)
		}
	}()
	return true
}

// failed reports whether it is known that the work cannot be started any more.
func (p *preparation) failed() bool {
	select {
	case <-p.work.dead: // its keeper has died
		return true
	default:
	}
	select {
	case <-p.done:
		return p.err != nil
	default:
		return false
	}
}

// Discard discards work that was prepared and not started. It does not wait.
func (l *Leadership) Discard() {
	l.starting.Lock()
	defer l.starting.Unlock()
	l.discard()
}

// discard is Discard for a caller that holds starting.
func (l *Leadership) discard() {
	p := l.prepared
	if p == nil {
		return
	}
	l.prepared, l.last = nil, p
	done := p.done
	go func() { // ends with the guard's answer, or without a guard
		defer close(p.gone)
		if <-done; p.err == nil {
			p.work.Kill()
			<-p.work.dead
		}
	}()
}

// takePrepared returns what was prepared for work with that specification; nil if there is nothing. Other work that was prepared is
// gone then.
func (l *Leadership) takePrepared(spec *Spec) *preparation {
	l.starting.Lock()
	defer l.starting.Unlock()
	if p := l.prepared; p != nil {
		l.adapt(spec)
		<-p.done
		if !p.failed() && reflect.DeepEqual(p.spec, spec) {
			l.prepared = nil
			return p
		}
		l.discard()
	}
	if p := l.last; p != nil {
		p.awaitGone()
	}
	return nil
}

// awaitGone waits until the guard knows that this was discarded. If that takes too long, it gives up on the guard.
func (p *preparation) awaitGone() {
	limit := time.NewTimer(startTimeout)
	defer limit.Stop()
	select {
	case <-p.gone:
		return
	case <-limit.C:
	}
	p.work.c.loseGuard(fmt.Errorf("%w: it does not discard work that was prepared", ErrLost))
	<-p.gone
}
