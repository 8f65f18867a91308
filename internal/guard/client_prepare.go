package guard

import (
	"fmt"
	"reflect"
	"time"
)

// preparation is work that is prepared before it may be started: nothing of it runs, and the guard starts it only under a lease.
type preparation struct {
	work *Work
	spec *Spec
	done chan struct{} // closed once it is prepared, or has failed
	err  error         // why it has failed; set before done is closed
	gone chan struct{} // closed once it was discarded, and the guard knows that
}

// Prepare prepares the start of work, for which there need not be a lease yet. It does not wait. The next Start uses that if it starts
// the same work. Each other Start, and Discard, discard it.
func (l *Leadership) Prepare(opt WorkOptions) {
	l.starting.Lock()
	defer l.starting.Unlock()
	l.discard()
	if p := l.last; p != nil {
		select {
		case <-p.gone:
		default:
			return // the guard would refuse it
		}
	}
	w, spec, err := l.newWork(opt)
	if err != nil || l.begin(w) != nil {
		return // Start reports it
	}
	p := &preparation{work: w, spec: spec, done: make(chan struct{}), gone: make(chan struct{})}
	l.prepared = p
	go func() { // ends with the guard's answer, or without a guard
		defer close(p.done)
		p.err = w.prepare(spec)
	}()
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
	go func() { // ends with the guard's answer, or without a guard
		defer close(p.gone)
		if <-p.done; p.err == nil {
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
		<-p.done
		select {
		case <-p.work.dead: // its keeper has died
		default:
			if p.err == nil && reflect.DeepEqual(p.spec, spec) {
				l.prepared = nil
				return p
			}
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
