package guard

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"zkelectd/internal/sys/boottime"
)

// ErrAbandoned is the error of a leadership that was abandoned or closed.
var ErrAbandoned = errors.New("the leadership was abandoned")

// Leadership is the daemon's side of what one instance of a group may run: at most one piece of work at a time, under a
// lease of its own. What happens to one leadership does not affect another. It is safe for concurrent use.
type Leadership struct {
	c    *Client
	id   int
	file int // the number in the names of its files, which no other daemon's leadership has
	name string
	dead chan struct{} // see Dead

	// updating is held while the hooks, the release or the work change, see [Client].
	updating sync.Mutex
	unsaved  error // why the file is older than that; guarded by updating

	// The client's mu guards the following.
	abandoned  bool
	closed     bool
	gone       bool          // dead is closed
	confirmed  chan struct{} // closed when the guard confirms that it has read the board; then there is another one
	running    *Work
	unkillable string
	place      place // of the lease
	// if the guard has not reported by then that it kills the work, it is lost; 0 before the deadline
	overdue   time.Duration
	noticed   time.Duration // how long after the deadline this process set overdue
	withdrawn time.Duration // the lease that SetLease(0) has withdrawn; 0 for none
	hooks     []Spec
	release   json.RawMessage
}

// NewLeadership returns the leadership of a new instance of a group. Logs refer to it by name, and while work of an
// earlier instance with the same name still runs, the guard starts none. It must be closed.
func (c *Client) NewLeadership(name string) *Leadership { return c.newLeadership(name, false) }

// NewStandby returns a leadership for the promotable work of a group, in all of its slots. It runs beside those of the
// group's instances, which run hooks, and outlasts them. Its lease is [Forever] while the work is a standby. It must be
// closed.
func (c *Client) NewStandby(name string) *Leadership { return c.newLeadership(name, true) }

func (c *Client) newLeadership(name string, standby bool) *Leadership {
	c.writing.Lock() // the guard expects growing ids
	defer c.writing.Unlock()
	c.mu.Lock()
	c.leadership++
	l := &Leadership{c: c, id: c.leadership, file: c.firstFile + c.leadership, name: name,
		dead: make(chan struct{}), confirmed: make(chan struct{})}
	l.place = c.board.place(c.freePlace(), l.id)
	l.place.setDeadline(0)
	c.leaderships[l.id] = l
	c.mu.Unlock()
	c.write(message{Kind: kindOpen, Leadership: l.id, Name: name, Standby: standby, Place: l.place.index})
	return l
}

// freePlace returns the index of a place on the board that no leadership has. The guard refuses a leadership if there
// is none. The caller must hold mu.
func (c *Client) freePlace() int {
	var taken [boardPlaces]bool
	for _, l := range c.leaderships {
		taken[l.place.index] = true
	}
	return 1 + slices.Index(taken[1:], false)
}

// Owners returns the guard and the daemon, which is this process.
func (l *Leadership) Owners() (guard, daemon Process) { return l.c.owners[0], l.c.owners[1] }

// SetLease allows work until deadline, a reading of CLOCK_BOOTTIME; 0 allows none, and kills the work. A caller that
// shortens a lease must call it from one goroutine only, so that an older deadline is not set after the shorter one.
// The client enforces a shorter deadline from now on, even if the guard does not read it.
func (l *Leadership) SetLease(deadline time.Duration) {
	c := l.c
	c.mu.Lock()
	if l.abandoned {
		c.mu.Unlock()
		return
	}
	last := l.place.deadline()
	l.place.setDeadline(deadline)
	if deadline < last {
		l.overdue = 0
	}
	switch {
	case deadline != 0:
		l.withdrawn = 0
	case last != 0:
		l.withdrawn = last
	}
	w := l.running
	// The guard has to act at each renewal for a unit, whose control group may have been created, and for a watchdog
	// device. What it enforces for a standby is not taken for an earlier lease later.
	tell := last == 0 || deadline < last || deadline == Forever || w != nil && w.unit != nil || c.usesDevice
	kill := deadline == 0 && w != nil && w.startSent
	c.armTimer()
	c.mu.Unlock()
	if tell {
		c.send(message{Kind: kindLease})
	}
	if kill { // also if there is another lease before the guard has read that there is none
		w.Kill()
	}
}

// AwaitLease waits until the guard enforces the lease since, or a later value of it. From then on it kills the work at
// its end, whatever this process does. It returns an error if that is over.
func (l *Leadership) AwaitLease(ctx context.Context, since time.Duration) error {
	since = since.Truncate(time.Microsecond) // as on the board
	return l.awaitGuard(ctx, func() (bool, error) {
		at, wanted := l.place.enforced(), l.place.deadline()
		if wanted <= boottime.Now() {
			return false, errNoLease
		}
		return at >= min(since, wanted) && at <= wanted, nil
	})
}

// awaitGuard waits until done returns true or an error. It asks again whenever the guard confirms that it has read
// the board, with the client's mu locked.
func (l *Leadership) awaitGuard(ctx context.Context, done func() (bool, error)) error {
	for {
		l.c.mu.Lock()
		confirmed := l.confirmed
		is, err := done()
		l.c.mu.Unlock()
		if is || err != nil {
			return err
		}
		select {
		case <-confirmed:
		case <-ctx.Done():
			return ctx.Err()
		case <-l.c.ctx.Done():
			return l.c.Err()
		}
	}
}

