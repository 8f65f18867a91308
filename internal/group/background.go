package group

import (
	"context"
	"sync"
	"time"
)

// background runs blocking functions in goroutines, and their callbacks in the loop.
type background struct {
	ctx     context.Context // ends with the loop
	cancel  context.CancelFunc
	owned   sync.WaitGroup // all goroutines
	results chan func()
	// panicked receives the value of a panic in one of the goroutines.
	panicked func(any)
}

func newBackground(ctx context.Context, panicked func(any)) *background {
	b := &background{results: make(chan func()), panicked: panicked}
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

// runInLoop runs f in the loop. It returns before f does, and reports false if the loop has ended instead.
func (b *background) runInLoop(f func()) bool {
	select {
	case b.results <- f:
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
