package group

import (
	"context"
	"sync"
	"time"
)

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

// run calls work in a goroutine, with a context that ends after limit (0 for no limit), and then done in the loop, unless the
// loop has ended.
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

// runInLoop runs f in the loop, unless that ends before. It does not wait for f, and reports false if the loop has ended.
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
