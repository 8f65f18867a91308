package store

import (
	"context"
	"maps"
	"time"

	"zkelectd/internal/cluster"
)

// followSession is the part of a session that reads what has changed.
type followSession interface {
	cluster.Reader
	cluster.Watcher
	cluster.Lifetime
}

// changeReader reads the znodes that have changed since it has read them.
type changeReader struct {
	conn  followSession
	valid map[string]bool // paths whose last read is still valid
}

func newChangeReader(conn followSession) changeReader {
	return changeReader{conn: conn, valid: make(map[string]bool)}
}

// follow calls look, and again after hints, but not more often than pace, until ctx is done or the session has ended.
// look returns after what time it is called again without a hint; 0 for never.
func (r *changeReader) follow(ctx context.Context, pace time.Duration, look func() time.Duration) {
	timer := time.NewTimer(pace)
	defer timer.Stop()
	for {
		refresh := look()
		timer.Reset(pace)
		if !r.wait(ctx, timer.C, nil) {
			return
		}
		if refresh > 0 {
			timer.Reset(refresh)
		}
		if !r.wait(ctx, timer.C, r.conn.Wake()) {
			return
		}
	}
}

// wait waits for the first of both channels, and returns false if ctx is done or the session has ended instead.
func (r *changeReader) wait(ctx context.Context, timer <-chan time.Time, wake <-chan struct{}) bool {
	select {
	case <-timer:
	case <-wake:
	case <-r.conn.Done():
		return false
	case <-ctx.Done():
		return false
	}
	return true
}

// takeHints takes the hints: what they name is no longer valid.
func (r *changeReader) takeHints() {
	if h := r.conn.TakeHints(); h.All {
		clear(r.valid)
	} else {
		maps.DeleteFunc(r.valid, func(path string, _ bool) bool { return h.Has(path) })
	}
}

// readChanged reads those of the znodes that are not valid, all at once. It returns false if store did so for one.
func (r *changeReader) readChanged(ctx context.Context, paths []string, store func(*Read) bool) bool {
	var reads []*Read
	for _, path := range paths {
		if !r.valid[path] {
			reads = append(reads, &Read{Path: path, Watch: true})
		}
	}
	readAtOnce(ctx, r.conn, reads)
	complete := true
	for _, read := range reads {
		r.valid[read.Path] = store(read)
		complete = complete && r.valid[read.Path]
	}
	return complete
}
