package hook

import (
	"context"
	"log/slog"
	"slices"
	"sync"
)

// maxQueued bounds the queue: a hook that is slower than the changes must not use up the memory.
const maxQueued = 64

// Input is what one run of a hook gets: its standard input, and environment variables in addition to those of the hook.
type Input struct {
	Data []byte
	Env  []string
}

// Queue runs a hook once for each input, in order, one at a time.
type Queue struct {
	hook   func() Hook
	log    *slog.Logger
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	inputs chan Input // only Push sends, so that there is room once it has dropped one
	closed bool
}

// NewQueue returns a running queue. Each run uses what hook returns then, so that a reload can change it. The caller
// must call Close.
func NewQueue(hook func() Hook, log *slog.Logger) *Queue { return newQueue(hook, maxQueued, log) }

// NewLatest returns a running queue in which a new input replaces one that waits: for a hook that needs only the latest
// state.
func NewLatest(hook func() Hook, log *slog.Logger) *Queue { return newQueue(hook, 1, log) }

func newQueue(hook func() Hook, limit int, log *slog.Logger) *Queue {
	q := &Queue{hook: hook, log: log, done: make(chan struct{}), inputs: make(chan Input, limit)}
	q.ctx, q.cancel = context.WithCancel(context.Background())
	go q.run()
	return q
}

// Push adds an input; it never blocks. If the queue is full, the oldest input is dropped.
func (q *Queue) Push(input Input) {
	q.mu.Lock()
	defer q.mu.Unlock()
	h := q.hook()
	if q.closed || len(h.Argv) == 0 {
		return
	}
	select {
	case q.inputs <- input:
		return
	default:
	}
	select {
	case <-q.inputs:
		if queued := cap(q.inputs); queued > 1 {
			q.log.Warn("hook is too slow, dropped a change", "hook", h.Setting, "queued", queued)
		} else {
			q.log.Info("hook is slow, a newer change replaces one that waits", "hook", h.Setting)
		}
	default: // the hook has just taken it
	}
	q.inputs <- input
}

// Close lets the queue finish until ctx ends, then kills the running hook and drops the remaining inputs.
func (q *Queue) Close(ctx context.Context) {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		close(q.inputs)
	}
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
	for input := range q.inputs {
		if q.ctx.Err() != nil {
			return
		}
		q.runHook(input)
	}
}

func (q *Queue) runHook(input Input) {
	h := q.hook()
	h.Env = slices.Concat(h.Env, input.Env)
	if err := h.Run(q.ctx, input.Data); err != nil {
		q.log.Error("hook failed", "err", err)
		if h.Failed != nil {
			h.Failed()
		}
	}
}
