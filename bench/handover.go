package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/test/zkserver"
)

// handover measures planned handovers: moves against the floor of the protocol, and stops of the leader against a plain
// lock.
func handover(ctx context.Context, t *table, binary string, rounds int) error {
	if err := moves(ctx, t, binary, rounds); err != nil {
		return err
	}
	return compareWithLock(ctx, t, binary, rounds)
}

// moves measures planned moves between two daemons with a trivial child: from RELEASE of the old leader, as an observer
// sees it, to READY of the new one. The floor is the minimum for any implementation of the protocol: its four writes,
// one after the other, on the same server, measured alternately with the moves.
func moves(ctx context.Context, t *table, binary string, rounds int) error {
	g, err := newGroup(ctx, zkserver.Options{})
	if err != nil {
		return err
	}
	defer g.close()
	for _, id := range []string{"a", "b"} {
		n, err := g.spawn(binary, id, 20*time.Second)
		if err != nil {
			return err
		}
		defer n.kill()
	}
	if err := g.publish(ctx, map[string]int{"a": 1}); err != nil {
		return err
	}
	if err := g.leads(ctx, "a"); err != nil {
		return err
	}
	if err := g.members(ctx, 2); err != nil {
		return err
	}
	var gaps, whole, floors []time.Duration
	for i := range rounds {
		from, to := "a", "b"
		if i%2 == 1 {
			from, to = to, from
		}
		floor, err := g.floor(ctx)
		if err != nil {
			return err
		}
		began := time.Now()
		if err := g.publish(ctx, map[string]int{to: 1}); err != nil {
			return err
		}
		gap, err := g.gap(ctx, from)
		if err != nil {
			return err
		}
		gaps, whole, floors = append(gaps, gap), append(whole, time.Since(began)), append(floors, floor)
	}
	slices.Sort(gaps)
	slices.Sort(whole)
	slices.Sort(floors)
	ratio := float64(quantile(gaps, 0.5)) / float64(quantile(floors, 0.5))
	against := fmt.Sprintf("floor, four writes: p50 %s, p99 %s", ms(quantile(floors, 0.5)), ms(quantile(floors, 0.99)))
	t.add(fmt.Sprintf("planned handover, RELEASE to READY, p50 of %d", rounds), ms(quantile(gaps, 0.5)), against, "", true)
	t.add("planned handover, p99", ms(quantile(gaps, 0.99)), fmt.Sprintf("%.2f of the floor's p99",
		float64(quantile(gaps, 0.99))/float64(quantile(floors, 0.99))), "", true)
	t.add("planned handover, p50 against the floor", fmt.Sprintf("%.2f", ratio), against, "<= 2", ratio <= 2)
	t.add("whole move, policy written to READY, p50", ms(quantile(whole, 0.5)), fmt.Sprintf("%.2f of the floor",
		float64(quantile(whole, 0.5))/float64(quantile(floors, 0.5))), "", true)
	return nil
}

// publish sets the policy in force.
func (g *group) publish(ctx context.Context, sites map[string]int) error {
	rec := cluster.Policy{Revision: time.Now().UnixNano(), Rules: cluster.Rules{Type: "priority", Sites: sites},
		By: "bench", Time: time.Now()}
	op := cluster.Op{Kind: cluster.OpSet, Path: g.paths.Policy(), Version: cluster.AnyVersion, Data: cluster.Encode(&rec)}
	if _, err := g.session.Do(ctx, op); err == nil {
		return nil
	}
	op.Kind = cluster.OpCreate
	_, err := g.session.Do(ctx, op)
	if err != nil {
		// The elector has created it meanwhile.
		op.Kind = cluster.OpSet
		_, err = g.session.Do(ctx, op)
	}
	return err
}

// members waits until n daemons are registered, at least.
func (g *group) members(ctx context.Context, n int) error {
	return g.incarnations(ctx, func(count int) bool { return count >= n })
}

// incarnations waits for a number of incarnations. Those of lost hosts are among them until their sessions end.
func (g *group) incarnations(ctx context.Context, enough func(count int) bool) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		names, _, err := g.session.Children(ctx, g.paths.Election(), true)
		if err != nil {
			return err
		}
		if enough(len(names)) {
			return nil
		}
		select {
		case <-g.session.Wake():
			g.session.TakeHints()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// floor measures four writes of the sizes and kinds of ELECT, RELEASE, ACQUIRE and READY, one after the other.
func (g *group) floor(ctx context.Context) (time.Duration, error) {
	dir := g.paths.Root + "/floor"
	set := func(name string) cluster.Op {
		return cluster.Op{Kind: cluster.OpSet, Path: dir + name, Version: cluster.AnyVersion, Data: make([]byte, 500)}
	}
	check := cluster.Op{Kind: cluster.OpCheck, Path: g.paths.Root, Version: cluster.AnyVersion}
	if _, _, err := g.session.Get(ctx, dir, false); err != nil {
		for _, path := range []string{dir, dir + "/elected"} {
			if _, err := g.session.Do(ctx, cluster.Op{Kind: cluster.OpCreate, Path: path}); err != nil {
				return 0, err
			}
		}
	}
	current := cluster.Op{Kind: cluster.OpCreate, Path: dir + "/current", Ephemeral: true, Data: make([]byte, 200)}
	remove := cluster.Op{Kind: cluster.OpDelete, Path: dir + "/current", Version: cluster.AnyVersion}
	began := time.Now()
	for _, tx := range [][]cluster.Op{
		{check, check, check, set("/elected")}, {check, set(""), current}, {check, check, set(""), set("/current")},
		{check, set(""), remove},
	} {
		if _, err := g.session.Do(ctx, tx...); err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}
