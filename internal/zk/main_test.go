package zk

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/test/testhelper"
	"zkelectd/internal/test/zkserver"
)

// shared is a server for the tests that do not damage it.
var shared zkserver.Lazy

func TestMain(m *testing.M) { testhelper.RunMain(m, shared.Stop) }

func open(t *testing.T, opt Options) *Session {
	t.Helper()
	if opt.Servers == nil {
		opt.Servers = []string{shared.Addr()}
	}
	if opt.Timeout == 0 {
		opt.Timeout = 10 * time.Second
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s, err := Open(ctx, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeSession(t, s) })
	return s
}

func closeSession(t *testing.T, s *Session) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}

var roots atomic.Int32

// root creates a new group on the shared server.
func root(t testing.TB, s cluster.ReadWriter) cluster.Paths {
	t.Helper()
	p := cluster.Paths{Root: fmt.Sprintf("/test%d", roots.Add(1))}
	ensureTree(t, s, p)
	return p
}

// ensureTree creates the persistent znodes of a group.
func ensureTree(t testing.TB, s cluster.ReadWriter, p cluster.Paths) {
	t.Helper()
	for _, path := range p.Skeleton() {
		if _, err := s.Do(t.Context(), cluster.Op{Kind: cluster.OpCreate, Path: path, Data: []byte{}}); err != nil {
			t.Fatal(err)
		}
	}
}

// register registers a member, as package store does it.
func register(t testing.TB, s *Session, p cluster.Paths, id string) (cluster.Incarnation, error) {
	t.Helper()
	results, err := s.Do(t.Context(), p.RegisterTx(cluster.Node{ID: id, Instance: cluster.NewInstance(1)})...)
	if err != nil {
		return cluster.Incarnation{}, err
	}
	return cluster.ParseIncarnation(strings.TrimPrefix(results[len(results)-1].Path, p.Election()+"/"))
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	testhelper.Eventually(t, 30*time.Second, what, ok)
}

func ended(s *Session) func() bool { return func() bool { return s.Err() != nil } }

func contains(t *testing.T, err error, words ...string) {
	t.Helper()
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("error %v lacks %q", err, w)
		}
	}
}
