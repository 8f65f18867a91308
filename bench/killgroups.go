package main

import (
	"context"
	"fmt"
	"syscall"
	"time"
)

// killTimes are the times from kill -9 of a daemon until its work is dead, its session closed, and all its groups led
// elsewhere.
type killTimes struct{ dead, closed, led time.Duration }

// killedGroups measures kill -9 of a daemon that leads one group or many.
func killedGroups(ctx context.Context, t *table, binary string) error {
	var one killTimes
	for _, n := range []int{1, 40, manyGroups} {
		worst, err := measureKills(ctx, binary, n)
		if err != nil {
			return err
		}
		if n == 1 {
			one = worst
		}
		what := fmt.Sprintf("daemon that leads %d killed with -9, worst of %d: ", n, killRounds)
		add := func(what string, d, one time.Duration, goal time.Duration) {
			against, wanted := "session timeout "+groupTimeout.String(), ""
			if n > 1 {
				against = fmt.Sprintf("%.1f times that of one group", float64(d)/float64(one))
			}
			if goal > 0 {
				wanted = "<= " + goal.String()
			}
			t.add(what, ms(d), against, wanted, d <= goal)
		}
		add(what+"all children dead", worst.dead, one.dead, 0)
		add(what+"session closed", worst.closed, one.closed, 0)
		add(what+"all groups led elsewhere", worst.led, one.led, groupTimeout)
	}
	return nil
}

const killRounds = 4

func measureKills(ctx context.Context, binary string, groups int) (worst killTimes, err error) {
	h, err := startHosts(ctx, binary, groups)
	if err != nil {
		return worst, err
	}
	defer h.close()
	if err := h.start(ctx, "elector", "node.observer: true\n"); err != nil {
		return worst, err
	}
	if err := h.start(ctx, "a", ""); err != nil {
		return worst, err
	}
	if err := h.led(ctx, "a"); err != nil {
		return worst, err
	}
	if err := h.start(ctx, "b", ""); err != nil {
		return worst, err
	}
	for i := range killRounds {
		from, to := "a", "b"
		if i%2 == 1 {
			from, to = to, from
		}
		took, err := h.killDaemon(ctx, from, to)
		if err != nil {
			return worst, err
		}
		worst.dead, worst.closed, worst.led = max(worst.dead, took.dead), max(worst.closed, took.closed),
			max(worst.led, took.led)
		if err := h.joined(ctx, 3); err != nil {
			return worst, err
		}
	}
	return worst, nil
}

// killDaemon kills the daemon of the host that leads all groups.
func (h *hosts) killDaemon(ctx context.Context, from, to string) (took killTimes, err error) {
	n := h.nodes[from]
	daemon, err := n.daemon()
	if err != nil {
		return took, err
	}
	session, err := h.sessionOf(ctx, from)
	if err != nil {
		return took, err
	}
	children, err := n.children()
	if err != nil {
		return took, err
	}
	if len(children) != len(h.names) {
		return took, fmt.Errorf("%s runs %d children for %d groups", from, len(children), len(h.names))
	}
	dead := make(chan error, 1)
	began := time.Now()
	syscall.Kill(daemon, syscall.SIGKILL)
	go func() {
		for _, pid := range children {
			if err := gone(ctx, pid); err != nil {
				dead <- err
				return
			}
		}
		took.dead = time.Since(began)
		dead <- nil
	}()
	if err := h.sessionGone(ctx, from, session); err != nil {
		return took, err
	}
	closed := time.Since(began)
	if err := h.led(ctx, to); err != nil {
		return took, err
	}
	led := time.Since(began)
	err = <-dead
	took.closed, took.led = closed, led
	return took, err
}

// sessionGone waits until a session of a host has ended.
func (h *hosts) sessionGone(ctx context.Context, id string, session int64) error {
	path := h.of(h.names[0]).paths.Node(id)
	for {
		_, stat, err := h.session.Get(ctx, path, true)
		if err != nil || stat.Owner != session {
			return ctx.Err()
		}
		select {
		case <-h.session.Wake():
			h.session.TakeHints()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// children returns the main processes of all work of the node.
func (n *node) children() (all []int, err error) {
	keepers := processes(n.cmd.Process.Pid, func(args []string) bool { return len(args) > 1 && args[1] == "keeper" })
	for _, keeper := range keepers {
		all = append(all, processes(keeper, func(args []string) bool { return args[0] == "sleep" })...)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("the node runs no work")
	}
	return all, nil
}
