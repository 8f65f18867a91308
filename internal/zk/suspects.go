package zk

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"zkelectd/internal/cluster"
)

// A request that is too large, or whose reply does not end, costs the connection of all groups each time it is sent.
// Therefore a request that was in flight when the connection was lost is a suspect until it is answered. Only one
// suspect is sent at a time, so that the next loss shows which one it is. Servers that fail one after another lose the
// same request twice as well, so it is held back for longer only after further losses.

// A request that was in flight at two connection losses in a row is not sent for firstHold, and at each further loss
// for twice as long, up to holdBack.
const (
	firstHold = 2 * time.Second
	holdBack  = time.Minute
)

const tooLarge = "is a znode, its list of children or the request too large? If so, raise jute.maxbuffer on all servers"

// HeldBackError is returned for a request that was in flight when the connection was lost twice in a row. It matches
// [cluster.ErrNotSent].
type HeldBackError struct {
	Request string
	For     time.Duration
}

func (e *HeldBackError) Error() string {
	return fmt.Sprintf("not sent for another %s: the connection to ZooKeeper was lost twice while this request was "+
		"in flight: %s; %s",
		max(e.For.Round(time.Second), time.Second), e.Request, tooLarge)
}

func (e *HeldBackError) Unwrap() error { return cluster.ErrNotSent }

// outcome is what became of a request that was ready to be sent.
type outcome int

const (
	unsent outcome = iota
	answered
	lost // with the connection
)

type suspects struct {
	log  *slog.Logger
	lane chan struct{} // holds a value while a suspect is in the library

	mu    sync.Mutex
	loss  int // how often the connection was lost
	byKey map[string]*suspect
}

// suspect is a request that was in flight when the connection was lost, and has not been answered since.
type suspect struct {
	loss              int // the last one
	lostAt, heldUntil time.Time
	hold              time.Duration // 0 after the first loss
}

func newSuspects(log *slog.Logger) *suspects {
	return &suspects{log: log, lane: make(chan struct{}, 1), byKey: make(map[string]*suspect)}
}

// enter waits until a request may be sent, and returns the function to call when the library is done with it. key
// describes the request; an empty one is never a suspect.
func (s *suspects) enter(ctx context.Context, r request) (leave func(outcome), err error) {
	if r.key == "" {
		return func(outcome) {}, nil
	}
	s.mu.Lock()
	x := s.byKey[r.key]
	var left time.Duration
	if x != nil {
		left = time.Until(x.heldUntil)
	}
	s.mu.Unlock()
	switch {
	case left > 0:
		return nil, &HeldBackError{r.key, left}
	case x == nil:
		return func(o outcome) { s.returned(r.key, o) }, nil
	}
	if err := r.group.take(ctx, s.lane); err != nil {
		return nil, err
	}
	return func(o outcome) {
		s.returned(r.key, o)
		<-s.lane
	}, nil
}

// connectionLost counts the losses of the connection.
func (s *suspects) connectionLost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loss++
}

// returned records what became of a request.
func (s *suspects) returned(key string, o outcome) {
	s.mu.Lock()
	x, now := s.byKey[key], time.Now()
	var held time.Duration
	switch {
	case o == answered:
		delete(s.byKey, key)
	case o == lost && x == nil:
		maps.DeleteFunc(s.byKey, func(_ string, x *suspect) bool { return now.Sub(x.lostAt) > 10*holdBack })
		s.byKey[key] = &suspect{loss: s.loss, lostAt: now}
	case o == lost && x.loss != s.loss: // otherwise it was in flight several times at one loss
		x.hold = min(max(2*x.hold, firstHold), holdBack)
		x.loss, x.lostAt, x.heldUntil, held = s.loss, now, now.Add(x.hold), x.hold
	}
	s.mu.Unlock()
	if held > 0 {
		level := slog.LevelError
		if held == firstHold {
			level = slog.LevelWarn // servers that fail one after another do this, too
		}
		s.log.Log(context.Background(), level, "the connection to ZooKeeper was lost each time while one request was "+
			"in flight: it is not sent again for now",
			"request", key, "for", held, "advice", tooLarge)
	}
}
