// Package applease hands out application leases: parts of a leader's lease for processes that the daemon has not
// started and cannot kill. A [Book] knows which of them are out, so that leadership is not released as clean while an
// application may still work (docs/protocol.md, Application leases).
package applease

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/sys/boottime"
)

// maxOut limits the leases of one group that are out: each may need a file descriptor.
const maxOut = 64

// ErrTooMany is the error for a lease beyond the limit.
var ErrTooMany = errors.New("64 application leases of this group are out")

// Offer is what may be handed out: a member opens the book with it when it becomes the leader.
type Offer struct {
	Term  int64
	Value string
	// End returns when the leader's lease ends, as the guard enforces it.
	End func() time.Duration
	// Announce returns once nobody releases the term as clean any more without asking the book. It is called before the
	// first lease is handed out, in the goroutine of the request.
	Announce func(context.Context) error
}

// Request asks for a lease.
type Request struct {
	// ID is that of the lease to be extended; empty for a new one. A lease that is over is not replaced.
	ID string
	// Process is the one that asks. If Bound is set, the lease is over when that process is dead.
	Process Process
	Bound   bool
	// Wait limits how long Ask waits for news.
	Wait time.Duration
}

// Process is a process according to the kernel. Open returns a pidfd of it.
type Process struct {
	Pid  int
	Open func() (pidfd int, err error)
}

// Answer is a lease, or that there is none.
type Answer struct {
	ID    string // empty without a lease
	Term  int64
	Value string
	End   time.Duration // on CLOCK_BOOTTIME
	Stop  bool          // the holder must stop before End, and return the lease
}

// lease is one that is out, or was.
type lease struct {
	term  int64
	value string
	end   time.Duration
	pid   int // 0 unless it is bound to a process
	pidfd int // -1 for none
}

