package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"zkelectd/internal/guard"
	"zkelectd/internal/zkserver"
)

// sessionTimeout is long, so that pings and renewals hardly count.
const sessionTimeout = 10 * time.Minute

// packets counts what one unrelated member costs the server when it leaves and comes back, in groups of three sizes: a
// herd would show as a cost that grows with the group.
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
	return costs[len(costs)/2], nil // the median, as a ping or the readers' slow net may fall into a round
}

// counter counts a server's packets, less those that asking for the count takes.
type counter struct {
	g          *group
	asked, own int64
}

func newCounter(ctx context.Context, g *group) (*counter, error) {
	c := &counter{g: g}
	// With nobody there but a session that is silent, what the count grows by is our own doing.
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
	c.asked++
	return stats["zk_packets_received"] + stats["zk_packets_sent"] - c.asked*c.own, err
}

// settled waits until the server has been quiet for a while, and returns the packets so far.
func (c *counter) settled(ctx context.Context) (float64, error) {
	last, quiet := int64(-1), 0
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for range 600 {
		n, err := c.total(ctx)
		if err != nil {
			return 0, err
		}
		if quiet++; n != last {
			last, quiet = n, 0
		}
		if quiet == 6 {
			return float64(n), nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return 0, fmt.Errorf("the server is never quiet, at %d packets", last)
}
