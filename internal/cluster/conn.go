package cluster

import "context"

// Conn is one ZooKeeper session, used once: what the shells need of it. zkstore.Session implements it on the wire,
// clustertest in memory; clustertest.Contract holds both to the same behaviour.
//
// Reads return [ErrNoNode], [ErrNoAuth], [ErrNotSent], [ErrUnknown], [ErrSessionEnded] or the context's error, all
// matched by errors.Is. A read that sets a watch leaves it armed until the path appears in [Conn.TakeHints]; reading
// with watch again while it is armed costs nothing.
type Conn interface {
	// Get reads the data of a znode. With watch, the next change of its data or existence is hinted, also where the
	// znode does not exist (then the error is ErrNoNode and its creation is hinted).
	Get(ctx context.Context, path string, watch bool) ([]byte, Stat, error)
	// Children lists the names of a znode's children, in no order. With watch, the next change of the list is hinted.
	Children(ctx context.Context, path string, watch bool) ([]string, Stat, error)
	// Do applies ops as one transaction. A refused one returns a *[TxError] naming the first operation that failed.
	// A write that gets no reply by its deadline ends the session: its outcome could otherwise be overtaken.
	Do(ctx context.Context, ops ...Op) ([]Result, error)

	// Wake receives when there are hints to take. It has one slot: a burst wakes once.
	Wake() <-chan struct{}
	// TakeHints returns and clears what has been hinted.
	TakeHints() Hints

	// Done is closed when the session has ended; Err then says why.
	Done() <-chan struct{}
	Err() error
	// SessionID is what Stat.Owner shows on this session's ephemerals.
	SessionID() int64
	// Close ends the session on the server, so that its ephemerals vanish at once, and returns when that is done or
	// ctx is over.
	Close(ctx context.Context) error
}
