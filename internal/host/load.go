package host

import (
	"context"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store"
	"zkelectd/internal/zk"
)

// loadPace is the least time between two writes of this host's load, and between two readings of those of the others.
const loadPace = time.Second

// loads writes the load of a host with many groups, and follows those of the others once an elector needs them. It belongs to one
// session.
type loads struct {
	host   *Host
	conn   *zk.Group
	base   string
	next   chan cluster.Load // to be written; the newest wins
	wanted chan struct{}     // closed when an elector needs the loads
	once   sync.Once
	known  atomic.Pointer[map[string]cluster.Load] // nil before the first reading; never changed, only replaced
}

// runLoads writes and follows loads in a session until ctx ends.
func (h *Host) runLoads(ctx context.Context, s *session) {
	if h.single() {
		return // the only group's record of the node has everything
	}
	base := h.config().ZooKeeper.Root
	l := &loads{
		host: h, base: base, conn: s.zk.Group(cluster.Paths{Root: cluster.Loads(base)}), next: make(chan cluster.Load, 1), wanted: make(chan struct{}),
	}
	defer l.conn.Close()
	h.loads.Store(l)
	defer h.loads.Store(nil)
	var both sync.WaitGroup
	both.Go(func() { l.write(ctx) })
	both.Go(func() { l.follow(ctx) })
	both.Wait()
}

// follow reads the loads of all hosts, once they are needed.
func (l *loads) follow(ctx context.Context) {
	select {
	case <-l.wanted:
	case <-ctx.Done():
		return
	}
	store.FollowLoads(ctx, l.conn, l.base, loadPace, func(known map[string]cluster.Load) {
		if before := l.known.Swap(&known); before != nil && reflect.DeepEqual(*before, known) {
			return
		}
		l.host.placement.published(known)
		for _, g := range l.host.Groups() {
			g.core.Load().LoadsChanged()
		}
	})
}

// knownLoads returns the loads of all hosts; nil if none are known.
func (h *Host) knownLoads() map[string]cluster.Load {
	l := h.loads.Load()
	if l == nil {
		return nil
	}
	l.once.Do(func() { close(l.wanted) })
	if known := l.known.Load(); known != nil {
		return *known
	}
	return nil
}

// publishLoad has this host's load written if it has changed.
func (h *Host) publishLoad() {
	l := h.loads.Load()
	if l == nil {
		return
	}
	rec := h.load()
	select {
	case <-l.next:
	default:
	}
	select {
	case l.next <- rec:
	default: // not reached: only the beat sends
	}
}

// load returns this host's load.
func (h *Host) load() cluster.Load {
	var n cluster.Node
	h.health.measured(&n)
	rec := cluster.Load{Latency: n.Latency, Score: n.Score}
	for _, g := range h.Groups() {
		if v := g.View(); v.Membership == status.MembershipMember && (v.Elected == v.Node || v.Term != 0) {
			rec.Leaders++
		}
	}
	return rec
}

// write writes this host's load when it has changed, until ctx ends.
func (l *loads) write(ctx context.Context) {
	var written *cluster.Load
	failed := ""
	for {
		var rec cluster.Load
		select {
		case rec = <-l.next:
		case <-ctx.Done():
			return
		}
		if written != nil && reflect.DeepEqual(rec, *written) {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, l.conn.Timeout())
		err := store.WriteLoad(limited, l.conn, l.base, l.host.Node(), rec)
		cancel()
		switch {
		case err == nil:
			written, failed = &rec, ""
		case ctx.Err() == nil && err.Error() != failed: // the next beat tries again
			failed = err.Error()
			l.host.log.Warn("the load of this host is not published yet: elsewhere it is not known", "err", err)
		}
		if !sleep(ctx, loadPace) {
			return
		}
	}
}
