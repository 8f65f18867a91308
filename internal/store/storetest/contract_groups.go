package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/cluster/renewal"
	"zkelectd/internal/transition"
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
		if !errors.Is(err, cluster.ErrNotSent) || !errors.Is(readErr, cluster.ErrNotSent) || !errors.Is(listErr, cluster.ErrNotSent) {
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

// mergedRenewals tests what [renewal.Merger] relies on: one transaction has the RENEWs of several groups, and a refusal names the
// first operation that is to blame.
func mergedRenewals(t *testing.T, e Env) {
	c := e.Connect(t)
	m := renewal.NewMerger(func() float64 { return 0 })
	const groups = 5
	var paths [groups]cluster.Paths
	post := func(id int) {
		ops := paths[id].RenewTx(cluster.HeldVersions{Self: "a-0000000000000001-n_0000000000"})
		m.Post(0, id, transition.Renew{Ops: ops, Due: time.Second, Deadline: time.Minute + time.Duration(id)})
	}
	for id := range groups {
		p := cluster.Paths{Root: fmt.Sprintf("%s/g%d", e.Root, id)}
		paths[id] = p
		do(t, c, op(cluster.OpCreate, p.Root, 0), op(cluster.OpCreate, p.Election(), 0), op(cluster.OpCreate, p.Leader(), 0),
			op(cluster.OpCreate, p.Elected(), 0), ephemeral(p.Current()), ephemeral(p.Incarnation("a-0000000000000001-n_0000000000")))
	}
	// round sends all requests, and returns the results and the number of transactions.
	round := func() (results map[int]error, sent int) {
		results = make(map[int]error)
		for id := range groups {
			post(id)
		}
		for batches := m.Take(time.Second); len(batches) > 0; batches = batches[1:] {
			sent++
			_, err := c.Do(context.Background(), batches[0].Ops...)
			answers, again := m.Done(time.Second, batches[0], err)
			for _, a := range answers {
				results[a.ID] = a.Err
			}
			batches = append(batches, again...)
		}
		return results, sent
	}
	if results, sent := round(); sent != 1 || len(results) != groups || results[0] != nil || results[4] != nil {
		t.Errorf("%d transactions: %v", sent, results)
	}
	// One group has a new decision, one has lost its incarnation, and one has lost current.
	do(t, c, op(cluster.OpSet, paths[1].Elected(), 0))
	do(t, c, op(cluster.OpDelete, paths[3].Incarnation("a-0000000000000001-n_0000000000"), 0))
	do(t, c, op(cluster.OpDelete, paths[4].Current(), 0))
	results, sent := round()
	for id, want := range []error{nil, cluster.ErrBadVersion, nil, cluster.ErrNoNode, cluster.ErrNoNode} {
		if err, answered := results[id]; !answered || !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("group %d: %v, want %v", id, err, want)
		}
	}
	if sent != groups+1 { // merged, then a check of each other group, then the rest
		t.Errorf("%d transactions", sent)
	}
}
