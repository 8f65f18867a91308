package store

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"zkelectd/internal/cluster"
)

// flakySession is a session with an in-memory group. It counts the reads, and can make them fail.
type flakySession struct {
	ReaderSession
	fails, reads atomic.Int32
	during       atomic.Pointer[func()] // called once, during a read
	denied       atomic.Pointer[string] // a path that may not be read
	settling     atomic.Pointer[func()]
}

func (f *flakySession) Settle(ctx context.Context) error {
	if settling := f.settling.Swap(nil); settling != nil {
		(*settling)()
	}
	return f.ReaderSession.Settle(ctx)
}

func (f *flakySession) Get(ctx context.Context, path string, watch bool) ([]byte, cluster.Stat, error) {
	f.reads.Add(1)
	if during := f.during.Swap(nil); during != nil {
		(*during)()
	}
	if f.fails.Load() > 0 {
		return nil, cluster.Stat{}, cluster.ErrNotSent
	}
	if denied := f.denied.Load(); denied != nil && *denied == path {
		return nil, cluster.Stat{}, cluster.ErrNoAuth
	}
	return f.ReaderSession.Get(ctx, path, watch)
}

// withRunningReader calls test with a running reader, in a synctest bubble.
func withRunningReader(t *testing.T, test func(s *raceSource, conn *flakySession, r *Reader, stop context.CancelFunc, over <-chan struct{})) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newRaceSource(t)
		conn := &flakySession{ReaderSession: s.Session}
		start := time.Now()
		r := NewReader(conn, CollectorOptions{Paths: s.p, Self: s.self, Log: slog.New(slog.DiscardHandler), Clock: func() time.Duration { return time.Since(start) }})
		ctx, stop := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() {
			defer close(over)
			r.Run(ctx)
		}()
		test(s, conn, r, stop, over)
		stop()
		<-over
	})
}

// A snapshot is no younger than the settling before it: a write whose outcome became unknown after that was not settled.
func TestASnapshotIsAsOldAsItsSettling(t *testing.T) {
	withRunningReader(t, func(s *raceSource, conn *flakySession, r *Reader, _ context.CancelFunc, _ <-chan struct{}) {
		first := (<-r.Snapshots()).At
		settling := func() { <-time.After(time.Second) }
		conn.settling.Store(&settling)
		r.Reread()
		if at := (<-r.Snapshots()).At; at != first || conn.settling.Load() != nil {
			t.Errorf("its time is %s, the settling began at %s, not settled: %v", at, first, conn.settling.Load() != nil)
		}
	})
}

// A newer snapshot replaces one that was not received. The reader reads nothing without a reason, and rereads at once on
// request.
func TestReaderDeliversTheNewestSnapshot(t *testing.T) {
	withRunningReader(t, func(s *raceSource, conn *flakySession, r *Reader, _ context.CancelFunc, _ <-chan struct{}) {
		if snap := <-r.Snapshots(); snap.Self != s.self || snap.Session != s.SessionID() || snap.SelfLost || snap.Elected.Exists {
			t.Errorf("%+v", snap)
		}
		s.do(s.elect(cluster.OpCreate, 6, "x-0000000000000001-n_0000000009"))
		synctest.Wait()
		s.do(s.elect(cluster.OpSet, 7, "x-0000000000000001-n_0000000009"))
		synctest.Wait()
		if snap := <-r.Snapshots(); snap.Elected.Record.Term != 7 {
			t.Errorf("term %d", snap.Elected.Record.Term)
		}
		select {
		case snap := <-r.Snapshots():
			t.Errorf("an extra snapshot: %+v", snap)
		default:
		}
		for range 3 { // none of them blocks
			r.Reread()
		}
		synctest.Wait()
		before := conn.reads.Load()
		<-r.Snapshots()
		r.Reread()
		synctest.Wait()
		<-r.Snapshots()
		if n := conn.reads.Load() - before; n != 2 { // elected and its incarnation
			t.Errorf("%d reads for one request", n)
		}
		before = conn.reads.Load()
		reread := r.Reread
		conn.during.Store(&reread)
		s.do(s.elect(cluster.OpSet, 8, "x-0000000000000001-n_0000000009"))
		synctest.Wait()
		<-r.Snapshots()
		if n := conn.reads.Load() - before; n != 3 { // elected first
			t.Errorf("%d reads for a change with a request in the meantime", n)
		}
	})
}

// Failed reads are retried soon. Without a failure nothing is read again.
func TestReaderRetries(t *testing.T) {
	withRunningReader(t, func(_ *raceSource, conn *flakySession, r *Reader, _ context.CancelFunc, _ <-chan struct{}) {
		<-r.Snapshots()
		conn.fails.Store(1)
		r.Reread()
		synctest.Wait()
		began := time.Now()
		conn.fails.Store(0)
		<-r.Snapshots()
		if took := time.Since(began); took < 3*retryInterval/4 || took > 5*retryInterval/4 {
			t.Errorf("after %s", took)
		}
		select {
		case <-r.Snapshots():
			t.Error("it reads again without a reason")
		case <-time.After(time.Hour):
		}
	})
}

