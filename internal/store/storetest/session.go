package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"zkelectd/internal/cluster"
)

// Server serves sessions of several goroutines from one [Tree].
type Server struct {
	mu       sync.Mutex
	tree     *Tree
	sessions map[int64]*Session
}

// NewServer returns a server with an empty tree.
func NewServer() *Server {
	return &Server{tree: NewTree(), sessions: make(map[int64]*Session)}
}

// Session is a session with a [Server]. It implements [Conn].
type Session struct {
	server *Server
	id     int64
	wake   chan struct{}
	done   chan struct{}
	err    error
	hints  cluster.Hints
	groups []*Group

	refused bool // the server closes its connections
}

var _ Conn = (*Session)(nil)

// Connect opens a session.
func (s *Server) Connect() *Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &Session{server: s, id: s.tree.Open(), wake: make(chan struct{}, 1), done: make(chan struct{})}
	s.sessions[c.id] = c
	return c
}

// Expire ends a session as the server does when it has not heard from the client for too long.
func (s *Server) Expire(id int64) { s.end(id, errors.New("expired")) }

func (s *Server) end(id int64, reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.sessions[id]
	if c == nil {
		return
	}
	delete(s.sessions, id)
	c.err = fmt.Errorf("%w: %w", cluster.ErrSessionEnded, reason)
	close(c.done)
	s.hint(s.tree.End(id))
}

// Lose restarts the servers without their data. Earlier sessions get no connection any more, because their clients have
// seen newer data.
func (s *Server) Lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tree.Lose()
	for id, c := range s.sessions {
		delete(s.sessions, id)
		c.refused = true
	}
}

func (s *Server) hint(fired []Fired) {
	for _, f := range fired {
		c := s.sessions[f.Session]
		if c == nil {
			continue
		}
		c.hint(f.Path)
	}
}

// Get implements [cluster.Reader].
func (c *Session) Get(ctx context.Context, path string, watch bool) ([]byte, cluster.Stat, error) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if err := errors.Join(c.failure(), ctx.Err()); err != nil {
		return nil, cluster.Stat{}, err
	}
	return c.server.tree.Get(c.id, path, watch)
}

// Children implements [cluster.Reader].
func (c *Session) Children(ctx context.Context, path string, watch bool) ([]string, cluster.Stat, error) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if err := errors.Join(c.failure(), ctx.Err()); err != nil {
		return nil, cluster.Stat{}, err
	}
	return c.server.tree.Children(c.id, path, watch)
}

// Do implements [cluster.Writer].
func (c *Session) Do(ctx context.Context, ops ...cluster.Op) ([]cluster.Result, error) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if err := errors.Join(c.failure(), ctx.Err()); err != nil {
		return nil, err
	}
	results, fired, err := c.server.tree.Apply(c.id, ops)
	c.server.hint(fired)
	return results, err
}

// failure returns the error of every request, nil if requests can be sent.
func (c *Session) failure() error {
	if c.err == nil && c.refused {
		return cluster.ErrNotSent
	}
	return c.err
}

// Sync does nothing: every read of the model shows every write.
func (c *Session) Sync(context.Context) error { return c.Err() }

// Settle does nothing: the model answers every write.
func (c *Session) Settle(context.Context) error { return c.Err() }

// Wake implements [cluster.Watcher].
func (c *Session) Wake() <-chan struct{} { return c.wake }

// TakeHints implements [cluster.Watcher].
func (c *Session) TakeHints() cluster.Hints {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	h := c.hints
	c.hints = cluster.Hints{}
	return h
}

// Done implements [cluster.Lifetime].
func (c *Session) Done() <-chan struct{} { return c.done }

// Err implements [cluster.Lifetime].
func (c *Session) Err() error {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	return c.err
}

// SessionID implements [cluster.Owner].
func (c *Session) SessionID() int64 { return c.id }

// Close implements [Conn].
func (c *Session) Close(context.Context) error {
	c.server.end(c.id, errors.New("closed"))
	return nil
}
