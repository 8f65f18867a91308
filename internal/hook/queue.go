package hook

import (
	"context"
	"log/slog"
	"sync"
)

// maxQueued bounds the queue: a hook that is slower than the changes must not use up the memory.
const maxQueued = 64

// Queue runs a hook once for each input, in order, one at a time.
type Queue struct {
	hook   Hook
	log    *slog.Logger
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
	wake   chan struct{}

	mu     sync.Mutex
	inputs [][]byte
	closed bool
}

// NewQueue returns a running queue. The caller must call Close.
func NewQueue(hook Hook, log *slog.Logger) *Queue {
	q := &Queue{hook: hook, log: log, done: make(chan struct{}), wake: make(chan struct{}, 1)}
	q.ctx, q.cancel = context.WithCancel(context.Background())
	go q.run()
	return q
}

// Push adds an input; it never blocks. If the queue is full, the oldest input is dropped.
func (q *Queue) Push(input []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || len(q.hook.Argv) == 0 {
		return
	}
	if len(q.inputs) == maxQueued {
		q.inputs = q.inputs[1:]
		q.log.Warn("hook is too slow, dropped a change", "hook", q.hook.Setting, "queued", maxQueued)
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
		input, closed := q.next()
		switch {
		case input != nil:
			if err := q.hook.Run(q.ctx, input); err != nil {
				q.log.Error("hook failed", "err", err)
			}
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

func (q *Queue) next() (input []byte, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.inputs) == 0 {
		return nil, q.closed
	}
	input, q.inputs = q.inputs[0], q.inputs[1:]
	return input, q.closed
}
