package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
	"zkelectd/internal/guard"
	"zkelectd/internal/policy"
	"zkelectd/internal/store"
	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/test/zkserver"
	"zkelectd/internal/zk"
)

// crowd is a group whose members' sessions can be ended from outside.
type crowd struct {
	*group
	extras   *extras // nil if all members are in this process
	mu       sync.Mutex
	sessions map[string]guard.Credentials // by node
}

// sessionKeeper is the guard of a member. It remembers the member's session.
type sessionKeeper struct {
	*guard.Client
	crowd *crowd
	id    string
}

func (k sessionKeeper) SetSession(c guard.Credentials) {
	k.crowd.mu.Lock()
	defer k.crowd.mu.Unlock()
	k.crowd.sessions[k.id] = c
}

func scaleAt(ctx context.Context, guardClient *guard.Client, size, rounds int) (s scaled, err error) {
	s.size = size
	g, err := newGroup(ctx, zkserver.Options{Tick: tick, MaxSession: 2 * scaleTimeout})
	if err != nil {
		return s, err
	}
	g.guard = guardClient
	c := &crowd{group: g, sessions: make(map[string]guard.Credentials)}
	end := sync.OnceFunc(func() {
		c.extras.stop()
		g.close()
	})
	defer end()
	var last election
	// All that are elected are in this process: in each round another member is, the oldest one.
	cast := min(size, 2+2*rounds)
	for _, step := range []func() error{
		func() error { return c.gather(ctx, 0, cast) },
		func() (err error) {
			if cast < size {
				c.extras, err = c.startExtras(cast, size)
			}
			return err
		},
		func() error { return c.members(ctx, size) },
		func() (err error) { _, err = c.leader(ctx); return },
		func() (err error) { last, err = c.election(ctx); return },
		func() (err error) { s.busy, err = last.decide(); return },
		func() (err error) { s.leader, err = c.failovers(ctx, size, rounds); return },
		func() error { return c.expire(ctx, firstNode) }, // from here on the leader is the oldest member, so the elector
		func() error { return c.members(ctx, size) },
		func() (err error) { s.both, err = c.failovers(ctx, size, rounds); return },
		func() error { end(); runtime.GC(); return nil }, // what the group leaves behind is not the decision's
		func() (err error) { s.decision, err = last.decide(); return },
	} {
		if err := step(); err != nil {
			return s, err
		}
	}
	return s, nil
}

// firstNode is the oldest member, so the elector. It never leads.
const firstNode = "elector"

// gather starts those members whose numbers are from a number to another one, some at a time, and waits until they are
// registered.
func (c *crowd) gather(ctx context.Context, from, to int) error {
	const atOnce = 20
	for i := from; i < to; i++ {
		id, env := fmt.Sprintf("host-%04d.example.com", i), []string(nil)
		if i == 0 {
			id, env = firstNode, []string{"ZKELECTD_NODE_OBSERVER=true"}
		}
		if err := c.add(id, env...); err != nil {
			return err
		}
		if i == 0 || i%atOnce == 0 || i == to-1 {
			if err := c.members(ctx, i+1); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *crowd) add(id string, env ...string) error {
	env = append(env, "ZKELECTD_POLICY_FAILBACK=manual")
	_, err := c.joinUnder(sessionKeeper{c.guard, c, id}, id, "dc1", scaleTimeout, env...)
	return err
}

// leader waits until a member has acquired leadership and returns its id. It may still wait until every lease is over,
// for which the size of the group does not matter.
func (c *crowd) leader(ctx context.Context) (id string, err error) {
	err = c.until(ctx, func(cur cluster.Stored[cluster.Current], _ time.Time) bool {
		id = cur.Record.Node
		return cur.Readable()
	})
	return id, err
}

// expire ends the session of a member on the server.
func (c *crowd) expire(ctx context.Context, id string) error {
	c.mu.Lock()
	s := c.sessions[id]
	c.mu.Unlock()
	return zk.CloseSession(ctx, zk.SessionHandle{Servers: []string{c.server.Addr()}, Session: s.ID, Password: s.Password})
}

func waitFor(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// election is a group in which the leader is lost, with the same group before.
type election struct {
	paths        cluster.Paths
	policy       *policy.Policy
	before, lost cluster.Snapshot
}

// election returns the election that would follow the loss of the leader.
func (c *crowd) election(ctx context.Context) (election, error) {
	snap, err := store.ReadAll(ctx, c.session, c.paths, false)
	if err != nil {
		return election{}, err
	}
	e := election{paths: c.paths, before: snap, lost: snap}
	leader := snap.Elected.Record.Incarnation
	e.lost.Members = slices.DeleteFunc(slices.Clone(snap.Members), func(m cluster.Member) bool { return m.Name == leader })
	e.lost.Current = cluster.Stored[cluster.Current]{}
	e.policy, err = policy.New(snap.Policy.Record)
	return e, err
}

// decide returns how long the elector takes to choose a successor and to encode the transaction, as a median.
func (l election) decide() (time.Duration, error) {
	var took []time.Duration
	for range 50 {
		e := elector.New(elector.Options{})
		// it remembers the members
		e.Decide(elector.Input{Snapshot: l.before, Policy: l.policy, Now: boottime.Now(), Wall: time.Now()})
		began := time.Now()
		d := e.Decide(elector.Input{Snapshot: l.lost, Policy: l.policy, Now: boottime.Now(), Wall: began})
		if d.Elect == nil {
			return 0, fmt.Errorf("no decision: %s%s", d.Note, d.Newer)
		}
		l.paths.ElectTx(l.lost, *d.Elect, d.Fence)
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return quantile(took, 0.5), nil
}

// failovers ends the session of one leader after another, and measures the time without a leader.
func (c *crowd) failovers(ctx context.Context, size, rounds int) (median failovers, err error) {
	var elected, acquired []time.Duration
	for range rounds {
		leader, err := c.leader(ctx)
		if err != nil {
			return median, err
		}
		if err := c.expire(ctx, leader); err != nil {
			return median, err
		}
		f, err := c.failover(ctx, leader)
		if err != nil {
			return median, err
		}
		elected, acquired = append(elected, f.elected), append(acquired, f.acquired)
		if err := c.members(ctx, size); err != nil { // it is back
			return median, err
		}
		if err := waitFor(ctx, time.Second); err != nil { // the roster is written
			return median, err
		}
	}
	slices.Sort(elected)
	slices.Sort(acquired)
	return failovers{quantile(elected, 0.5), quantile(acquired, 0.5)}, nil
}

// failover waits until a leader is gone and another member has acquired leadership, and measures both on the clock of
// this machine, which is the server's, too: a leader is gone when this session sees it.
func (c *crowd) failover(ctx context.Context, from string) (f failovers, err error) {
	var gone time.Time
	err = c.until(ctx, func(cur cluster.Stored[cluster.Current], now time.Time) bool {
		if gone.IsZero() && (!cur.Exists || cur.Record.Node != from) {
			gone = now
		}
		f.acquired = now.Sub(gone)
		return cur.Readable() && cur.Record.Node != from
	})
	if err != nil {
		return f, err
	}
	_, stat, err := c.session.Get(ctx, c.paths.Elected(), false)
	f.elected = max(0, stat.Time.Sub(gone))
	if *verbose {
		fmt.Fprintf(os.Stderr, "bench: %s is gone: elected after %s, acquired after %s\n", from, f.elected, f.acquired)
	}
	return f, err
}
