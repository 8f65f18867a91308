package group

import (
	"errors"
	"sync"

	"zkelectd/internal/transition"
)

// ErrNoWork is the error for a value of work that does not lead here.
var ErrNoWork = errors.New("this daemon does not lead in that term")

// publisher passes the values that work publishes on to the loop; of those that it has not taken, the last one
// counts. The zero value accepts none.
type publisher struct {
	mu    sync.Mutex
	term  int64              // whose work may publish; 0 for none
	given transition.Publish // zero if there is none
}

// acceptValues makes the publisher accept values of the term that is held, until its work is to stop.
func (m *Member) acceptValues() {
	p, term := &m.group.publisher, m.machine.Term()
	switch m.machine.Phase() {
	case transition.Stopping, transition.Releasing, transition.Ended:
		term = 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.term = term
}

func (p *publisher) give(term int64, value string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.term == 0 || term != 0 && term != p.term {
		return ErrNoWork
	}
	p.given = transition.Publish{Term: p.term, Value: value}
	return nil
}

func (p *publisher) take() (v transition.Publish) {
	p.mu.Lock()
	defer p.mu.Unlock()
	v, p.given = p.given, transition.Publish{}
	return v
}

// publishValue publishes a value of the work. Work that is being stopped has nothing to publish any more.
func (m *Member) publishValue(term int64, value string) { _ = m.group.Publish(term, value) }
