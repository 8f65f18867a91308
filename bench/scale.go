package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"zkelectd/internal/boottime"
	"zkelectd/internal/cluster"
	"zkelectd/internal/cluster/zkstore"
	"zkelectd/internal/elector"
	"zkelectd/internal/guard"
	"zkelectd/internal/policy"
	"zkelectd/internal/status"
	"zkelectd/internal/zkserver"
)

// scaleTimeout is a compromise: there are few pings and renewals, and the pauses before a reconnect, up to a twentieth, are short.
const scaleTimeout = time.Minute

// scaled are the figures of a group of one size.
type scaled struct {
	size                  int
	leader, both          time.Duration // from the end of the leader's session to the next READY; both: it is the elector as well
	decision              time.Duration
	event, election       traffic // of an unrelated member that comes and leaves, and of a failover
	back                  time.Duration
	restart, electorReads float64 // packets of each member, and requests of the elector, after a restart of the server
}

// traffic is what all members and the server exchange.
type traffic struct{ packets, bytes float64 }

// scale measures groups of several sizes, with all members in this process, and compares each with the first size.
func scale(ctx context.Context, t *table, guardClient *guard.Client, o options, rounds int) error {
	var first scaled
	for field := range strings.SplitSeq(o.sizes, ",") {
		size, err := strconv.Atoi(field)
		if err != nil || size < 4 {
			return fmt.Errorf("-sizes: %q is not a number of at least 4", field)
		}
		s, err := scaleAt(ctx, guardClient, size, rounds, o.quick)
		if err != nil {
			return fmt.Errorf("%d members: %w", size, err)
		}
		if first.size == 0 {
			first = s
		}
		r := scaleReport{t, s, first}
		r.times()
		if !o.quick {
			r.traffic()
		}
	}
	return nil
}

// scaleReport adds the figures of a size, compared with those of the first one.
type scaleReport struct {
	*table
	scaled
	first scaled
}

func (r scaleReport) row(what, figure string, value, base float64, goal string, met bool) {
	r.add(fmt.Sprintf("%d members: %s", r.size, what), figure, fmt.Sprintf("%.2f times that at %d", value/base, r.first.size), goal, met)
}

func (r scaleReport) times() {
	s, first := r.scaled, r.first
	duration := func(what string, d, base time.Duration, goal string, met bool) {
		r.row(what, ms(d), float64(d), float64(base), goal, met)
	}
	duration("leader's session ended to READY, p50", s.leader, first.leader, "<= 2 times", s.leader <= 2*first.leader)
	duration("the same, of the elector as well, p50", s.both, first.both, "<= 2 times", s.both <= 2*first.both)
	duration("a decision, and its encoding, p50", s.decision, first.decision, "<= 5 ms", s.decision <= 5*time.Millisecond)
}

func (r scaleReport) traffic() {
	s, first := r.scaled, r.first
	each := func(value float64, of scaled) float64 { return value / float64(of.size) }
	packets, met := s.event.packets, s.event.packets <= first.event.packets+10
	r.row("packets for a member coming and leaving", fmt.Sprintf("%.0f", packets), packets, first.event.packets, "<= 10 more", met)
	r.row("bytes of that", kilobytes(s.event.bytes), s.event.bytes, first.event.bytes, "", true)
	packets = each(s.election.packets, s)
	r.row("packets of a failover, each member", fmt.Sprintf("%.1f", packets), packets, each(first.election.packets, first), "", true)
	bytes := each(s.election.bytes, s)
	r.row("bytes of a failover, each member", kilobytes(bytes), bytes, each(first.election.bytes, first), "", true)
	r.row("server killed and restarted, all sessions back", ms(s.back), float64(s.back), float64(first.back), "", true)
	met = s.restart <= 1.2*first.restart
	r.row("packets of that, each member", fmt.Sprintf("%.1f", s.restart), s.restart, first.restart, "<= 1.2 times", met)
	if s.size > first.size {
		reads := (s.electorReads - first.electorReads) / float64(s.size-first.size)
		what := fmt.Sprintf("%d members: reads of the elector for each member, then", s.size)
		r.add(what, fmt.Sprintf("%.2f", reads), "", "<= 1.1", reads <= 1.1)
	}
}

func kilobytes(n float64) string { return fmt.Sprintf("%.1f kB", n/1000) }

