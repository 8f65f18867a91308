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
	max    int
	log    *slog.Logger
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
	wake   chan struct{}

	mu     sync.Mutex
	inputs []Input
	closed bool
}

// NewQueue returns a running queue. Each run uses what hook returns then, so that a reload can change it. The caller must call Close.
func NewQueue(hook func() Hook, log *slog.Logger) *Queue { return newQueue(hook, maxQueued, log) }

// NewLatest returns a running queue in which a new input replaces one that waits: for a hook that needs only the latest state.
func NewLatest(hook func() Hook, log *slog.Logger) *Queue { return newQueue(hook, 1, log) }

func newQueue(hook func() Hook, limit int, log *slog.Logger) *Queue {
	q := &Queue{hook: hook, max: limit, log: log, done: make(chan struct{}), wake: make(chan struct{}, 1)}
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
	if len(q.inputs) == q.max {
		q.inputs = q.inputs[1:]
		if q.max > 1 {
			q.log.Warn("hook is too slow, dropped a change", "hook", h.Setting, "queued", q.max)
		} else {
			q.log.Info("hook is slow, a newer change replaces one that waits", "hook", h.Setting)
		}
	}
	q.inputs = append(q.inputs, input)
	q.signal()
}

func (q *Queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// Close lets the queue finish until ctx ends, then kills the running hook and drops the remaining inputs.
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
		input, ok, closed := q.next()
		switch {
		case ok:
			q.runHook(input)
		case closed:
			return
		default:
			select {
			case <-q.wake:
			case <-q.ctx.Done():
				return
			}
		}
		if q.ctx.Err() != nil {
			return
		}
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

func (q *Queue) next() (input Input, ok, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.inputs) == 0 {
		return Input{}, false, q.closed
	}
	input, q.inputs = q.inputs[0], q.inputs[1:]
	return input, true, q.closed
}
