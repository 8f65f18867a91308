package group

import (
	"context"
	"slices"
	"sync"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/cluster/clustertest"
	"zkelectd/internal/status"
	"zkelectd/internal/transition"
)

// contain reports whether there is an operation of a kind on a znode.
func contain(ops []cluster.Op, kind cluster.OpKind, path string) bool {
	return slices.ContainsFunc(ops, func(op cluster.Op) bool { return op.Kind == kind && op.Path == path })
}

// blindSession is that of a candidate that does not see the fence and current from some time on. It keeps the ACQUIREs.
type blindSession struct {
	memorySession
	state *blindState
}

type blindState struct {
	mu       sync.Mutex
	blind    chan struct{} // closed when it sees again; nil if it sees
	acquires []acquire
}

// acquire is an ACQUIRE that was answered.
type acquire struct {
	version int32 // of the fence that it replaces
	err     error
}

func (s blindSession) Do(ctx context.Context, ops ...cluster.Op) ([]cluster.Result, error) {
	results, err := s.memorySession.Do(ctx, ops...)
	if p := (cluster.Paths{Root: "/g"}); contain(ops, cluster.OpCreate, p.Current()) {
		s.state.mu.Lock()
		defer s.state.mu.Unlock()
		s.state.acquires = append(s.state.acquires, acquire{ops[cluster.ResultFence].Version, err})
	}
	return results, err
}

func (s blindSession) Get(ctx context.Context, path string, watch bool) ([]byte, cluster.Stat, error) {
	s.state.mu.Lock()
	blind := s.state.blind
	s.state.mu.Unlock()
	if p := (cluster.Paths{Root: "/g"}); blind != nil && (path == p.Leader() || path == p.Current()) {
		select {
		case <-blind:
		case <-ctx.Done():
		}
	}
	return s.memorySession.Get(ctx, path, watch)
}

// close makes the session blind. The function makes it see again.
func (s *blindState) close() (open func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	blind := make(chan struct{})
	s.blind = blind
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.blind = nil
		close(blind)
	}
}

// sent returns the ACQUIREs so far.
func (s *blindState) sent() []acquire {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.acquires)
}

// successor makes a leader leave that can't release before letGo is closed. The candidate has read that it still leads.
func successor(t *testing.T) (server *clustertest.Server, a, b *member, state *blindState, letGo chan struct{}) {
	t.Helper()
	server, state, letGo = clustertest.NewServer(), &blindState{}, make(chan struct{})
	a = joinWithSession(t, server, "a", generous, func(s memorySession) Session { return holding{s, letGo} })
	a.until(t, "a leads", status.Daemon.Leads)
	b = joinWithSession(t, server, "b", 0, func(s memorySession) Session { return blindSession{s, state} })
	a.until(t, "a sees b", func(v status.Daemon) bool { return v.Sites["dc1"].Eligible == 2 })
	a.Stop("maintenance")
	b.until(t, "b waits", func(v status.Daemon) bool { return v.Phase == string(transition.Waiting) })
	return server, a, b, state, letGo
}

// The candidate sends ACQUIRE as soon as it knows that current has changed. It reads nothing before that.
func TestACandidateAcquiresBeforeItReadsTheRelease(t *testing.T) {
	server, _, b, state, letGo := successor(t)
	before := version(t, server)
	open := state.close()
	close(letGo)
	b.until(t, "ACQUIRE", func(status.Daemon) bool { return len(state.sent()) > 0 })
	if got := state.sent()[0]; got.err != nil || got.version != cluster.CleanVersion(before) {
		t.Errorf("over version %d after %d: %v", got.version, before, got.err)
	}
	open()
	b.until(t, "b leads", status.Daemon.Leads)
	if all := state.sent(); len(all) != 1 {
		t.Errorf("%+v", all)
	}
	if f := fence(t, server, cluster.Paths{Root: "/g"}); f.Node != "b" || f.Wait != "" {
		t.Errorf("%+v", f)
	}
}

// version reads the version of the fence from another session.
func version(t *testing.T, server *clustertest.Server) int32 {
	t.Helper()
	s := server.Connect()
	defer s.Close(t.Context())
	_, stat, err := s.Get(t.Context(), cluster.Paths{Root: "/g"}.Leader(), false)
	if err != nil {
		t.Fatal(err)
	}
	return stat.Version
}