// What may not be read has no watch, and no event says that it may be read from now on.
func TestReaderReadsAgainWhatItMayNotRead(t *testing.T) {
	withRunningReader(t, func(s *raceSource, conn *flakySession, r *Reader, _ context.CancelFunc, _ <-chan struct{}) {
		<-r.Snapshots()
		heir := s.p.Heir()
		conn.denied.Store(&heir)
		s.do(cluster.Op{Kind: cluster.OpCreate, Path: heir, Data: []byte("{}")})
		synctest.Wait()
		if snap := <-r.Snapshots(); !errors.Is(snap.Heir.Err, cluster.ErrNoAuth) {
			t.Fatal(snap.Heir.Err)
		}
		conn.denied.Store(nil)
		began := time.Now()
		if snap := <-r.Snapshots(); !snap.Heir.Exists || time.Since(began) > 5*unwatchedInterval/4 {
			t.Errorf("exists: %t, after %s", snap.Heir.Exists, time.Since(began))
		}
		select {
		case <-r.Snapshots():
			t.Error("it is read again although it is watched")
		case <-time.After(time.Hour):
		}
	})
}

// A reader ends when its context is done or the session has ended.
func TestReaderEnds(t *testing.T) {
	withRunningReader(t, func(_ *raceSource, _ *flakySession, r *Reader, stop context.CancelFunc, over <-chan struct{}) {
		<-r.Snapshots()
		stop()
		<-over
	})
	withRunningReader(t, func(s *raceSource, _ *flakySession, r *Reader, _ context.CancelFunc, over <-chan struct{}) {
		<-r.Snapshots()
		s.Session.Close(t.Context())
		<-over
	})
}

// Up to maxReads reads run concurrently, and the first failure cancels the others. A refusal by the server is not a failure.
func TestConcurrentReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRaceSource(t)
		conn := &slowSession{ReaderSession: s.Session, proceed: make(chan struct{})}
		reads := make([]*Read, maxReads+5)
		for i := range reads {
			reads[i] = &Read{Path: "/none"}
		}
		reads[0] = &Read{Path: s.p.Election(), List: true}
		done := make(chan struct{})
		go func() {
			defer close(done)
			sessionSource{conn}.Read(t.Context(), reads)
		}()
		synctest.Wait()
		if n := conn.under.Load(); n != maxReads {
			t.Errorf("%d concurrent reads", n)
		}
		close(conn.proceed)
		<-done
		if len(reads[0].Names) != 2 || reads[0].Err != nil || reads[0].Stat.ChildVersion == 0 {
			t.Errorf("%+v", reads[0])
		}
		for _, r := range reads[1:] {
			if !errors.Is(r.Err, cluster.ErrNoNode) {
				t.Errorf("%+v", r)
			}
		}
		conn.refused, conn.proceed = cluster.ErrNoAuth, make(chan struct{})
		close(conn.proceed)
		all := []*Read{{Path: "/a"}, {Path: "/b"}}
		sessionSource{conn}.Read(t.Context(), all)
		if !errors.Is(all[0].Err, cluster.ErrNoAuth) || !errors.Is(all[1].Err, cluster.ErrNoAuth) {
			t.Errorf("%v, %v", all[0].Err, all[1].Err)
		}
		for _, refusal := range []error{nil, cluster.ErrNoAuth} { // a refusal, which cancels nothing
			conn.proceed, conn.fail, conn.refusal, conn.refused = make(chan struct{}), "/fails", "/fails", refusal
			both := make(chan struct{})
			all = []*Read{{Path: "/waits"}, {Path: "/fails"}}
			go func() {
				defer close(both)
				sessionSource{conn}.Read(t.Context(), all)
			}()
			synctest.Wait()
			close(conn.proceed)
			<-both
			if !errors.Is(all[0].Err, cluster.ErrNoNode) || !errors.Is(all[1].Err, cmp.Or(refusal, cluster.ErrNoNode)) {
				t.Errorf("%v, %v", all[0].Err, all[1].Err)
			}
		}
		conn.refused, conn.refusal = cluster.ErrNotSent, ""
		conn.proceed = make(chan struct{})
		conn.fail = "/fails"
		all = []*Read{{Path: "/waits"}, {Path: "/fails"}}
		sessionSource{conn}.Read(t.Context(), all)
		if !errors.Is(all[0].Err, context.Canceled) || !errors.Is(all[1].Err, cluster.ErrNotSent) {
			t.Errorf("%v, %v", all[0].Err, all[1].Err)
		}
	})
}

// slowSession is a session whose reads wait.
type slowSession struct {
	ReaderSession
	under   atomic.Int32
	proceed chan struct{}
	fail    string // the path whose read does not wait
	refusal string // the only path that is refused; empty for all
	refused error
}

func (s *slowSession) Get(ctx context.Context, path string, watch bool) ([]byte, cluster.Stat, error) {
	s.under.Add(1)
	if path != s.fail {
		select {
		case <-s.proceed:
		case <-ctx.Done():
			return nil, cluster.Stat{}, ctx.Err()
		}
	}
	if s.refused != nil && (s.refusal == "" || s.refusal == path) {
		return nil, cluster.Stat{}, s.refused
	}
	return s.ReaderSession.Get(ctx, path, watch)
}

func (s *slowSession) Children(ctx context.Context, path string, watch bool) ([]string, cluster.Stat, error) {
	s.under.Add(1)
	<-s.proceed
	return s.ReaderSession.Children(ctx, path, watch)
}
