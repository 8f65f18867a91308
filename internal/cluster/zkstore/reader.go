package zkstore

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"zkelectd/internal/cluster"
)

// netInterval is how often everything is read again although no watch has fired: a net below the watches, no part of
// any election's normal way. Jitter keeps a fleet from doing it in step.
const netInterval = 30 * time.Second

// ReaderSession is the session that a Reader reads in.
type ReaderSession interface {
	cluster.Reader
	cluster.Watcher
	cluster.Lifetime
	cluster.Owner
}

// ReaderOptions are what a Reader needs.
type ReaderOptions struct {
	Conn  ReaderSession
	Paths cluster.Paths
	Self  cluster.Incarnation
	// Clock is the daemon's monotonic time, for Snapshot.At.
	Clock func() time.Duration
	Log   *slog.Logger
}

// Reader keeps a snapshot of what this daemon must know, by watches. It decides only when to read; what to read, and what
// follows from it, is up to its [Collector].
type Reader struct {
	conn      ReaderSession
	collector *Collector
	out       chan cluster.Snapshot
	force     chan struct{}
}

// NewReader returns a reader; Run makes it work.
func NewReader(opt ReaderOptions) *Reader {
	return &Reader{
		conn: opt.Conn,
		collector: NewCollector(CollectorOptions{
			Source: parallel{opt.Conn}, Paths: opt.Paths, Self: opt.Self, Session: opt.Conn.SessionID(), Clock: opt.Clock, Log: opt.Log,
		}),
		out:   make(chan cluster.Snapshot, 1),
		force: make(chan struct{}, 1),
	}
}

// Snapshots delivers the newest snapshot; one that was not taken is replaced.
func (r *Reader) Snapshots() <-chan cluster.Snapshot { return r.out }

// Reread asks for elected, the fence and current to be read again, with a new snapshot as the answer.
func (r *Reader) Reread() {
	select {
	case r.force <- struct{}{}:
	default:
	}
}

// Run reads until ctx is over or the session has ended; it owns the reader meanwhile.
func (r *Reader) Run(ctx context.Context) {
	timer := time.NewTimer(jitter(netInterval))
	defer timer.Stop()
	for {
		if snap, complete := r.collector.Collect(ctx); complete {
			r.publish(snap)
		} else {
			// What could not be read stays unknown; a reconnect wakes, this is for a refusal without one.
			timer.Reset(jitter(time.Second))
		}
		select {
		case <-ctx.Done():
			return
		case <-r.conn.Done():
			return
		case <-r.conn.Wake():
		case <-r.force:
			r.collector.ForgetLeadership()
		case <-timer.C:
			r.collector.ForgetAll()
			timer.Reset(jitter(netInterval))
		}
	}
}

func jitter(d time.Duration) time.Duration { return d*3/4 + rand.N(d/2) }

func (r *Reader) publish(snap cluster.Snapshot) {
	select {
	case <-r.out:
	default:
	}
	r.out <- snap
}
