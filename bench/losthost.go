package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"zkelectd/internal/cluster"
	"zkelectd/internal/store"
	"zkelectd/internal/test/zkserver"
	"zkelectd/internal/zk"
)

// A host is lost when all of its processes stop at the same moment, and its connections stay open: guard, daemon,
// keeper and work, or the holder of a lock and its command. All sides lose theirs within the same few seconds, again
// and again; each time their groups are new.

const lostTimeout = plainLockTimeout // T

// hostSpec is a host of a group.
type hostSpec struct {
	id, site string
	priority int
	lost     bool
}

// lossCase is a group whose leader's host is lost. Its hosts are in the order of their start, so the first one is the
// elector.
type lossCase struct {
	name, root   string
	hosts        []hostSpec
	leader, heir string
	env          []string
	goal         time.Duration // for the worst
}

// leaderAlone has another elector, which can lead as well.
var leaderAlone = []hostSpec{{"e", "e", 50, false}, {"l", "l", 200, true}, {"h", "h", 100, false}}

var lossCases = []lossCase{
	{
		name: "(a) leader's host lost", root: "a", leader: "l", heir: "h", goal: lostTimeout * 70 / 100,
		hosts: leaderAlone,
	},
	{
		name: "(b) host of leader and elector lost", root: "b", leader: "l", heir: "h", goal: lostTimeout * 75 / 100,
		hosts: []hostSpec{{"l", "l", 200, true}, {"x", "x", 50, false}, {"h", "h", 100, false}},
	},
	{
		name: "(c) site of leader, elector and heir lost", root: "c", leader: "l", heir: "h", goal: lostTimeout,
		hosts: []hostSpec{{"e", "one", 50, true}, {"l", "one", 200, true}, {"h", "one", 100, true},
			{"x", "two", 100, false}, {"y", "two", 50, false}},
		env: []string{"ZKELECTD_POLICY_SITES=one=200,two=100"},
	},
	{
		name: "(a) with election.lease: 900ms", root: "s", leader: "l", heir: "h", goal: 1600 * time.Millisecond,
		hosts: leaderAlone, env: []string{"ZKELECTD_ELECTION_LEASE=900ms"},
	},
}

// lossSide is what loses a host.
type lossSide interface {
	// start starts the members, and returns when a host can be lost.
	start(ctx context.Context, round int) error
	// lose loses the leader's host, and returns how long it took until another host had its role.
	lose(ctx context.Context) (time.Duration, error)
	// end ends the members.
	end()
	// close is called after the last round.
	close()
}

// lostHosts measures how long a group has no leader after the loss of its leader's host, beside a plain lock and
// etcdctl lock.
func lostHosts(ctx context.Context, t *table, binary string, rounds int) error {
	server, err := zkserver.Start(ctx, production)
	if err != nil {
		return err
	}
	defer server.Stop()
	var sides []lossSide
	defer func() {
		for _, s := range sides {
			s.close()
		}
	}()
	for _, c := range lossCases {
		g := &group{server: server, addr: server.Addr()}
		if g.session, err = zk.Open(ctx, zk.Options{Servers: []string{g.addr}, Timeout: time.Minute}); err != nil {
			return err
		}
		sides = append(sides, &lossGroup{lossCase: c, group: g, binary: binary})
	}
	locks, err := newLossLocks(ctx, server.Addr())
	if err != nil {
		return err
	}
	for _, l := range locks {
		sides = append(sides, l)
	}
	times := make([][]time.Duration, len(sides))
	for round := range rounds {
		if err := loseAll(ctx, sides, round, times); err != nil {
			return err
		}
	}
	for _, all := range times {
		slices.Sort(all)
	}
	reportLosses(t, locks, times)
	return nil
}

// loseAll loses a host of each side.
func loseAll(ctx context.Context, sides []lossSide, round int, times [][]time.Duration) error {
	defer func() {
		for _, s := range sides {
			s.end()
		}
	}()
	var starts errgroup.Group
	for _, s := range sides {
		starts.Go(func() error { return s.start(ctx, round) })
	}
	if err := starts.Wait(); err != nil {
		return err
	}
	var losses errgroup.Group
	for i, s := range sides {
		losses.Go(func() error {
			if err := waitFor(ctx, rand.N(tick)); err != nil {
				// at any time between two renewals, and between two ticks of the server
				return err
			}
			took, err := s.lose(ctx)
			times[i] = append(times[i], took)
			return err
		})
	}
	return losses.Wait()
}

