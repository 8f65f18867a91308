package fencer

import (
	"context"
	"errors"
	"sync"
)

// Exclusive makes the groups of a host share what fences a node: two of them must not switch one node off at the same
// time, and none is asked whether it would work meanwhile. The zero value is ready to use.
type Exclusive struct {
	mu       sync.Mutex
	running  map[string]*attempt // by key
	monitors map[*context.CancelFunc]bool
}

// attempt is one run of what fences a node.
type attempt struct {
	done chan struct{}
	by   string
	err  error
}

// FenceNode calls fence, unless it is called already for the same key. Then it waits, and if that succeeds, returns the
// same: the node was on until then at most. key names the node, and how it is fenced.
func (e *Exclusive) FenceNode(ctx context.Context, key string, fence func(context.Context) (string, error),
) (string, error) {
	for {
		a, mine := e.begin(key)
		if mine {
			a.by, a.err = fence(ctx)
			e.end(key, a)
			return a.by, a.err
		}
		select {
		case <-a.done:
			if a.err == nil {
				return a.by, nil
			}
		case <-ctx.Done():
			return "", errors.New("was cut short")
		}
	}
}

// begin returns the attempt for a key that runs, or begins one. What begins ends all that only asks.
func (e *Exclusive) begin(key string) (a *attempt, mine bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if a := e.running[key]; a != nil {
		return a, false
	}
	if e.running == nil {
		e.running = make(map[string]*attempt)
	}
	a = &attempt{done: make(chan struct{})}
	e.running[key] = a
	for cancel := range e.monitors {
		(*cancel)()
	}
	return a, true
}

func (e *Exclusive) end(key string, a *attempt) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.running, key)
	close(a.done)
}

// Monitor calls monitor, and cancels its context when a node is to be fenced. It reports whether monitor was called,
// and not canceled: only then its result counts.
func (e *Exclusive) Monitor(ctx context.Context, monitor func(context.Context)) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e.mu.Lock()
	if len(e.running) > 0 {
		e.mu.Unlock()
		return false
	}
	if e.monitors == nil {
		e.monitors = make(map[*context.CancelFunc]bool)
	}
	e.monitors[&cancel] = true
	e.mu.Unlock()
	monitor(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.monitors, &cancel)
	return ctx.Err() == nil
}
