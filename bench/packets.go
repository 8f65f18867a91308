package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"zkelectd/internal/zkserver"
)

// sessionTimeout is long, so that pings and renewals hardly count.
const sessionTimeout = 10 * time.Minute

// packets counts what one unrelated member costs the server when it leaves and comes back, in groups of three sizes: a
// herd would show as a cost that grows with the group.
func packets(ctx context.Context, t *table) error {
	costs := make(map[int]float64)
	for _, size := range []int{10, 100, 500} {
		cost, err := packetsAt(ctx, size)
		if err != nil {
			return fmt.Errorf("%d members: %w", size, err)
		}
		costs[size] = cost
		t.add(fmt.Sprintf("packets for a member leaving and coming, of %d", size), fmt.Sprintf("%.1f", cost), "less those of a quiet span of the same length", "", true)
	}
	d := costs[500] - costs[10]
	t.add("packets, 500 members less 10", fmt.Sprintf("%.1f", d), fmt.Sprintf("%.1f at 10 members", costs[10]), "<= 10", d <= 10)
	return nil
}

func packetsAt(ctx context.Context, size int) (float64, error) {
	g, err := newGroup(ctx, zkserver.Options{Tick: 2 * time.Second, MaxSession: 2 * sessionTimeout})
	if err != nil {
		return 0, err
	}
	defer g.close()
	for i := range size {
		if _, err := g.join(fmt.Sprintf("n%03d", i), "dc1", sessionTimeout); err != nil {
			return 0, err
		}
		if err := g.members(ctx, i+1); err != nil {
			return 0, err
		}
	}
	if _, err := g.settled(ctx); err != nil {
		return 0, err
	}
	var costs []float64
	for i := range 7 {
		before, err := g.settled(ctx)
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
		middle, err := g.settled(ctx)
		if err != nil {
			return 0, err
		}
		d.Stop("it leaves")
		after, err := g.settled(ctx)
		if err != nil {
			return 0, err
		}
		costs = append(costs, after-middle+middle-before)
	}
	slices.Sort(costs)
	return costs[len(costs)/2], nil // the median, as a ping or the readers' slow net may fall into a round
}

// settled waits until the server has been quiet for a while, and returns the packets so far, less what asking took.
func (g *group) settled(ctx context.Context) (float64, error) {
	last, quiet := int64(-1), 0
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for range 300 {
		stats, err := g.server.Stats(ctx)
		if err != nil {
			return 0, err
		}
		n := stats["zk_packets_received"] + stats["zk_packets_sent"]
		// The four-letter words are not counted as packets.
		if quiet++; n != last {
			last, quiet = n, 0
		}
		if quiet == 5 {
			return float64(n), nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return float64(last), nil
}
