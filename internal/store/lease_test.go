package store

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/zk"
)

func newLease(t *testing.T, s *zk.Session, base, id string) string {
	t.Helper()
	znode, err := CreateLeaseZnode(t.Context(), s, base, id)
	if err != nil {
		t.Fatal(err)
	}
	return znode
}

func do(t *testing.T, s *zk.Session, ops ...cluster.Op) {
	t.Helper()
	if _, err := s.Do(t.Context(), ops...); err != nil {
		t.Fatal(err)
	}
}

// A lost reply is no error, and a znode that somebody else has created is not the session's own.
func TestCreateLease(t *testing.T) {
	s, other := open(t, zk.Options{}), open(t, zk.Options{})
	p := root(t, other)
	znode := newLease(t, s, p.Root, "n1")
	if znode != cluster.LeaseZnode(p.Root, "n1", s.SessionID()) {
		t.Errorf("created %s", znode)
	}
	if _, stat, err := s.Get(t.Context(), znode, false); err != nil || stat.Version != 1 || stat.Owner != s.SessionID() {
		t.Errorf("%+v, %v", stat, err)
	}
	if again := newLease(t, s, p.Root, "n1"); again != znode {
		t.Errorf("created again as %s", again)
	}
	do(t, s, cluster.Op{Kind: cluster.OpSet, Path: znode, Version: 1})
	if _, err := CreateLeaseZnode(t.Context(), s, p.Root, "n1"); err == nil {
		t.Error("a znode that was written since is taken for a new one")
	}
	do(t, other, cluster.Op{Kind: cluster.OpDelete, Path: znode, Version: cluster.AnyVersion})
	do(t, other, cluster.LeaseZnodeTx(znode)...)
	if _, err := CreateLeaseZnode(t.Context(), s, p.Root, "n1"); err == nil {
		t.Error("the znode of another session is taken for the own one")
	}
}

// slowLease is a session whose reads take a second.
type slowLease struct {
	LeaseZnodeSession
	now *atomic.Int64
}

func (s slowLease) Get(ctx context.Context, path string, watch bool) ([]byte, cluster.Stat, error) {
	data, stat, err := s.LeaseZnodeSession.Get(ctx, path, watch)
	s.now.Add(int64(time.Second))
	return data, stat, err
}

// A sighting is the receipt of the answer: no renewal that it shows was sent after that.
func TestALeaseIsSeenWhenTheAnswerComes(t *testing.T) {
	holder, host := open(t, zk.Options{}), open(t, zk.Options{})
	znode := newLease(t, holder, root(t, holder).Root, "n1")
	var now atomic.Int64
	now.Store(1)
	w := NewLeaseZnodeWatch(func(znode string) LeaseZnodeSession {
		return slowLease{host.Group(cluster.Paths{Root: znode}), &now}
	}, func() time.Duration { return time.Duration(now.Load()) })
	first := make(chan bool)
	release := w.Follow(znode, func() { close(first) })
	defer release()
	<-first
	if at := w.Seen(znode).At; at <= time.Second {
		t.Errorf("seen at %s, the answer came after a second", at)
	}
}

// All members of a host see each change, and the last one ends the reading.
func TestLeaseWatch(t *testing.T) {
	holder, host := open(t, zk.Options{}), open(t, zk.Options{})
	p := root(t, holder)
	znode := newLease(t, holder, p.Root, "n1")
	opened := 0
	w := NewLeaseZnodeWatch(func(znode string) LeaseZnodeSession {
		opened++
		return host.Group(cluster.Paths{Root: znode})
	}, boottime.Now)
	first := make(chan int, 2)
	var releases []func()
	for i := range 2 {
		releases = append(releases, w.Follow(znode, func() { first <- i }))
	}
	for range 2 {
		<-first
	}
	version := func() int32 { return w.Seen(znode).Stat.Version }
	for v := int32(1); v < 5; v++ {
		eventually(t, "the version is seen", func() bool { return version() == v })
		if l := w.Seen(znode); !l.Exists || l.Znode != znode || l.Stat.Owner != holder.SessionID() || l.At == 0 || l.At > boottime.Now() {
			t.Errorf("%+v", l)
		}
		do(t, holder, cluster.Op{Kind: cluster.OpSet, Path: znode, Version: v})
	}
	releases[0]()
	do(t, holder, cluster.Op{Kind: cluster.OpDelete, Path: znode, Version: cluster.AnyVersion})
	eventually(t, "it is gone", func() bool { return !w.Seen(znode).Exists })
	if err := w.Refresh(t.Context(), znode); err != nil {
		t.Error(err)
	}
	releases[1]()
	releases[1]()
	if l := w.Seen(znode); l.At != 0 || opened != 1 || w.Refresh(context.Background(), znode) == nil {
		t.Errorf("after the end: %+v, opened %d times", l, opened)
	}
	late := w.Follow(znode, func() { first <- 0 })
	<-first
	late()
	if opened != 2 {
		t.Errorf("opened %d times", opened)
	}
}
