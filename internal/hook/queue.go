package hook

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// maxWaiting bounds the queue: a hook that is slower than the cluster changes must not eat memory.
const maxWaiting = 64

// QueueOptions say what a [Queue] runs.
type QueueOptions struct {
	Name    string
	Argv    []string
	Env     []string
	Timeout time.Duration
	Log     *slog.Logger
}

// Queue runs a hook once for each input, in order, one at a time.
type Queue struct {
	opt    QueueOptions
	life   context.Context
	cancel context.CancelFunc
	done   chan struct{}
	wake   chan struct{}

	mu      sync.Mutex
	waiting [][]byte
	closed  bool
}

// NewQueue returns a running queue; Close ends it.
func NewQueue(opt QueueOptions) *Queue {
	q := &Queue{opt: opt, done: make(chan struct{}), wake: make(chan struct{}, 1)}
	q.life, q.cancel = context.WithCancel(context.Background())
	go q.run()
	return q
}

// Push adds an input and never blocks. When too many wait, the oldest is dropped.
func (q *Queue) Push(stdin []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || len(q.opt.Argv) == 0 {
		return
	}
	if len(q.waiting) == maxWaiting {
		q.waiting = q.waiting[1:]
		q.opt.Log.Warn("hook is too slow, a change was dropped", "hook", q.opt.Name, "waiting", maxWaiting)
	}
	q.waiting = append(q.waiting, stdin)
	q.signal()
}

func (q *Queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// Close lets what waits run until ctx is over, then kills what runs and drops the rest.
func (q *Queue) Close(ctx context.Context) {
	q.mu.Lock()
	q.closed = true
	q.signal()
	q.mu.Unlock()
	select {
	case <-q.done:
	case <-ctx.Done():
	}
	q.cancel()
	<-q.done
}

func (q *Queue) run() {
	defer close(q.done)
	for {
		stdin, closed := q.next()
		switch {
		case stdin != nil:
			if err := Run(q.life, q.opt.Name, q.opt.Argv, q.opt.Env, stdin, q.opt.Timeout); err != nil {
				q.opt.Log.Error("hook failed", "err", err)
			}
		case closed:
			return
		default:
			select {
			case <-q.wake:
			case <-q.life.Done():
				return
			}
		}
		if q.life.Err() != nil {
			return
		}
	}
}

func (q *Queue) next() (stdin []byte, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		return nil, q.closed
	}
	stdin, q.waiting = q.waiting[0], q.waiting[1:]
	return stdin, q.closed
}
