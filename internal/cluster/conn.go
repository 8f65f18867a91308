package cluster

import "context"

// The interfaces below are the parts of one ZooKeeper session, which is used once (docs/protocol.md, Session); each
// consumer asks for those that it needs. zk.Session implements all of them on the wire, storetest.Session in memory,
// and storetest.Contract holds both to the same behavior.

// Reader reads znodes.
//
// Its errors are [ErrNoNode], [ErrNoAuth], [ErrNotSent], [ErrUnknown], [ErrSessionEnded] or the context's error, all
// matched by errors.Is. A read that sets a watch leaves it armed until the path appears in [Watcher.TakeHints]; reading
// with a watch again while it is armed costs nothing.
type Reader interface {
	// Get returns the data of a znode. With watch, the next change of its data or existence is hinted, even if the znode
	// does not exist: then the error is ErrNoNode and its creation is hinted.
	Get(ctx context.Context, path string, watch bool) ([]byte, Stat, error)
	// Children returns the names of a znode's children, in no particular order. With watch, the next change of that
	// list is hinted.
	Children(ctx context.Context, path string, watch bool) ([]string, Stat, error)
}

// Writer applies transactions.
type Writer interface {
	// Do applies ops as one transaction. If it is refused, the error is a *[TxError] that names the first operation that
	// failed. The error is [ErrUnknown] if there is no reply by the deadline: the transaction may still be applied later.
	Do(ctx context.Context, ops ...Op) ([]Result, error)
}

// ReadWriter reads znodes and applies transactions.
type ReadWriter interface {
	Reader
	Writer
}

// Watcher delivers what watches have hinted at.
type Watcher interface {
	// Wake returns a channel that receives when there are hints to take. It has one slot: a burst wakes once.
	Wake() <-chan struct{}
	// TakeHints returns the hints and clears them.
	TakeHints() Hints
}

// Lifetime reports the end of a session.
type Lifetime interface {
	// Done returns a channel that is closed when the session has ended; Err then returns the reason.
	Done() <-chan struct{}
	Err() error
}

// Owner identifies a session.
type Owner interface {
	// SessionID returns the id that [Stat.Owner] has on this session's ephemerals.
	SessionID() int64
}

// SRVPrefix begins a server that is the name of SRV records in DNS: each of them names a host and a port.
const SRVPrefix = "srv+"