// crowd is a group whose members' sessions can be ended from outside.
type crowd struct {
	*group
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

func scaleAt(ctx context.Context, guardClient *guard.Client, size, rounds int, quick bool) (s scaled, err error) {
	s.size = size
	g, err := newGroup(ctx, zkserver.Options{Tick: tick, MaxSession: 2 * scaleTimeout})
	if err != nil {
		return s, err
	}
	g.guard = guardClient
	defer g.close()
	c := &crowd{group: g, sessions: make(map[string]guard.Credentials)}
	traffic := func(measure func() error) func() error {
		if quick {
			return func() error { return nil }
		}
		return measure
	}
	measured := windows
	if quick {
		measured = 0
	}
	for _, step := range []func() error{
		func() error { return c.gather(ctx, size) },
		traffic(func() (err error) { s.event, err = c.events(ctx, size); return }),
		func() (err error) { s.decision, err = c.decision(ctx); return },
		func() (err error) { s.leader, s.election, err = c.failovers(ctx, size, rounds, measured); return },
		func() error { return c.expire(ctx, firstNode) }, // from here on the leader is the oldest member, so the elector
		func() error { return c.members(ctx, size) },
		func() (err error) { s.both, _, err = c.failovers(ctx, size, rounds, 0); return },
		traffic(func() error { return c.restarted(ctx, &s) }),
	} {
		if err := step(); err != nil {
			return s, err
		}
	}
	return s, nil
}

// firstNode is the oldest member, so the elector. It never leads.
const firstNode = "elector"

// gather starts the members, some at a time, and waits until one leads.
func (c *crowd) gather(ctx context.Context, size int) error {
	const atOnce = 20
	for i := range size {
		id, env := fmt.Sprintf("host-%04d.example.com", i), []string(nil)
		if i == 0 {
			id, env = firstNode, []string{"ZKELECTD_NODE_OBSERVER=true"}
		}
		if err := c.add(id, env...); err != nil {
			return err
		}
		if i == 0 || i%atOnce == 0 || i == size-1 {
			if err := c.members(ctx, i+1); err != nil {
				return err
			}
		}
	}
	_, err := c.leader(ctx)
	return err
}

func (c *crowd) add(id string, env ...string) error {
	// With the wait for the lease of a leader that has not released, the size of the group would not matter.
	env = append(env, "ZKELECTD_ELECTION_TRUST_SESSION_END=true", "ZKELECTD_ELECTION_FAILBACK_MODE=manual")
	_, err := c.joinUnder(sessionKeeper{c.guard, c, id}, id, "dc1", scaleTimeout, env...)
	return err
}

// leader waits until there is a READY leader and returns its id.
func (c *crowd) leader(ctx context.Context) (id string, err error) {
	err = c.until(ctx, func(cur cluster.Stored[cluster.Current], _ time.Time) bool {
		id = cur.Record.Node
		return cur.Readable() && cur.Record.State == cluster.CurrentReady
	})
	return id, err
}

// expire ends the session of a member on the server.
func (c *crowd) expire(ctx context.Context, id string) error {
	c.mu.Lock()
	s := c.sessions[id]
	c.mu.Unlock()
	return zkstore.CloseSession(ctx, zkstore.SessionHandle{Servers: []string{c.server.Addr()}, Session: s.ID, Password: s.Password})
}

// during returns the traffic while f runs.
func (c *crowd) during(ctx context.Context, f func() error) (traffic, error) {
	before, err := c.traffic(ctx)
	if err != nil {
		return traffic{}, err
	}
	if err := f(); err != nil {
		return traffic{}, err
	}
	after, err := c.traffic(ctx)
	return traffic{after.packets - before.packets, after.bytes - before.bytes}, err
}

// window is as long as the interval at which the members check what they know, so that each window has one check of each member.
const window = status.CheckInterval

// windows is how often the traffic of an event is measured.
const windows = 3

// extra returns the traffic in a window that begins with f, less that in the next one, in which nothing happens.
func (c *crowd) extra(ctx context.Context, f func() error) (traffic, error) {
	spent, err := c.during(ctx, func() error {
		began := time.Now()
		if err := f(); err != nil {
			return err
		}
		return waitFor(ctx, window-time.Since(began))
	})
	if err != nil {
		return traffic{}, err
	}
	calm, err := c.during(ctx, func() error { return waitFor(ctx, window) })
	return traffic{spent.packets - calm.packets, spent.bytes - calm.bytes}, err
}

// middle returns the medians.
func middle(all []traffic) traffic {
	median := func(of func(traffic) float64) float64 {
		var values []float64
		for _, t := range all {
			values = append(values, of(t))
		}
		slices.Sort(values)
		return values[len(values)/2]
	}
	return traffic{median(func(t traffic) float64 { return t.packets }), median(func(t traffic) float64 { return t.bytes })}
}

// traffic returns the server's packets, and the bytes that this process has read and written: nearly all of them are the members'.
func (c *crowd) traffic(ctx context.Context) (traffic, error) {
	stats, err := c.server.Stats(ctx)
	if err != nil {
		return traffic{}, err
	}
	data, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return traffic{}, err
	}
	var read, written float64
	if _, err := fmt.Sscanf(string(data), "rchar: %g\nwchar: %g", &read, &written); err != nil {
		return traffic{}, fmt.Errorf("/proc/self/io: %w", err)
	}
	return traffic{float64(stats["zk_packets_received"] + stats["zk_packets_sent"]), read + written}, nil
}