// current goes without a release: that ACQUIRE is refused, and the next one waits for the lease (S1).
func TestACandidateWaitsForALeaderThatHasNotReleased(t *testing.T) {
	server, a, b, state, _ := successor(t)
	before := version(t, server)
	open := state.close()
	a.conn.Close(t.Context())
	b.until(t, "ACQUIRE", func(status.Daemon) bool { return len(state.sent()) > 0 })
	open()
	b.until(t, "the lease wait", func(v status.Daemon) bool { return v.Phase == string(transition.LeaseWait) })
	all := state.sent()
	if len(all) != 2 || all[0].err == nil || all[0].version != cluster.CleanVersion(before) || all[1].err != nil || all[1].version != before {
		t.Errorf("after version %d: %+v", before, all)
	}
	if f := fence(t, server, cluster.Paths{Root: "/g"}); f.State != cluster.FenceHeld || f.Node != "b" || f.Owed <= 0 {
		t.Errorf("%+v", f)
	}
}

// lateSession is that of a candidate whose answers about the fence and current come late, from its election on. It has no others.
type lateSession struct {
	blindSession
	held chan string   // receives what was read
	open chan struct{} // closed when the answers come
}

func (s lateSession) Get(ctx context.Context, path string, watch bool) ([]byte, cluster.Stat, error) {
	p := cluster.Paths{Root: "/g"}
	data, stat, err := s.blindSession.Get(ctx, path, watch)
	if path != p.Leader() && path != p.Current() {
		return data, stat, err
	}
	text, electedStat, electedErr := s.memorySession.Get(ctx, p.Elected(), false)
	elected := cluster.ReadStored[cluster.Elected](p.Elected(), text, electedStat, electedErr == nil)
	select {
	case <-s.open:
	default:
		if elected.Record.Node == "b" {
			s.held <- path
			<-s.open
		}
	}
	return data, stat, err
}

// The leader releases while the candidate still reads that it leads: also then the candidate sends ACQUIRE without a further read.
func TestACandidateAcquiresFromWhatItReadLate(t *testing.T) {
	for range 5 { // the loop takes what waits in any order
		server, state, letGo := clustertest.NewServer(), &blindState{}, make(chan struct{})
		held, open := make(chan string, 16), make(chan struct{})
		a := joinWithSession(t, server, "a", generous, func(s memorySession) Session { return holding{s, letGo} })
		a.until(t, "a leads", status.Daemon.Leads)
		b := joinWithSession(t, server, "b", 0, func(s memorySession) Session { return lateSession{blindSession{s, state}, held, open} })
		a.until(t, "a sees b", func(v status.Daemon) bool { return v.Sites["dc1"].Eligible == 2 })
		before := version(t, server)
		a.Stop("maintenance")
		for seen := map[string]bool{}; len(seen) < 2; {
			seen[<-held] = true
		}
		close(letGo)
		a.until(t, "the release", func(status.Daemon) bool { return version(t, server) == cluster.CleanVersion(before) })
		see, busy := state.close(), make(chan struct{})
		b.background.runInLoop(func() { <-busy })
		close(open)
		a.until(t, "the offer", func(status.Daemon) bool { return len(b.reader.Snapshots()) > 0 && len(b.reader.Vacated()) > 0 })
		close(busy)
		b.until(t, "ACQUIRE", func(status.Daemon) bool { return len(state.sent()) > 0 })
		see()
		b.until(t, "b leads", status.Daemon.Leads)
		if all := state.sent(); len(all) != 1 || all[0].version != cluster.CleanVersion(before) {
			t.Errorf("%+v after version %d", all, before)
		}
	}
}

// holding delays RELEASE until it is let go.
type holding struct {
	memorySession
	letGo chan struct{}
}

func (s holding) Do(ctx context.Context, ops ...cluster.Op) ([]cluster.Result, error) {
	current := (cluster.Paths{Root: "/g"}).Current()
	if slices.ContainsFunc(ops, func(op cluster.Op) bool { return op.Kind == cluster.OpDelete && op.Path == current }) {
		select {
		case <-s.letGo:
		case <-ctx.Done():
		}
	}
	return s.memorySession.Do(ctx, ops...)
}