// Confirm waits until the guard has read everything that was sent before. It returns an error if the guard may ignore
// it, because this leadership or the guard is over, or this daemon is too late for the guard; or if the next start,
// which may read the file instead, would find an older release in it.
func (l *Leadership) Confirm(ctx context.Context) error {
	l.updating.Lock()
	err := l.unsaved
	if err != nil { // there may be room again
		err = l.write()
	}
	l.updating.Unlock()
	if err != nil {
		return err
	}
	c := l.c
	c.writing.Lock()
	c.write(message{Kind: kindLease}) // which the guard answers, in order
	asked := c.asked
	c.writing.Unlock()
	return l.awaitGuard(ctx, func() (bool, error) {
		if l.abandoned {
			return false, ErrAbandoned
		}
		return c.answered >= asked, nil
	})
}

// Lease returns the lease that was set last, and EnforcedLease the one that the guard enforces; 0 for none.
func (l *Leadership) Lease() time.Duration { return l.place.deadline() }

// EnforcedLease is described with Lease.
func (l *Leadership) EnforcedLease() time.Duration { return l.place.enforced() }

// SetRelease sets the transaction that releases this leadership. If the daemon dies, the guard sends it before it
// closes the session; nil for none.
func (l *Leadership) SetRelease(tx json.RawMessage) {
	l.update(func() message {
		l.release = tx
		return message{Kind: kindRelease, Release: tx}
	})
}

// SetPendingHooks sets the hooks that have to run after the work if the daemon dies, or abandons this leadership,
// before it runs them (A5 in docs/protocol.md). The guard runs them; if the guard is dead too, the next start or
// 'zkelectd release' does. An error means that the files, which the latter two read, could not be written.
func (l *Leadership) SetPendingHooks(hooks ...Spec) error {
	return l.update(func() message {
		l.hooks = hooks
		return message{Kind: kindPendingHooks, PendingHooks: hooks}
	})
}

// update changes what is left to do after the daemon's death, sends the resulting message unless it is empty, and
// writes the file. change is called with the client's mu locked.
func (l *Leadership) update(change func() message) error {
	l.updating.Lock()
	defer l.updating.Unlock()
	l.c.mu.Lock()
	if l.abandoned {
		l.c.mu.Unlock()
		return ErrAbandoned
	}
	m := change()
	l.c.mu.Unlock()
	if m.Kind != "" {
		m.Leadership = l.id
		l.c.send(m)
	}
	return l.save()
}

// save writes the leadership's file. The caller must hold updating.
func (l *Leadership) save() error { return l.c.logUnsaved(l.write()) }

// write is save without a message.
func (l *Leadership) write() error {
	path := l.c.sessionPath()
	l.c.mu.Lock()
	r := LeadershipRecord{Name: l.name, PendingHooks: l.hooks, Release: l.release}
	w, over := l.running, l.gone && l.closed
	if w != nil {
		r.Unit, r.Env, r.Containment = w.unit, w.env, w.containment
		if p, ok := Identify("leader-only work", w.pid); ok && w.pid != 0 {
			r.Work = &p
		}
	}
	l.c.mu.Unlock()
	if path == "" || over {
		return nil
	}
	l.unsaved = writePrivate(leadershipFile(path, l.file), r)
	return l.unsaved
}

// Unkillable returns which process of the work cannot be killed, and why; empty if no such process is known.
func (l *Leadership) Unkillable() string {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.unkillable
}

// Abandon kills the work at once, and the guard then runs the pending hooks. From now on client and guard refuse
// everything that is sent for this leadership, such as by an event loop that was hung. Abandon does not wait; see Dead.
func (l *Leadership) Abandon() { l.end(kindAbandon) }

// Dead returns a channel that is closed once this leadership was abandoned, the guard has reported that nothing of its
// work is left, and its pending hooks have run; or once the daemon has found out the former without its guard.
func (l *Leadership) Dead() <-chan struct{} { return l.dead }

// Close makes client and guard forget this leadership. Work that still runs is killed.
func (l *Leadership) Close() { l.end(kindClose) }

func (l *Leadership) end(k kind) {
	l.c.mu.Lock()
	known := l.closed || k == kindAbandon && l.abandoned
	l.abandoned, l.closed = true, l.closed || k == kindClose
	if l.gone || l.c.Err() != nil && l.running == nil {
		l.setGone()
	}
	l.c.mu.Unlock()
	if !known {
		l.c.send(message{Kind: k, Leadership: l.id})
	}
}

// setGone records that nothing of the leadership is left. The caller must hold the client's mu.
func (l *Leadership) setGone() {
	if !l.gone {
		l.gone = true
		close(l.dead)
	}
	if l.closed && l.c.leaderships[l.id] == l {
		delete(l.c.leaderships, l.id)
		go l.removeFiles() // ends with the removal
	}
}

// removeFiles removes the leadership's files.
func (l *Leadership) removeFiles() {
	l.updating.Lock()
	defer l.updating.Unlock()
	if path := l.c.sessionPath(); path != "" {
		os.Remove(leadershipFile(path, l.file))
		os.Remove(workStateFile(path, l.file))
	}
}
