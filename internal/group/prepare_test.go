package group

import (
	"context"
	"reflect"
	"slices"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/cluster/clustertest"
	"zkelectd/internal/status"
	"zkelectd/internal/worker"
)

// refusing makes the first ACQUIRE fail: another write came first.
type refusing struct {
	memorySession
	left int
}

func (s *refusing) Do(ctx context.Context, ops ...cluster.Op) ([]cluster.Result, error) {
	current := (cluster.Paths{Root: "/g"}).Current()
	if s.left > 0 && slices.ContainsFunc(ops, func(op cluster.Op) bool { return op.Kind == cluster.OpCreate && op.Path == current }) {
		s.left--
		return nil, &cluster.TxError{Index: 1, Op: ops[1], Err: cluster.ErrBadVersion}
	}
	return s.memorySession.Do(ctx, ops...)
}

// The start of the work is prepared with ACQUIRE, and the work is started as it was prepared, but only with the lease (S1). What was
// prepared for an ACQUIRE that is refused is discarded.
func TestTheStartIsPrepared(t *testing.T) {
	t.Parallel()
	for _, refused := range []int{0, 1} {
		work := worker.Spec{Command: []string{"/bin/work"}, Env: map[string]string{"X": "y"}}
		a := joinWithWork(t, clustertest.NewServer(), "a", 0, work, func(s memorySession) Session { return &refusing{s, refused} })
		want := []string{"prepare", "lease", "start"}
		if refused > 0 {
			want = append([]string{"prepare", "discard"}, want...)
		}
		a.until(t, "the start", func(status.Daemon) bool { return len(a.guard.names()) >= len(want) })
		if got := a.guard.names()[:len(want)]; !slices.Equal(got, want) {
			t.Errorf("refused %d times: %q, not %q", refused, got, want)
		}
		a.guard.mu.Lock()
		prepared, started := a.guard.calls[len(want)-3].opt, a.guard.calls[len(want)-1].opt
		a.guard.mu.Unlock()
		if len(prepared.Env) == 0 || !reflect.DeepEqual(prepared, started) {
			t.Errorf("prepared %+v, started %+v", prepared, started)
		}
	}
}

// Work with a pre_start hook, which comes first, or with a socket for its readiness is not prepared.
func TestTheStartIsNotPrepared(t *testing.T) {
	t.Parallel()
	hooked := worker.Spec{Command: []string{"/bin/work"}, Hooks: worker.Hooks{PreStart: []string{"/bin/hook"}, Timeout: time.Minute}}
	notifying := worker.Spec{Command: []string{"/bin/work"}}
	notifying.Ready.Notify = true
	for name, work := range map[string]worker.Spec{"a hook": hooked, "a socket": notifying, "nothing": {}} {
		a := joinWithWork(t, clustertest.NewServer(), "a", 0, work, func(s memorySession) Session { return s })
		a.until(t, "the lease", func(status.Daemon) bool { return len(a.guard.names()) > 0 })
		if got := a.guard.names(); got[0] != "lease" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// The heir prepares the start of its work when nothing has happened for a moment, and discards that when it is the heir no more. When it
// is elected, it prepares for its term without discarding anything.
func TestTheHeirPrepares(t *testing.T) {
	t.Parallel()
	for _, elected := range []bool{true, false} {
		server := clustertest.NewServer()
		a := joinWithWork(t, server, "a", generous, worker.Spec{}, func(s memorySession) Session { return s })
		a.until(t, "a leads", status.Daemon.Leads)
		b := joinWithWork(t, server, "b", 0, worker.Spec{Command: []string{"/bin/work"}}, func(s memorySession) Session { return s })
		b.until(t, "b prepares", func(status.Daemon) bool { return b.guard.heir.Load() != nil })
		if got := b.guard.names(); len(got) > 0 {
			t.Errorf("before: %q", got)
		}
		want := []string{"discard"}
		if elected {
			want = []string{"prepare", "lease", "start"}
			a.Stop("maintenance")
		} else {
			b.Stop("it is not needed")
		}
		b.until(t, want[0], func(status.Daemon) bool { return len(b.guard.names()) >= len(want) })
		if got := b.guard.names()[:len(want)]; !slices.Equal(got, want) {
			t.Errorf("%q, not %q", got, want)
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

// A member that is elected prepares the start of its work while its predecessor has not released, and starts it as prepared. If it is
// not to start it any more, it discards that.
func TestTheStartIsPreparedWhileThePredecessorWorks(t *testing.T) {
	t.Parallel()
	for _, stopped := range []bool{false, true} {
		server, letGo := clustertest.NewServer(), make(chan struct{})
		a := joinWithWork(t, server, "a", generous, worker.Spec{}, func(s memorySession) Session { return holding{s, letGo} })
		a.until(t, "a leads", status.Daemon.Leads)
		b := joinWithWork(t, server, "b", 0, worker.Spec{Command: []string{"/bin/work"}}, func(s memorySession) Session { return s })
		a.until(t, "a sees b", func(v status.Daemon) bool { return v.Sites["dc1"].Eligible == 2 })
		a.Stop("maintenance")
		calls := func(want ...string) {
			t.Helper()
			b.until(t, want[len(want)-1], func(status.Daemon) bool { return len(b.guard.names()) >= len(want) })
			if got := b.guard.names()[:len(want)]; !slices.Equal(got, want) {
				t.Errorf("%q, not %q", got, want)
			}
		}
		calls("prepare")
		if stopped {
			b.Stop("it is not needed")
			calls("prepare", "discard")
			close(letGo)
			continue
		}
		close(letGo)
		calls("prepare", "lease", "start")
		b.guard.mu.Lock()
		prepared, started := b.guard.calls[0].opt, b.guard.calls[2].opt
		b.guard.mu.Unlock()
		if len(prepared.Env) == 0 || !reflect.DeepEqual(prepared, started) {
			t.Errorf("prepared %+v, started %+v", prepared, started)
		}
	}
}
