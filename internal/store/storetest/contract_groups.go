package storetest

import (
	"context"
	"errors"
	"testing"

	"zkelectd/internal/cluster"
)

// handles tests the groups that share a session: each has its own hints and its own end.
func handles(t *testing.T, e Env) {
	c, other := e.Connect(t), e.Connect(t)
	a, b := cluster.Paths{Root: e.Root + "/a"}, cluster.Paths{Root: e.Root + "/ab"}
	do(t, c, op(cluster.OpCreate, a.Root, 0), op(cluster.OpCreate, b.Root, 0))
	ga, gb := e.Group(c, a), e.Group(c, b)
	for path, reader := range map[string]cluster.Reader{a.Leader(): ga, b.Leader(): gb, e.Root + "/c": c} {
		if _, _, err := reader.Get(context.Background(), path, true); !errors.Is(err, cluster.ErrNoNode) {
			t.Fatal(err)
		}
	}
	do(t, other, op(cluster.OpCreate, a.Leader(), 0))
	do(t, other, op(cluster.OpCreate, b.Leader(), 0))
	do(t, other, op(cluster.OpCreate, e.Root+"/c", 0))
	for path, watcher := range map[string]cluster.Watcher{a.Leader(): ga, b.Leader(): gb, e.Root + "/c": c} {
		if all := hinted(t, watcher, path); len(all) != 1 {
			t.Errorf("the owner of %s got %v", path, all)
		}
	}
	if err := ga.Sync(context.Background()); err != nil {
		t.Error(err)
	}

	ga.Abandon()
	again := e.Group(c, a)
	for range 2 { // after Abandon and after Close
		_, err := ga.Do(context.Background(), op(cluster.OpCreate, a.Elected(), 0))
		_, _, readErr := ga.Get(context.Background(), a.Leader(), true)
		_, _, listErr := ga.Children(context.Background(), a.Root, true)
		if !errors.Is(err, cluster.ErrNotSent) || !errors.Is(readErr, cluster.ErrNotSent) ||
			!errors.Is(listErr, cluster.ErrNotSent) {
			t.Errorf("requests of an abandoned handle: %v, %v, %v", err, readErr, listErr)
		}
		ga.Close()
	}
	if _, _, err := again.Get(context.Background(), a.Leader(), true); err != nil {
		t.Error(err)
	}
	do(t, other, op(cluster.OpSet, a.Leader(), 0))
	hinted(t, again, a.Leader())
	if h := ga.TakeHints(); h.All || len(h.Paths) > 0 {
		t.Errorf("a closed handle got %v", h)
	}
	if exists(t, c, a.Elected()) {
		t.Error("an abandoned handle has written")
	}
}
