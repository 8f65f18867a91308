package group

import (
	"context"
	"sync"
	"time"
)

// background runs what may block in goroutines of its own, and hands the results to the loop.
type background struct {
	life    context.Context // over when the loop ends
	cancel  context.CancelFunc
	owned   sync.WaitGroup
	results chan func()
}

func newBackground(ctx context.Context) *background {
	b := &background{results: make(chan func())}
	b.life, b.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return b
}

// run calls work, with a context of at most limit, and then done in the loop unless that has ended; 0 is no limit.
func (b *background) run(limit time.Duration, work func(context.Context), done func()) {
	b.owned.Go(func() {
		ctx, cancel := b.life, context.CancelFunc(func() {})
		if limit > 0 {
			ctx, cancel = context.WithTimeout(b.life, limit)
		}
		defer cancel()
		work(ctx)
		b.later(done)
	})
}

// later runs f in the loop, and reports whether it will: the loop may have ended.
func (b *background) later(f func()) bool {
	select {
	case b.results <- f:
		return true
	case <-b.life.Done():
		return false
	}
}

// end cancels everything, and waits for it.
func (b *background) end() {
	b.cancel()
	b.owned.Wait()
}