// reportLosses adds the rows. The times of the locks are the last ones.
func reportLosses(t *table, locks []*lossLock, times [][]time.Duration) {
	groups := len(times) - len(locks)
	for _, q := range []float64{0.5, 1} {
		what := fmt.Sprintf("p50 of %d", len(times[0]))
		if q == 1 {
			what = "worst"
		}
		for i, c := range lossCases {
			took := quantile(times[i], q)
			against := fmt.Sprintf("%.2f T", share(took, lostTimeout))
			for k, l := range locks {
				other := quantile(times[groups+k], q)
				against += fmt.Sprintf(", %.2f of %s's %s", share(took, other), l.name, seconds(other))
			}
			goal := ""
			if q == 1 {
				goal = "<= " + seconds(c.goal)
			}
			t.add(fmt.Sprintf("%s: to READY elsewhere, %s", c.name, what), seconds(took), against, goal, took <= c.goal)
		}
		for k, l := range locks {
			took := quantile(times[groups+k], q)
			t.add(fmt.Sprintf("%s: holder's host lost, to the next first line, %s", l.name, what), seconds(took),
				fmt.Sprintf("%.2f T", share(took, lostTimeout)), "", true)
		}
	}
}

// lossGroup is a group of zkelectd.
type lossGroup struct {
	lossCase
	*group
	binary string
	nodes  map[string]*node
}

func (l *lossGroup) start(ctx context.Context, round int) error {
	l.nodes = make(map[string]*node)
	l.paths = cluster.Paths{Root: fmt.Sprintf("/%s%d", l.root, round)}
	if err := store.Init(ctx, l.session, l.paths, "the benchmark"); err != nil {
		return err
	}
	env := append([]string{"ZKELECTD_ELECTION_SETTLE=0s", "ZKELECTD_POLICY_FAILBACK=immediate"}, l.env...)
	for i, h := range l.hosts {
		n, err := l.spawnHost(l.addr, l.binary, h, lostTimeout, []string{"sleep", "100000"}, env...)
		if err != nil {
			return err
		}
		l.nodes[h.id] = n
		if err := l.members(ctx, i+1); err != nil {
			return err
		}
	}
	if err := l.leads(ctx, l.leader); err != nil {
		return err
	}
	return l.awaitHeir(ctx, l.leader, l.heir, min(len(l.hosts)-1, cluster.MaxDeputies))
}

// awaitHeir waits until the elector has published the heir of the leader, and n deputies.
func (g *group) awaitHeir(ctx context.Context, leader, next string, n int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		data, stat, err := g.session.Get(ctx, g.paths.Elected(), false)
		elected := cluster.ReadStored[cluster.Elected](g.paths.Elected(), data, stat, err == nil).Record
		data, stat, err = g.session.Get(ctx, g.paths.Heir(), false)
		record := cluster.ReadStored[cluster.HeirRecord](g.paths.Heir(), data, stat, err == nil).Record
		heir, deputies := elected.Heir, elected.Deputies
		if record.Term == elected.Term {
			heir, deputies = &record.Heir, record.Deputies
		}
		if elected.Node == leader && heir != nil && heir.Node == next && len(deputies) == n {
			return nil
		}
		if waitFor(ctx, 50*time.Millisecond) != nil {
			return fmt.Errorf("group %s: %s has not become the heir of %s; heir %v, deputies %v", g.paths.Root, next,
				leader, heir, deputies)
		}
	}
}