// over reports whether nobody works under the lease any more. Only what the kernel says proves that its process is
// dead.
func (l *lease) over() bool {
	if boottime.Now() >= l.end {
		return true
	}
	if l.pidfd < 0 {
		return false
	}
	poll := []unix.PollFd{{Fd: int32(l.pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, 0)
	return err == nil && n == 1 && poll[0].Revents&unix.POLLIN != 0
}

// Book has the leases of one group that are out. The zero value is closed.
type Book struct {
	mu        sync.Mutex
	offer     Offer
	open      bool
	announced bool          // the offer was
	offered   time.Duration // its end, as last seen
	stopBy    time.Duration // when it was closed: by when the holders must stop
	out       map[string]*lease
	changed   chan struct{} // closed at a change of the above that a request may wait for; nil if none waits
}

// Open makes the book hand out leases. It is called again after each renewal.
func (b *Book) Open(o Offer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.announced = b.announced && b.open && b.offer.Term == o.Term
	if end := o.End(); !b.open || b.offer.Term != o.Term || end != b.offered {
		b.offered = end
		b.signal()
	}
	b.offer, b.open, b.stopBy = o, true, 0
}

// Close makes the book hand out nothing more. Those who have a lease are told to stop by a time; 0 if there is none
// left.
func (b *Book) Close(stopBy time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open || stopBy != b.stopBy {
		b.open, b.announced, b.stopBy = false, false, stopBy
		b.signal()
	}
}

// pollInterval is how often AwaitOver looks whether processes are dead.
const pollInterval = 10 * time.Millisecond

// AwaitOver waits until no lease of a closed book is out.
func (b *Book) AwaitOver(ctx context.Context) error {
	again := time.NewTicker(pollInterval)
	defer again.Stop()
	for {
		b.mu.Lock()
		b.prune()
		n, changed := len(b.out), b.news()
		b.mu.Unlock()
		if n == 0 {
			return nil
		}
		select {
		case <-again.C:
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Ask returns a lease that is new or ends later than what the holder of r.ID has, or that this one must stop, as soon
// as it can, and otherwise after r.Wait what is true then.
func (b *Book) Ask(ctx context.Context, r Request) (Answer, error) {
	waited, cancel := context.WithTimeout(ctx, r.Wait)
	defer cancel()
	for {
		b.mu.Lock()
		if announce := b.offer.Announce; b.valid() && !b.announced {
			term := b.offer.Term
			b.mu.Unlock()
			if err := announce(ctx); err != nil {
				return Answer{}, err
			}
			b.mu.Lock()
			b.announced = b.announced || b.open && b.offer.Term == term
			b.mu.Unlock()
			continue
		}
		now, final, err := b.answer(&r, waited.Err() != nil)
		changed := b.news()
		b.mu.Unlock()
		if final || err != nil {
			return now, err
		}
		lapse := time.NewTimer(cmp.Or(now.Left(boottime.Now()), r.Wait))
		select {
		case <-changed:
		case <-lapse.C:
		case <-waited.Done():
		}
		lapse.Stop()
	}
}

// valid reports whether leases may be handed out now. The caller must hold mu.
func (b *Book) valid() bool { return b.open && boottime.Now() < b.offer.End() }

// answer returns what is true now, and whether the request ends with it. The caller must hold mu.
func (b *Book) answer(r *Request, late bool) (a Answer, final bool, err error) {
	l := b.held(r.ID, r.Process.Pid)
	if l != nil && l.term == b.offer.Term {
		l.value = b.offer.Value // which may change during a term
	}
	switch {
	case l == nil && r.ID != "": // a holder must learn that
		return Answer{}, true, nil
	case l == nil && b.valid():
		if l, err = b.add(r); err != nil {
			return Answer{}, true, err
		}
		final = true
	case l == nil:
		return Answer{}, late, nil
	case !b.valid() || l.term != b.offer.Term:
		end := l.end
		if !b.open {
			end = min(end, b.stopBy)
		}
		return Answer{r.ID, l.term, l.value, end, true}, true, nil
	case b.offer.End() > l.end:
		l.end, final = b.offer.End(), true
	}
	return Answer{r.ID, l.term, l.value, l.end, false}, final || late, nil
}

// held returns the lease with an id that is not over, if the process may use it; otherwise nil. The caller must hold
// mu.
func (b *Book) held(id string, pid int) *lease {
	if l := b.out[id]; l != nil && !l.over() && (l.pid == 0 || l.pid == pid) {
		return l
	}
	return nil
}

// add hands out a new lease, and sets the id of the request to its id. The caller must hold mu.
func (b *Book) add(r *Request) (*lease, error) {
	b.prune()
	if len(b.out) >= maxOut {
		return nil, ErrTooMany
	}
	l := &lease{term: b.offer.Term, value: b.offer.Value, end: b.offer.End(), pidfd: -1}
	if r.Bound && r.Process.Pid > 0 {
		if fd, err := r.Process.Open(); err == nil { // else it is over at its end only
			l.pid, l.pidfd = r.Process.Pid, fd
		}
	}
	if b.out == nil {
		b.out = make(map[string]*lease)
	}
	r.ID = rand.Text()
	b.out[r.ID] = l
	return l, nil
}

// Return takes a lease back. It reports false if it is not known.
func (b *Book) Return(id string, p Process) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.held(id, p.Pid)
	if l != nil {
		b.remove(id, l)
		b.signal()
	}
	return l != nil
}

// Out returns how many leases are out.
func (b *Book) Out() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.prune()
	return len(b.out)
}

// prune removes the leases that are over. The caller must hold mu.
func (b *Book) prune() {
	for id, l := range b.out {
		if l.over() {
			b.remove(id, l)
		}
	}
}

func (b *Book) remove(id string, l *lease) {
	delete(b.out, id)
	if l.pidfd >= 0 {
		unix.Close(l.pidfd)
	}
}

// news returns a channel that is closed at the next change. The caller must hold mu.
func (b *Book) news() <-chan struct{} {
	if b.changed == nil {
		b.changed = make(chan struct{})
	}
	return b.changed
}

func (b *Book) signal() {
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
}

// Left returns how much is left of the lease at a time.
func (a Answer) Left(now time.Duration) time.Duration { return max(0, cmp.Or(a.End, now)-now) }
