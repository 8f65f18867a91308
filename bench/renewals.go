package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"zkelectd/internal/boottime"
	"zkelectd/internal/cluster"
	"zkelectd/internal/cluster/renewal"
	"zkelectd/internal/cluster/zkstore"
	"zkelectd/internal/test/zkserver"
)

const renewalRounds = 50

// renewals measures merged RENEWs of one session: from the moment before the first transaction is sent to the last answer.
func renewals(ctx context.Context, t *table, _ string) error {
	g, err := newGroup(ctx, zkserver.Options{})
	if err != nil {
		return err
	}
	defer g.close()
	var members []renewed
	var one time.Duration
	for _, n := range []int{1, manyGroups, 1000} {
		for len(members) < n {
			m, err := g.renewed(ctx, fmt.Sprintf("%s/g%04d", groupsBase, len(members)))
			if err != nil {
				return err
			}
			defer m.handle.Close()
			members = append(members, m)
		}
		var all []time.Duration
		for range renewalRounds {
			took, err := renewAll(ctx, members)
			if err != nil {
				return err
			}
			all = append(all, took)
		}
		slices.Sort(all)
		p50 := quantile(all, 0.5)
		if n == 1 {
			one = p50
		}
		t.add(fmt.Sprintf("RENEW of %d groups, p50 of %d", n, renewalRounds), ms(p50),
			fmt.Sprintf("%.1f times that of 1 group; p99 %s", float64(p50)/float64(one), ms(quantile(all, 0.99))), "", true)
	}
	return nil
}

// renewed is a group with the znodes that a RENEW checks.
type renewed struct {
	handle *zkstore.Group
	ops    []cluster.Op
}

func (g *group) renewed(ctx context.Context, root string) (m renewed, err error) {
	p := cluster.Paths{Root: root}
	if err := zkstore.Init(ctx, g.session, p, "the benchmark"); err != nil {
		return m, err
	}
	const self = "n1-0000000000000001-n_0000000000"
	_, fence, err := g.session.Get(ctx, p.Leader(), false)
	if err != nil {
		return m, err
	}
	for _, path := range []string{p.Incarnation(self), p.Elected(), p.Current()} {
		op := cluster.Op{Kind: cluster.OpCreate, Path: path, Ephemeral: path != p.Elected(), Data: make([]byte, 200)}
		if _, err := g.session.Do(ctx, op); err != nil {
			return m, err
		}
	}
	return renewed{g.session.Group(p), p.RenewTx(cluster.HeldVersions{Self: self, Fence: fence.Version})}, nil
}

// renewAll renews all groups, and returns how long that took.
func renewAll(ctx context.Context, members []renewed) (time.Duration, error) {
	answers := make(chan renewal.Result, len(members))
	due := boottime.Now() + 50*time.Millisecond // when all have been posted
	for _, m := range members {
		m.handle.Renew(renewal.Request{Ops: m.ops, Due: due, Deadline: due + time.Minute}, func(r renewal.Result) { answers <- r })
	}
	sent := due + time.Hour
	for range members {
		select {
		case r := <-answers:
			if r.Err != nil {
				return 0, r.Err
			}
			sent = min(sent, r.Sent)
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return boottime.Now() - sent, nil
}
