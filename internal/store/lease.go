package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/zk"
)

// CreateLeaseZnode creates the lease znode of the session below base, and returns its path (docs/protocol.md, The
// renewal is seen).
func CreateLeaseZnode(ctx context.Context, conn registrar, base, id string) (znode string, err error) {
	znode = cluster.LeaseZnode(base, id, conn.SessionID())
	_, err = conn.Do(ctx, cluster.LeaseZnodeTx(znode)...)
	if errors.Is(err, cluster.ErrNoNode) {
		if err = ensureZnode(ctx, conn, cluster.LeaseZnodes(base)); err == nil {
			_, err = conn.Do(ctx, cluster.LeaseZnodeTx(znode)...)
		}
	}
	if errors.Is(err, cluster.ErrNodeExists) { // perhaps by an attempt whose reply was lost
		var stat cluster.Stat
		if _, stat, err = conn.Get(ctx, znode, false); err == nil && (stat.Owner != conn.SessionID() || stat.Version != 1) {
			err = errors.New("somebody else has created or written it")
		}
	}
	if err != nil {
		return "", fmt.Errorf("cannot create znode %s: %w", znode, err)
	}
	return znode, nil
}

// LeaseZnodeSession is the part of a session's handle that a [LeaseZnodeWatch] uses. Its hints are those of one lease
// znode.
type LeaseZnodeSession interface {
	followSession
	Close()
}

// LeaseZnodeWatch reads the lease znodes of the leaders that the members of a host watch as deputies. All members share
// one reader of a znode: two would share its watch, and the second could miss a change. It is safe for concurrent use.
type LeaseZnodeWatch struct {
	open  func(znode string) LeaseZnodeSession
	clock func() time.Duration

	mu      sync.Mutex
	watched map[string]*watchedZnode
}

type watchedZnode struct {
	conn   LeaseZnodeSession
	cancel context.CancelFunc
	done   chan struct{} // closed when its reader has ended
	users  map[int]func()
	next   int
	seen   cluster.LeaseZnodeSeen // At is 0 before the first answer
}

// NewLeaseZnodeWatch returns a watch for one session. open returns a new handle of it.
func NewLeaseZnodeWatch(open func(znode string) LeaseZnodeSession, clock func() time.Duration) *LeaseZnodeWatch {
	return &LeaseZnodeWatch{open: open, clock: clock, watched: make(map[string]*watchedZnode)}
}

// Follow reads a lease znode after each change until release is called. It calls first, in another goroutine, once it
// has been read.
func (l *LeaseZnodeWatch) Follow(znode string, first func()) (release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.watched[znode]
	if w == nil {
		ctx, cancel := context.WithCancel(context.Background())
		w = &watchedZnode{conn: l.open(znode), cancel: cancel, done: make(chan struct{}), users: make(map[int]func())}
		l.watched[znode] = w
		go func() { // ends with the last user, or with the session
			defer close(w.done)
			l.run(ctx, znode, w)
		}()
	}
	w.next++
	id := w.next
	w.users[id] = first
	if w.seen.At != 0 {
		go first()
	}
	return sync.OnceFunc(func() { l.release(znode, w, id) })
}

func (l *LeaseZnodeWatch) release(znode string, w *watchedZnode, id int) {
	l.mu.Lock()
	delete(w.users, id)
	last := len(w.users) == 0
	if last {
		delete(l.watched, znode)
	}
	l.mu.Unlock()
	if last {
		w.cancel()
		<-w.done
		w.conn.Close()
	}
}

// Seen returns what was read last of a znode that is followed; At is 0 if nothing was.
func (l *LeaseZnodeWatch) Seen(znode string) cluster.LeaseZnodeSeen {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.watched[znode]; w != nil {
		return w.seen
	}
	return cluster.LeaseZnodeSeen{}
}

// Refresh reads a znode that is followed at once.
func (l *LeaseZnodeWatch) Refresh(ctx context.Context, znode string) error {
	l.mu.Lock()
	w := l.watched[znode]
	l.mu.Unlock()
	if w == nil {
		return fmt.Errorf("%w: znode %s is not followed", cluster.ErrNotSent, znode)
	}
	return l.read(ctx, znode, w, false)
}

// run reads the znode after each change.
func (l *LeaseZnodeWatch) run(ctx context.Context, znode string, w *watchedZnode) {
	r := newChangeReader(w.conn)
	r.follow(ctx, 0, func() time.Duration {
		r.takeHints()
		if err := l.read(ctx, znode, w, true); err != nil {
			return zk.Jitter(retryInterval)
		}
		return 0
	})
}

func (l *LeaseZnodeWatch) read(ctx context.Context, znode string, w *watchedZnode, watch bool) error {
	_, stat, err := w.conn.Get(zk.WithPriority(ctx, zk.PriorityUrgent), znode, watch)
	at := l.clock()
	if err != nil && !errors.Is(err, cluster.ErrNoNode) {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.seen.At == 0 {
		for _, first := range w.users {
			go first()
		}
	}
	// Two answers may come in the wrong order. The one that shows less is dropped: the znode is as old as the other one
	// at least.
	if before := w.seen; before.At == 0 || !before.Exists || err != nil || stat.Created > before.Stat.Created ||
		stat.Modified > before.Stat.Modified {
		w.seen = cluster.LeaseZnodeSeen{Znode: znode, Exists: err == nil, Stat: stat, At: at}
	}
	return nil
}
