package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"zkelectd/internal/test/zkserver"
)

// idleHost has the figures of hosts that are idle: one leads all groups, the other one is their elector.
type idleHost struct {
	requests, processor                        float64 // of the host that leads; a second, and as a share of a core
	watched                                    float64 // requests a second of the host that leads and of its deputies
	leader, leaderGuard, elector, electorGuard float64 // resident memory in MB
}

// idleGroups measures what each further group of an idle host costs.
func idleGroups(ctx context.Context, t *table, binary string) error {
	one, err := measureIdle(ctx, binary, 1)
	if err != nil {
		return err
	}
	many, err := measureIdle(ctx, binary, manyGroups)
	if err != nil {
		return err
	}
	each := func(what string, one, many, goal float64) {
		kb := (many - one) * 1024 / (manyGroups - 1)
		t.add("further group, "+what, fmt.Sprintf("%.0f KB", kb), fmt.Sprintf("%.1f MB with 1 group, %.1f MB with %d",
			one, many, manyGroups),
			fmt.Sprintf("<= %.0f KB", goal), kb <= goal)
	}
	each("no child: daemon's memory", one.elector, many.elector, 300)
	each("no child: guard's memory", one.electorGuard, many.electorGuard, 20)
	each("led here: daemon's memory", one.leader, many.leader, 300)
	each("led here: guard's memory", one.leaderGuard, many.leaderGuard, 20)
	ratio := many.requests / one.requests
	t.add(fmt.Sprintf("requests of a host that leads %d groups", manyGroups), fmt.Sprintf("%.2f a second", many.requests),
		fmt.Sprintf("%.2f times those of one that leads 1 (%.2f)", ratio, one.requests), "<= 2", ratio <= 2)
	t.add("requests of a leader and three deputies, 1 group", fmt.Sprintf("%.2f a second", one.watched),
		fmt.Sprintf("leader alone %.2f", one.requests), "", true)
	t.add(fmt.Sprintf("requests of a leader and three deputies, %d groups", manyGroups), fmt.Sprintf("%.2f a second",
		many.watched),
		fmt.Sprintf("leader alone %.2f", many.requests), "", true)
	ratio = many.processor / one.processor
	t.add(fmt.Sprintf("processor of a host that leads %d groups", manyGroups), fmt.Sprintf("%.2f %% of a core",
		100*many.processor),
		fmt.Sprintf("%.1f times that of one that leads 1 (%.2f %%)", ratio, 100*one.processor), "<= 10, <= 3 %",
		ratio <= 10 && many.processor <= 0.03)
	return nil
}

func measureIdle(ctx context.Context, binary string, groups int) (m idleHost, err error) {
	h, err := startHosts(ctx, binary, groups)
	if err != nil {
		return m, err
	}
	defer h.close()
	if err := h.start(ctx, "elector", "node.observer: true\n"); err != nil {
		return m, err
	}
	if err := h.start(ctx, "leader", ""); err != nil {
		return m, err
	}
	if err := h.led(ctx, "leader"); err != nil {
		return m, err
	}
	ids := []string{"leader", "elector", "b", "c"}
	for _, id := range ids[2:] {
		if err := h.start(ctx, id, ""); err != nil {
			return m, err
		}
	}
	var sessions []int64
	for _, id := range ids {
		session, err := h.sessionOf(ctx, id)
		if err != nil {
			return m, err
		}
		sessions = append(sessions, session)
	}
	leader, elector := h.nodes["leader"], h.nodes["elector"]
	daemon, err := leader.daemon()
	if err != nil {
		return m, err
	}
	other, err := elector.daemon()
	if err != nil {
		return m, err
	}
	if err := waitFor(ctx, groupSpan/2); err != nil { // the start is over
		return m, err
	}
	before := cpu(daemon) + cpu(leader.cmd.Process.Pid)
	rates, err := h.rates(ctx, sessions, groupSpan)
	if err != nil {
		return m, err
	}
	m.requests = rates[0]
	for _, r := range rates {
		m.watched += r
	}
	m.processor = (cpu(daemon) + cpu(leader.cmd.Process.Pid) - before) / groupSpan.Seconds()
	m.leader, m.leaderGuard, m.elector, m.electorGuard = rss(daemon), rss(leader.cmd.Process.Pid), rss(other),
		rss(elector.cmd.Process.Pid)
	return m, nil
}

// rates returns how many packets a second the server receives in each of the sessions.
func (g *group) rates(ctx context.Context, sessions []int64, span time.Duration) ([]float64, error) {
	before, err := received(ctx, g.server)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := waitFor(ctx, span); err != nil {
		return nil, err
	}
	after, err := received(ctx, g.server)
	var all []float64
	for _, session := range sessions {
		all = append(all, float64(after[session]-before[session])/time.Since(began).Seconds())
	}
	return all, err
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
