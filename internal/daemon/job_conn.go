package daemon

import (
	"context"
	"fmt"
	"sync"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator"
	"zkelectd/internal/zk"
)

// jobConn is the access of a job to its group, beside that of its host: a session, and the next one if that has ended,
// since a job may wait for its turn for hours. It implements [cluster.ReadWriter].
type jobConn struct {
	open func(context.Context) (*zk.Session, error)

	mu      sync.Mutex
	session *zk.Session
}

// now returns a session that has not ended.
func (c *jobConn) now(ctx context.Context) (*zk.Session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == nil || c.session.Err() != nil {
		next, err := c.open(ctx)
		if err != nil {
			return nil, err
		}
		c.session = next
	}
	return c.session, nil
}

func (c *jobConn) close(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	operator.Disconnect(ctx, c.session)
}

func (c *jobConn) Get(ctx context.Context, path string, watch bool) ([]byte, cluster.Stat, error) {
	s, err := c.now(ctx)
	if err != nil {
		return nil, cluster.Stat{}, err
	}
	return s.Get(ctx, path, watch)
}

func (c *jobConn) Children(ctx context.Context, path string, watch bool) ([]string, cluster.Stat, error) {
	s, err := c.now(ctx)
	if err != nil {
		return nil, cluster.Stat{}, err
	}
	return s.Children(ctx, path, watch)
}

func (c *jobConn) Do(ctx context.Context, ops ...cluster.Op) ([]cluster.Result, error) {
	s, err := c.now(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", cluster.ErrNotSent, err)
	}
	return s.Do(ctx, ops...)
}

// checkOwner returns an error if anyone may have written what was read of the job's group.
func (j *job) checkOwner(ctx context.Context) error {
	s, err := j.conn.now(ctx)
	if err == nil {
		err = s.FollowRoot(ctx, j.cfg.ZooKeeper.Root, false)
	}
	if err == nil {
		err = s.CheckOwner(ctx, j.cfg.ZooKeeper.Root)
	}
	return err
}