func waitFor(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// events measures what a member that comes and leaves costs.
func (c *crowd) events(ctx context.Context, size int) (traffic, error) {
	var all []traffic
	for i := range windows {
		spent, err := c.extra(ctx, func() error {
			if err := c.add(fmt.Sprintf("unrelated%d", i)); err != nil {
				return err
			}
			if err := c.members(ctx, size+1); err != nil {
				return err
			}
			c.daemons[len(c.daemons)-1].Stop("it leaves")
			return nil
		})
		if err != nil {
			return traffic{}, err
		}
		all = append(all, spent)
	}
	return middle(all), nil
}

// decision measures the election of a successor, and the encoding of its transaction.
func (c *crowd) decision(ctx context.Context) (time.Duration, error) {
	snap, err := zkstore.ReadAll(ctx, c.session, c.paths, false)
	if err != nil {
		return 0, err
	}
	p, err := policy.New(snap.Policy.Record)
	if err != nil {
		return 0, err
	}
	before := snap
	leader := snap.Elected.Record.Incarnation
	snap.Members = slices.DeleteFunc(slices.Clone(snap.Members), func(m cluster.Member) bool { return m.Name == leader })
	snap.Current = cluster.Stored[cluster.Current]{}
	var took []time.Duration
	for range 50 {
		e := elector.New(elector.Options{})
		e.Decide(elector.Input{Snapshot: before, Policy: p, Now: boottime.Now(), Wall: time.Now()}) // it remembers the members
		began := time.Now()
		d := e.Decide(elector.Input{Snapshot: snap, Policy: p, Now: boottime.Now(), Wall: began})
		if d.Elect == nil {
			return 0, fmt.Errorf("no decision: %s%s", d.Note, d.Newer)
		}
		c.paths.ElectTx(snap, *d.Elect, d.Fence)
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return quantile(took, 0.5), nil
}

// failovers ends the session of one leader after another, and measures the time without a leader, and in some rounds the traffic.
func (c *crowd) failovers(ctx context.Context, size, rounds, windows int) (median time.Duration, spent traffic, err error) {
	var gaps []time.Duration
	var all []traffic
	for i := range rounds {
		leader, err := c.leader(ctx)
		if err != nil {
			return 0, spent, err
		}
		lose := func() error {
			if err := c.expire(ctx, leader); err != nil {
				return err
			}
			gap, err := c.gap(ctx, leader)
			gaps = append(gaps, gap)
			return err
		}
		if i < windows {
			spent, err = c.extra(ctx, lose)
			all = append(all, spent)
		} else {
			err = lose()
		}
		if err != nil {
			return 0, spent, err
		}
		if err := c.members(ctx, size); err != nil { // it is back
			return 0, spent, err
		}
		if err := waitFor(ctx, time.Second); err != nil { // the roster is written
			return 0, spent, err
		}
	}
	slices.Sort(gaps)
	if windows > 0 {
		spent = middle(all)
	}
	return quantile(gaps, 0.5), spent, nil
}

// restarted restarts the server, and waits until all members are connected again and have read what they need.
func (c *crowd) restarted(ctx context.Context, s *scaled) error {
	began := time.Now()
	if err := c.server.Restart(ctx); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		stats, err := c.server.Stats(limited)
		if err == nil && stats["zk_num_alive_connections"] > int64(s.size) { // the observing session, too
			break
		}
		if err := waitFor(limited, 20*time.Millisecond); err != nil {
			return fmt.Errorf("%d sessions have come back: %w", stats["zk_num_alive_connections"], err)
		}
	}
	s.back = time.Since(began)
	if err := waitFor(ctx, window); err != nil {
		return err
	}
	all, err := c.traffic(ctx) // the server counts from its start
	if err != nil {
		return err
	}
	leader, err := c.leader(ctx) // the elector as well
	if err != nil {
		return err
	}
	requests, err := received(ctx, c.server)
	if err != nil {
		return err
	}
	calm, err := c.during(ctx, func() error { return waitFor(ctx, window) })
	if err != nil {
		return err
	}
	later, err := received(ctx, c.server)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	session := c.sessions[leader].ID
	s.restart = (all.packets - calm.packets) / float64(s.size)
	s.electorReads = float64(2*requests[session] - later[session])
	return nil
}
