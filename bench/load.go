package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"zkelectd/internal/cluster/zkstore"
	"zkelectd/internal/guard"
	"zkelectd/internal/test/zkserver"
)

// load measures the load of an idle group on ZooKeeper: requests by role, and znodes and watches by the size of the group.
func load(ctx context.Context, t *table, binary string, guardClient *guard.Client) error {
	if err := requests(ctx, t, binary); err != nil {
		return err
	}
	var first [2]float64
	for _, size := range []int{10, 100, 500} {
		kept, err := statsAt(ctx, guardClient, size)
		if err != nil {
			return fmt.Errorf("%d members: %w", size, err)
		}
		each := [2]float64{float64(kept["zk_znode_count"]) / float64(size), float64(kept["zk_watch_count"]) / float64(size)}
		if first[0] == 0 {
			first = each
		}
		t.add(fmt.Sprintf("znodes of a group of %d", size), strconv.FormatInt(kept["zk_znode_count"], 10), fmt.Sprintf("%.2f a member, %.2f times that at 10", each[0], each[0]/first[0]), "<= 1.1", each[0] <= 1.1*first[0])
		t.add(fmt.Sprintf("watches of a group of %d", size), strconv.FormatInt(kept["zk_watch_count"], 10), fmt.Sprintf("%.2f a member, %.2f times that at 10", each[1], each[1]/first[1]), "<= 1.1", each[1] <= 1.1*first[1])
	}
	return nil
}

// idleRole is a session that only sends pings, to compare the others with.
const idleRole = "a session that only pings"

// requests counts the requests of each role, compared with those of a session that only pings.
func requests(ctx context.Context, t *table, binary string) error {
	const timeout, span = 6 * time.Second, 60 * time.Second
	g, err := newGroup(ctx, production)
	if err != nil {
		return err
	}
	defer g.close()
	idle, err := zkstore.Open(ctx, zkstore.Options{Servers: []string{g.server.Addr()}, Timeout: timeout})
	if err != nil {
		return err
	}
	defer func() {
		limited, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		idle.Close(limited)
	}()
	nodes, sessions, err := g.startRoles(ctx, binary, timeout)
	defer func() {
		for _, n := range nodes {
			n.kill()
		}
	}()
	if err != nil {
		return err
	}
	sessions[idleRole] = idle.SessionID()
	rates, err := g.rates(ctx, sessions, span)
	if err != nil {
		return err
	}
	t.add("requests of "+idleRole, fmt.Sprintf("%.2f a second", rates[idleRole]), "session timeout "+timeout.String(), "", true)
	for _, role := range []string{"standby", "elector", "leader"} {
		t.add("requests of the "+role, fmt.Sprintf("%.2f a second", rates[role]), fmt.Sprintf("%.1f of such a session", rates[role]/rates[idleRole]), "", true)
	}
	return nil
}

// startRoles starts three nodes, which are named after their roles, and returns their sessions by role.
func (g *group) startRoles(ctx context.Context, binary string, timeout time.Duration) (nodes []*node, sessions map[string]int64, err error) {
	sessions = make(map[string]int64)
	for i, role := range []string{"elector", "leader", "standby"} { // the first to register is the elector
		n, err := g.spawn(binary, role, timeout)
		if err != nil {
			return nodes, nil, err
		}
		nodes = append(nodes, n)
		if err := g.members(ctx, i+1); err != nil {
			return nodes, nil, err
		}
		_, stat, err := g.session.Get(ctx, g.paths.Node(role), false)
		if err != nil {
			return nodes, nil, err
		}
		sessions[role] = stat.Owner
	}
	if err := g.publish(ctx, map[string]int{"leader": 1}); err != nil {
		return nodes, nil, err
	}
	return nodes, sessions, g.leads(ctx, "leader")
}

// rates returns how many packets a second the server receives in each session.
func (g *group) rates(ctx context.Context, sessions map[string]int64, span time.Duration) (map[string]float64, error) {
	before, err := received(ctx, g.server)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	select {
	case <-time.After(span):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	after, err := received(ctx, g.server)
	if err != nil {
		return nil, err
	}
	rates := make(map[string]float64)
	for role, session := range sessions {
		rates[role] = float64(after[session]-before[session]) / time.Since(began).Seconds()
	}
	return rates, nil
}

// connection matches a line of the four letter word cons, with the packets received and the session.
var connection = regexp.MustCompile(`recved=(\d+),.*?sid=0x([0-9a-f]+)`)

// received returns how many packets a server has received in each session.
func received(ctx context.Context, server *zkserver.Server) (map[int64]int64, error) {
	answer, err := server.FourLetterWord(ctx, "cons")
	if err != nil {
		return nil, err
	}
	all := make(map[int64]int64)
	for _, m := range connection.FindAllStringSubmatch(answer, -1) {
		session, err := strconv.ParseUint(m[2], 16, 64)
		if err != nil {
			return nil, err
		}
		count, err := strconv.ParseInt(m[1], 10, 64)
		if err != nil {
			return nil, err
		}
		all[int64(session)] = count
	}
	return all, nil
}

// statsAt returns the statistics of a server with a group of a size, less those without the group.
func statsAt(ctx context.Context, guardClient *guard.Client, size int) (map[string]int64, error) {
	g, err := newGroup(ctx, zkserver.Options{Tick: tick, MaxSession: 2 * sessionTimeout})
	if err != nil {
		return nil, err
	}
	g.guard = guardClient
	defer g.close()
	before, err := g.server.Stats(ctx)
	if err != nil {
		return nil, err
	}
	for i := range size {
		if _, err := g.join(fmt.Sprintf("n%03d", i), "dc1", sessionTimeout); err != nil {
			return nil, err
		}
		if err := g.members(ctx, i+1); err != nil {
			return nil, err
		}
	}
	after, err := steady(ctx, g.server)
	for key := range after {
		after[key] -= before[key]
	}
	return after, err
}

// steady waits until the last member has set its watches.
func steady(ctx context.Context, server *zkserver.Server) (map[string]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var last map[string]int64
	for same := 0; same < 10; {
		now, err := server.Stats(ctx)
		if err != nil {
			return nil, err
		}
		if same++; last["zk_watch_count"] != now["zk_watch_count"] || last["zk_znode_count"] != now["zk_znode_count"] {
			same = 0
		}
		last = now
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return last, nil
}
