package group

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// inbox holds what the loop of a member is to do, in order. Posting does not block: neither a lease that is cut nor
// the reply to a RENEW may wait for a loop that is busy. Each request of the loop, or of a person, is answered by one
// post, so that little is queued.
type inbox struct {
	mu    sync.Mutex
	queue []func()
	c     chan struct{} // receives while something is queued
}

func newInbox() *inbox { return &inbox{c: make(chan struct{}, 1)} }

func (b *inbox) post(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue = append(b.queue, f)
	signal(b.c)
}

// signal makes the receiver of a channel with one slot look again. It does not block.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// runNext runs what was posted first. The inbox signals again if that was not all.
func (b *inbox) runNext() {
	b.mu.Lock()
	if len(b.queue) == 0 {
		b.mu.Unlock()
		return
	}
	f := b.queue[0]
	b.queue = b.queue[1:]
	if len(b.queue) > 0 {
		signal(b.c)
	}
	b.mu.Unlock()
	f()
}

// A notice says what the loop of a member must look at again. However often it is given, the loop looks once.
type notice uint32

const (
	nodeChanged   notice = 1 << iota // the host's part of the node's record
	loadsChanged                     // the values of Options.Loads
	othersChanged                    // what is elected in other groups
	sharedChanged                    // what the members of the instance share
	permitGranted                    // perhaps
	beatRequested                    // the loop is to show that it is alive
	valueGiven                       // the work has a value to publish
)

// notices are those that a loop has not looked at. They outlast a member: the next one looks at them.
type notices struct {
	given atomic.Uint32
	c     chan struct{} // receives after a notice
}

// add gives a notice. It does not block.
func (n *notices) add(x notice) {
	n.given.Or(uint32(x))
	signal(n.c)
}

// take returns the notices that were given, and takes them back.
func (n *notices) take() notice { return notice(n.given.Swap(0)) }

// background runs blocking functions in goroutines, and their callbacks in the loop.
type background struct {
	ctx    context.Context // ends with the loop
	cancel context.CancelFunc
	owned  sync.WaitGroup // all goroutines
	// post makes the loop call a function, and panicked receives the value of a panic in one of the goroutines.
	post     func(func())
	panicked func(any)
}

func newBackground(ctx context.Context, post func(func()), panicked func(any)) *background {
	b := &background{post: post, panicked: panicked}
	b.ctx, b.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return b
}

// run calls work in a goroutine, with a context that ends after limit (0 for no limit), and then done in the loop,
// unless the loop has ended.
func (b *background) run(limit time.Duration, work func(context.Context), done func()) {
	b.spawn(func() {
		ctx, cancel := b.ctx, context.CancelFunc(func() {})
		if limit > 0 {
			ctx, cancel = context.WithTimeout(b.ctx, limit)
		}
		defer cancel()
		work(ctx)
		b.runInLoop(done)
	})
}

// spawn calls f in a goroutine.
func (b *background) spawn(f func()) {
	b.owned.Go(func() {
		defer func() {
			if r := recover(); r != nil {
				b.panicked(r)
			}
		}()
		f()
	})
}

// runInLoop runs f in the loop, unless that ends before. It does not wait for f, and reports false if the loop has
// ended.
func (b *background) runInLoop(f func()) bool {
	if b.ctx.Err() != nil {
		return false
	}
	b.post(f)
	return true
}

// pause waits, and reports whether the loop has not ended before that.
func (b *background) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-b.ctx.Done():
		return false
	}
}

// cancelAndWait ends the context, and waits for all goroutines.
func (b *background) cancelAndWait() {
	b.cancel()
	b.owned.Wait()
}
