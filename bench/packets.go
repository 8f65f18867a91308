package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"zkelectd/internal/guard"
	"zkelectd/internal/test/zkserver"
)

// sessionTimeout is long, so that there are few pings and renewals.
const sessionTimeout = 10 * time.Minute

// packets counts the packets of the server when one unrelated member joins and leaves, in groups of three sizes. A thundering herd
// would be visible as a number that grows with the group.
func packets(ctx context.Context, t *table, guardClient *guard.Client) error {
	costs := make(map[int]float64)
	for _, size := range []int{10, 100, 500} {
		cost, err := packetsAt(ctx, guardClient, size)
		if err != nil {
			return fmt.Errorf("%d members: %w", size, err)
		}
		costs[size] = cost
		t.add(fmt.Sprintf("packets for a member coming and leaving, of %d", size), fmt.Sprintf("%.1f", cost), "of which the member itself sends and gets most", "", true)
	}
	d := costs[500] - costs[10]
	t.add("packets, 500 members less 10", fmt.Sprintf("%.1f", d), fmt.Sprintf("%.1f at 10 members", costs[10]), "<= 10", d <= 10)
	return nil
}

func packetsAt(ctx context.Context, guardClient *guard.Client, size int) (float64, error) {
	g, err := newGroup(ctx, zkserver.Options{Tick: 2 * time.Second, MaxSession: 2 * sessionTimeout})
	if err != nil {
		return 0, err
	}
	g.guard = guardClient
	defer g.close()
	c, err := newCounter(ctx, g)
	if err != nil {
		return 0, err
	}
	for i := range size {
		if _, err := g.join(fmt.Sprintf("n%03d", i), "dc1", sessionTimeout); err != nil {
			return 0, err
		}
		if err := g.members(ctx, i+1); err != nil {
			return 0, err
		}
	}
	if _, err := c.settled(ctx); err != nil {
		return 0, err
	}
	var costs []float64
	for i := range 7 {
		before, err := c.settled(ctx)
		if err != nil {
			return 0, err
		}
		d, err := g.join(fmt.Sprintf("unrelated%d", i), "dc1", sessionTimeout)
		if err != nil {
			return 0, err
		}
		if err := g.members(ctx, size+1); err != nil {
			return 0, err
		}
		middle, err := c.settled(ctx)
		if err != nil {
			return 0, err
		}
		d.Stop("it leaves")
		after, err := c.settled(ctx)
		if err != nil {
			return 0, err
		}
		costs = append(costs, after-middle+middle-before)
	}
	slices.Sort(costs)
	return costs[len(costs)/2], nil // the median, since a ping or a periodic read may happen during a round
}

// counter counts a server's packets, except for those of the counting itself.
type counter struct {
	g          *group
	reads, own int64 // the counts read so far, and the packets of each
}

func newCounter(ctx context.Context, g *group) (*counter, error) {
	c := &counter{g: g}
	// Only an idle session exists, so all new packets are those of the counting.
	first, err := c.total(ctx)
	if err != nil {
		return nil, err
	}
	second, err := c.total(ctx)
	c.own = second - first
	return c, err
}

func (c *counter) total(ctx context.Context) (int64, error) {
	stats, err := c.g.server.Stats(ctx)
	c.reads++
	return stats["zk_packets_received"] + stats["zk_packets_sent"] - c.reads*c.own, err
}

// settled waits until the server has been idle for some time, and returns the packets so far.
func (c *counter) settled(ctx context.Context) (float64, error) {
	last, idle := int64(-1), 0
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for range 600 {
		n, err := c.total(ctx)
		if err != nil {
			return 0, err
		}
		if idle++; n != last {
			last, idle = n, 0
		}
		if idle == 6 {
			return float64(n), nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return 0, fmt.Errorf("the server does not become idle, after %d packets", last)
}