func (l *lossGroup) lose(ctx context.Context) (time.Duration, error) {
	var pids []int
	lost := make(map[string]bool)
	for _, h := range l.hosts {
		if lost[h.id] = h.lost; h.lost {
			pids = append(pids, tree(l.nodes[h.id].cmd.Process.Pid)...)
		}
	}
	began := freeze(pids)
	var ready time.Time
	err := l.until(ctx, func(c cluster.Stored[cluster.Current], now time.Time) bool {
		ready = now
		return c.Readable() && !lost[c.Record.Node] && c.Record.State == cluster.CurrentReady
	})
	if *verbose || *logs != "" {
		fmt.Fprintf(os.Stderr, "bench: %s: lost at %s, READY after %s\n", l.paths.Root,
			began.UTC().Format("15:04:05.000"), ready.Sub(began).Round(time.Millisecond))
	}
	return ready.Sub(began), err
}

func (l *lossGroup) end() {
	for _, n := range l.nodes {
		endFrozen(n.cmd)
	}
	l.nodes = nil
}

func (l *lossGroup) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	l.session.Close(ctx)
}

// freeze stops processes, and returns when it began.
func freeze(pids []int) time.Time {
	began := time.Now()
	for _, pid := range pids {
		syscall.Kill(pid, syscall.SIGSTOP)
	}
	return began
}

// endFrozen kills a process that may be stopped, and all that descend from it.
func endFrozen(cmd *exec.Cmd) {
	pids := tree(cmd.Process.Pid)
	freeze(pids)
	for _, pid := range pids {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	cmd.Wait()
}

// lossLock is a lock with a holder and a waiter.
type lossLock struct {
	name  string
	pipe  *pipe
	count func(context.Context) (int, error)
	spawn func(command []string) (*exec.Cmd, error)
	stop  func() // its server, or what observes it

	members []*exec.Cmd // the holder first
	work    int         // the command of the last holder
}

// newLossLocks returns a plain lock and, if it is installed, etcd's.
func newLossLocks(ctx context.Context, server string) ([]*lossLock, error) {
	session, err := zk.Open(ctx, zk.Options{Servers: []string{server}, Timeout: time.Minute})
	if err != nil {
		return nil, err
	}
	plain := &lossLock{
		name: "plain lock",
		count: func(ctx context.Context) (int, error) {
			names, _, err := session.Children(ctx, plainLockPath, false)
			return len(names), err
		},
		spawn: func(command []string) (*exec.Cmd, error) { return spawnLock(server, command) },
		stop: func() {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			session.Close(ctx)
		},
	}
	if plain.pipe, err = newPipe(); err != nil {
		plain.close()
		return nil, err
	}
	locks := []*lossLock{plain}
	etcdServer, err := startEtcd(ctx)
	if err == nil && etcdServer != nil {
		other := &lossLock{name: "etcdctl lock", count: etcdServer.members, spawn: etcdServer.spawn, stop: etcdServer.close}
		locks = append(locks, other)
		other.pipe, err = newPipe()
	}
	if err != nil {
		for _, l := range locks {
			l.close()
		}
		return nil, err
	}
	return locks, nil
}

func (l *lossLock) start(ctx context.Context, _ int) error {
	for i := range 2 {
		cmd, err := l.spawn(l.pipe.command(l.name))
		if err != nil {
			return err
		}
		l.members = append(l.members, cmd)
		if i == 0 {
			first, err := l.pipe.next(ctx, "first", l.name)
			if err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
			l.work = first.pid
		}
		for n := 0; n != i+1; {
			if n, err = l.count(ctx); err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
			if err := waitFor(ctx, 50*time.Millisecond); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *lossLock) lose(ctx context.Context) (time.Duration, error) {
	began := freeze(tree(l.members[0].Process.Pid))
	first, err := l.pipe.next(ctx, "first", l.name)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", l.name, err)
	}
	l.work = first.pid
	return first.at.Sub(began), nil
}

// end ends the frozen holder, and then the other one by the end of its command, so that it gives the lock back.
func (l *lossLock) end() {
	for i, cmd := range l.members {
		if i == 0 {
			endFrozen(cmd)
			continue
		}
		syscall.Kill(l.work, syscall.SIGTERM)
		ended := make(chan struct{})
		go func() {
			cmd.Wait()
			close(ended)
		}()
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			cmd.Process.Kill()
			<-ended
		}
	}
	l.members = nil
}

func (l *lossLock) close() {
	l.pipe.close()
	l.stop()
}
