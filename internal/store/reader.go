package store

import (
	"context"
	"sync/atomic"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/zk"
)

// retryInterval is how long a reader waits after a failed read. A reconnect wakes it anyway; this is for a refusal
// while connected.
const retryInterval = time.Second

// unwatchedInterval is how often a reader reads what it may not read, and so cannot watch.
const unwatchedInterval = 24 * time.Second

// ReaderSession is the part of a session that a [Reader] uses.
type ReaderSession interface {
	cluster.Reader
	cluster.Watcher
	cluster.Lifetime
	cluster.Owner
	// Settle makes later reads show the outcome of earlier writes without a reply.
	Settle(ctx context.Context) error
}

// Reader uses watches to keep a snapshot of everything that this daemon must know. It decides only when to read; its
// [Collector] decides what to read.
type Reader struct {
	conn      ReaderSession
	collector *Collector
	out       chan cluster.Snapshot
	force     chan struct{}
	act       atomic.Bool
}

// NewReader returns a reader over conn, which is the source of opt. It does nothing until Run is called.
func NewReader(conn ReaderSession, opt CollectorOptions) *Reader {
	opt.Source, opt.Session = sessionSource{conn}, conn.SessionID()
	return &Reader{
		conn: conn, collector: NewCollector(opt),
		out:   make(chan cluster.Snapshot, 1),
		force: make(chan struct{}, 1),
	}
}

// Snapshots returns the channel that delivers the newest snapshot. A newer snapshot replaces one that was not received.
func (r *Reader) Snapshots() <-chan cluster.Snapshot { return r.out }

// Reread requests that elected, the fence and current are read again. A new snapshot follows. It does not block.
func (r *Reader) Reread() {
	select {
	case r.force <- struct{}{}:
	default:
	}
}

// Act makes the reader read what the elector reads, or no longer, see [Collector.Act]. A new snapshot follows. It does
// not block.
func (r *Reader) Act(act bool) {
	r.act.Store(act)
	r.Reread()
}

// Run reads until ctx is done or the session has ended. It must be called only once.
func (r *Reader) Run(ctx context.Context) {
	retry := time.NewTimer(retryInterval)
	defer retry.Stop()
	for {
		// The time before Settle: it has settled no write whose outcome becomes unknown after that (S1).
		at := r.collector.opt.Clock()
		snap, complete := cluster.Snapshot{}, r.conn.Settle(ctx) == nil
		if complete {
			snap, complete = r.collector.Collect(ctx)
			snap.At = at
		}
		switch {
		case !complete:
			retry.Reset(zk.Jitter(retryInterval))
		case r.collector.unwatched:
			retry.Reset(zk.Jitter(unwatchedInterval))
		default:
			retry.Stop()
		}
		if complete {
			select {
			case <-r.out: // nobody has received it: the newest wins
			default:
			}
			r.out <- snap
		}
		select {
		case <-ctx.Done():
			return
		case <-r.conn.Done():
			return
		case <-r.conn.Wake():
			if r.awaitTurn(ctx); ctx.Err() != nil {
				return
			}
		case <-r.force:
			r.collector.Act(r.act.Load())
			r.collector.InvalidateHolder()
		case <-retry.C:
		}
	}
}
