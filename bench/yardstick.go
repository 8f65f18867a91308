package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/store"
	"zkelectd/internal/sys/procinfo"
	"zkelectd/internal/test/zkserver"
)

// contest compares zkelectd with a plain lock, on the same server. Each has two members.
type contest struct {
	binary string
	rounds int
	g      *group
	pipe   *pipe
	sides  []*side

	elector *node // the elector of led; nil before it is started
	led     *side // zkelectd in another group, whose leaders are never its elector; nil before it is started
}

// side is one of those.
type side struct {
	name    string
	count   func(context.Context) (int, error) // counts its members
	spawn   func(member string) (*exec.Cmd, error)
	stopOne func(*exec.Cmd) error // stops the leader
	killOne func(*exec.Cmd) error // kills the leader with -9
	endOne  func(*exec.Cmd) error // ends a member when the contest is over
	members map[string]*exec.Cmd
	leader  string
	work    int // the pid of the command that runs

	handovers, gaps, kills []time.Duration
	survived               int // commands that still ran when the next one had started, after kill -9
}

// compareWithLock measures, alternately for zkelectd and for a plain lock, how long it takes until the next command
// runs: after SIGTERM to the leader, and after kill -9.
func compareWithLock(ctx context.Context, t *table, binary string, rounds int) error {
	c, err := newContest(ctx, binary, rounds)
	defer c.close()
	if err != nil {
		return err
	}
	for range c.rounds {
		for _, s := range append(slices.Clip(c.sides), c.led) {
			if err := c.terminate(ctx, s); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	killed := max(3, c.rounds/10)
	for range killed {
		for _, s := range c.sides {
			if err := c.kill(ctx, s); err != nil {
				return fmt.Errorf("%s, kill -9: %w", s.name, err)
			}
		}
	}
	c.report(t, killed)
	return nil
}

// newContest starts all members. The contest is to be closed even after an error.
func newContest(ctx context.Context, binary string, rounds int) (*contest, error) {
	c := &contest{binary: binary, rounds: rounds}
	var err error
	if c.g, err = newGroup(ctx, zkserver.Options{}); err != nil {
		return c, err
	}
	if c.pipe, err = newPipe(); err != nil {
		return c, err
	}
	c.sides = []*side{
		{name: "zkelectd", count: c.children(c.g.paths.Election()), spawn: c.spawner(c.g, "zkelectd"),
			stopOne: terminateProcess, killOne: killDaemon, endOne: terminateProcess},
		{name: "plain lock", count: c.children(plainLockPath), spawn: c.spawnLock, stopOne: terminateProcess,
			killOne: killProcess, endOne: terminateProcess},
	}
	for _, s := range c.sides {
		if err := c.start(ctx, s); err != nil {
			return c, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	if err := c.startLed(ctx); err != nil {
		return c, fmt.Errorf("%s: %w", ledName, err)
	}
	return c, nil
}

// ledName is the name of the side whose leaders are never the elector.
const ledName = "another elector"

// startLed starts the side in which another host elects. That host is an observer: it elects, since it is the oldest
// member, but never leads.
func (c *contest) startLed(ctx context.Context) (err error) {
	g := &group{server: c.g.server, session: c.g.session, paths: cluster.Paths{Root: "/led"}}
	if err := store.Init(ctx, g.session, g.paths, "the benchmark"); err != nil {
		return err
	}
	if c.elector, err = g.spawnWork(c.g.server.Addr(), c.binary, "elector", plainLockTimeout, []string{"true"},
		"ZKELECTD_NODE_OBSERVER=true"); err != nil {
		return err
	}
	members := c.children(g.paths.Election())
	count := func(ctx context.Context) (int, error) {
		n, err := members(ctx)
		return n - 1, err // without the elector
	}
	c.led = &side{name: ledName, count: count, spawn: c.spawner(g, ledName), stopOne: terminateProcess,
		endOne: terminateProcess}
	if err := c.settle(ctx, c.led, 0); err != nil {
		return err
	}
	return c.start(ctx, c.led)
}

// start starts the members of a side.
func (c *contest) start(ctx context.Context, s *side) (err error) {
	s.members, s.leader = make(map[string]*exec.Cmd), "a"
	for i, member := range []string{"a", "b"} {
		if s.members[member], err = s.spawn(member); err != nil {
			return err
		}
		if i == 0 {
			first, err := c.pipe.next(ctx, "first", s.name)
			if err != nil {
				return err
			}
			s.work = first.pid
		}
		if err := c.settle(ctx, s, i+1); err != nil {
			return err
		}
	}
	return nil
}

func (c *contest) close() {
	sides := slices.Clip(c.sides)
	if c.led != nil {
		sides = append(sides, c.led)
	}
	for _, s := range sides {
		for _, cmd := range s.members {
			s.endOne(cmd)
			cmd.Wait()
		}
		if s.work != 0 { // not every side ends its command
			syscall.Kill(s.work, syscall.SIGTERM)
		}
	}
	if c.elector != nil {
		c.elector.stop()
	}
	if c.g != nil {
		c.g.close()
	}
	c.pipe.close()
}

// spawner returns what starts a node of a group for a side.
func (c *contest) spawner(g *group, side string) func(member string) (*exec.Cmd, error) {
	return func(member string) (*exec.Cmd, error) {
		// A command that is killed because the machine is busy writes no last line.
		n, err := g.spawnWork(c.g.server.Addr(), c.binary, member, plainLockTimeout, c.pipe.command(side),
			"ZKELECTD_POLICY_FAILBACK=manual", "ZKELECTD_CHILD_STOP_TIMEOUT=1s")
		if err != nil {
			return nil, err
		}
		return n.cmd, nil
	}
}

func (c *contest) spawnLock(string) (*exec.Cmd, error) {
	return spawnLock(c.g.server.Addr(), c.pipe.command("plain lock"))
}

func terminateProcess(cmd *exec.Cmd) error { return cmd.Process.Signal(syscall.SIGTERM) }

func killProcess(cmd *exec.Cmd) error { return cmd.Process.Kill() }

// children counts the members at a znode that has one child for each.
func (c *contest) children(path string) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		names, _, err := c.g.session.Children(ctx, path, false)
		return len(names), err
	}
}

// killDaemon kills the daemon; its guard survives, kills the command, and is then stopped by the caller.
func killDaemon(cmd *exec.Cmd) error {
	pid, err := (&node{cmd}).daemon()
	if err != nil {
		return err
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}

// settle waits until a side has n members, and then until what they do at their start is over.
func (c *contest) settle(ctx context.Context, s *side, n int) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for count := -1; count != n; {
		var err error
		if count, err = s.count(ctx); err != nil {
			return err
		}
		<-tick.C
	}
	select {
	case <-time.After(settling):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// settling is how long a new member may take for what it does at its start, beyond joining.
const settling = 300 * time.Millisecond

// terminate stops the leader of a side with SIGTERM and starts it again once the other member has taken over.
func (c *contest) terminate(ctx context.Context, s *side) error {
	old := s.members[s.leader]
	began := time.Now()
	if err := s.stopOne(old); err != nil {
		return err
	}
	last, err := c.pipe.next(ctx, "last", s.name)
	if err != nil {
		return err
	}
	first, err := c.pipe.next(ctx, "first", s.name)
	if err != nil {
		return err
	}
	s.handovers, s.gaps, s.work = append(s.handovers, first.at.Sub(began)), append(s.gaps, first.at.Sub(last.at)),
		first.pid
	if *verbose {
		fmt.Fprintf(os.Stderr, "bench: %s: SIGTERM to first line %s, gap %s\n", s.name, first.at.Sub(began),
			first.at.Sub(last.at))
	}
	return c.replace(ctx, s, old)
}

// kill kills the leader of a side with -9.
func (c *contest) kill(ctx context.Context, s *side) error {
	old, work := s.members[s.leader], s.work
	began := time.Now()
	if err := s.killOne(old); err != nil {
		return err
	}
	first, err := c.pipe.next(ctx, "first", s.name)
	if err != nil {
		return err
	}
	s.kills, s.work = append(s.kills, first.at.Sub(began)), first.pid
	if stat, err := procinfo.ReadStat(work); err == nil && !stat.Ended() {
		s.survived++
		syscall.Kill(work, syscall.SIGTERM)
	}
	old.Process.Signal(syscall.SIGTERM)
	return c.replace(ctx, s, old)
}

// replace waits for the end of the leader that has left, and starts it again as the next in line.
func (c *contest) replace(ctx context.Context, s *side, old *exec.Cmd) (err error) {
	old.Wait()
	gone := s.leader
	s.leader = map[string]string{"a": "b", "b": "a"}[gone]
	if err := c.settle(ctx, s, 1); err != nil {
		return err
	}
	if s.members[gone], err = s.spawn(gone); err != nil {
		return err
	}
	return c.settle(ctx, s, 2)
}

func (c *contest) report(t *table, killed int) {
	for _, s := range append(slices.Clip(c.sides), c.led) {
		for _, all := range [][]time.Duration{s.handovers, s.gaps, s.kills} {
			slices.Sort(all)
		}
	}
	ours, plain := c.sides[0], c.sides[1]
	c.compare(t, ours, plain, killed)
	for _, row := range []struct {
		what string
		all  []time.Duration
		own  []time.Duration
	}{
		{"SIGTERM to the next first line, another host elects", c.led.handovers, ours.handovers},
		{"gap between the commands, another host elects", c.led.gaps, ours.gaps},
	} {
		for _, q := range []float64{0.5, 0.99} {
			a, b := quantile(row.all, q), quantile(row.own, q)
			t.add(fmt.Sprintf("%s, p%.0f", row.what, 100*q), ms(a),
				fmt.Sprintf("%.2f of a leader's that elects its successor itself, %s", share(a, b), ms(b)), "", true)
		}
	}
}

// compare adds the rows of zkelectd beside the plain lock.
func (c *contest) compare(t *table, ours, lock *side, killed int) {
	row := func(what string, ours, theirs []time.Duration, q, goal float64) {
		a, b := quantile(ours, q), quantile(theirs, q)
		against := fmt.Sprintf("%.2f of a plain lock's %s", share(a, b), ms(b))
		if goal == 0 {
			t.add(what, ms(a), against, "", true)
			return
		}
		t.add(what, ms(a), against, fmt.Sprintf("<= %g of it", goal), share(a, b) <= goal)
	}
	row(fmt.Sprintf("SIGTERM to the next command's first line, p50 of %d", c.rounds), ours.handovers,
		lock.handovers, 0.5, 1.5)
	row("SIGTERM to the next command's first line, p99", ours.handovers, lock.handovers, 0.99, 1.5)
	row("gap between the commands, p50", ours.gaps, lock.gaps, 0.5, 1)
	row("gap between the commands, p99", ours.gaps, lock.gaps, 0.99, 1.5)
	row(fmt.Sprintf("kill -9 to the next command's first line, p50 of %d", killed), ours.kills, lock.kills, 0.5, 0)
	t.add("kill -9: the old command still runs beside the next", fmt.Sprintf("%d of %d", ours.survived, killed),
		fmt.Sprintf("%d of %d with a plain lock", lock.survived, killed), "0", ours.survived == 0)
}
