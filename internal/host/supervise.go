package host

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// pacing says how long to wait between two runs of what must always run: from first on, twice as long after each short
// run, at most limit. A run that took longer than stable starts the pauses anew.
type pacing struct{ first, limit, stable time.Duration }

// next is what follows a run.
type next int

const (
	over   next = iota // nothing
	again              // another run, after a pause
	atOnce             // another run
)

// supervise calls run until that is over, and await between two runs. The pauses have jitter: what was interrupted on
// many hosts together does not begin at the same time.
func supervise(p pacing, run func() next, await func(time.Duration)) {
	for pause := p.first; ; {
		began := time.Now()
		switch run() {
		case over:
			return
		case atOnce:
			continue
		}
		if time.Since(began) > p.stable {
			pause = p.first
		}
		await(pause/2 + rand.N(pause))
		pause = min(2*pause, p.limit)
	}
}

// inBackground calls functions in goroutines, with a context that ends with stop, which waits for them.
func inBackground(ctx context.Context, all ...func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for _, f := range all {
		running.Go(func() { f(ctx) })
	}
	return func() {
		cancel()
		running.Wait()
	}
}

// sleep waits, and reports whether ctx has not ended before that.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// signal makes the receiver of a channel with one slot look again. It does not block.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
