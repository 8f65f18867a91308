package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"zkelectd/internal/cluster"
	"zkelectd/internal/store"
	"zkelectd/internal/test/zkserver"
	"zkelectd/internal/zk"
)

// outageKinds are ways of losing ZooKeeper for a while.
var outageKinds = []struct {
	name string
	run  func(context.Context, *zkserver.Ensemble) error
}{
	{"restart of all servers", restartAll},
	{"change of ZooKeeper's leader", changeLeader},
	{"outage of 3 s", func(ctx context.Context, e *zkserver.Ensemble) error {
		for _, s := range e.Servers {
			s.Pause()
		}
		err := waitFor(ctx, 3*time.Second)
		for _, s := range e.Servers {
			s.Resume()
		}
		return err
	}},
}

func restartAll(ctx context.Context, e *zkserver.Ensemble) error {
	for _, s := range e.Servers {
		s.Kill()
	}
	var starts errgroup.Group
	for _, s := range e.Servers {
		starts.Go(func() error { return s.Restart(ctx) })
	}
	return starts.Wait()
}

func changeLeader(ctx context.Context, e *zkserver.Ensemble) error {
	old, err := e.Leader(ctx)
	if err != nil {
		return err
	}
	old.Kill()
	for {
		if _, err := e.Leader(ctx); err == nil {
			return old.Restart(ctx)
		}
		if err := waitFor(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// outageMembers are the hosts of the group.
var outageMembers = []string{"a", "b", "c"}

// outageCalm is how long nothing has to happen after an outage: sessions that it has cost have ended by then, and their successors are at
// work.
const outageCalm = lostTimeout + 2*tick

// outages counts what outages of ZooKeeper, which all members survive, do to a group: no leader is to be moved, and none to get a strike.
func outages(ctx context.Context, t *table, binary string, rounds int) error {
	o, err := startOutages(ctx, binary)
	defer o.close()
	if err != nil {
		return err
	}
	for _, kind := range outageKinds {
		var sum outageEffects
		causes := make(map[cluster.Cause]int)
		for range rounds {
			effects, terms, err := o.measure(ctx, kind.run)
			if err != nil {
				return fmt.Errorf("%s: %w", kind.name, err)
			}
			sum.moves, sum.strikes, sum.restarts = sum.moves+effects.moves, sum.strikes+effects.strikes, sum.restarts+effects.restarts
			for _, p := range terms {
				causes[p.Cause]++
				if *verbose {
					fmt.Fprintf(os.Stderr, "bench: %s: term %d, %s: %s (%s)\n", kind.name, p.Term, p.Node, p.Cause, p.Reason)
				}
			}
		}
		var further []string
		for _, cause := range slices.Sorted(maps.Keys(causes)) {
			further = append(further, fmt.Sprintf("%d %s", causes[cause], cause))
		}
		t.add(fmt.Sprintf("%s, %d times: moves, strikes", kind.name, rounds), fmt.Sprintf("%d, %d", sum.moves, sum.strikes),
			fmt.Sprintf("restarts of the work: %d; further terms: %s", sum.restarts, cmp.Or(strings.Join(further, ", "), "none")),
			"0, 0", sum.moves == 0 && sum.strikes == 0)
	}
	return nil
}

// outageEffects are what an outage has done.
type outageEffects struct{ moves, strikes, restarts int }

// outageGroup is a group on three servers.
type outageGroup struct {
	*group
	ensemble *zkserver.Ensemble
	starts   string // the file to which the work of all members adds a byte when it starts
	nodes    []*node
}

// startOutages starts servers and members. The group is to be closed even after an error.
func startOutages(ctx context.Context, binary string) (o *outageGroup, err error) {
	o = &outageGroup{group: &group{paths: cluster.Paths{Root: "/outage"}}}
	if o.ensemble, err = zkserver.StartEnsemble(ctx, 3, production); err != nil {
		return o, err
	}
	o.addr = strings.Join(o.ensemble.Addrs(), ",")
	if o.session, err = zk.Open(ctx, zk.Options{Servers: o.ensemble.Addrs(), Timeout: time.Minute}); err != nil {
		return o, err
	}
	if err := store.Init(ctx, o.session, o.paths, "the benchmark"); err != nil {
		return o, err
	}
	dir, err := os.MkdirTemp("", "zkelectd-bench-")
	if err != nil {
		return o, err
	}
	o.starts = filepath.Join(dir, "starts")
	for i, id := range outageMembers {
		n, err := o.spawnWork(o.addr, binary, id, lostTimeout, []string{"sh", "-c", `printf x >> "$0"; exec sleep 100000`, o.starts},
			"ZKELECTD_ELECTION_SETTLE=0s", "ZKELECTD_POLICY_FAILBACK=manual")
		if err != nil {
			return o, err
		}
		o.nodes = append(o.nodes, n)
		if err := o.members(ctx, i+1); err != nil {
			return o, err
		}
	}
	return o, nil
}

func (o *outageGroup) close() {
	for _, n := range o.nodes {
		n.kill()
	}
	if o.session != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		o.session.Close(ctx)
	}
	if o.ensemble != nil {
		o.ensemble.Stop()
	}
	if o.starts != "" {
		os.RemoveAll(filepath.Dir(o.starts))
	}
}

// outageState is what is compared.
type outageState struct {
	elected cluster.Elected
	starts  int
}

// measure has an outage, and returns what it has done, and the terms since.
func (o *outageGroup) measure(ctx context.Context, outage func(context.Context, *zkserver.Ensemble) error) (outageEffects, []cluster.PastTerm, error) {
	var effects outageEffects
	before, err := o.calm(ctx, 0)
	if err != nil {
		return effects, nil, err
	}
	if err := outage(ctx, o.ensemble); err != nil {
		return effects, nil, err
	}
	after, err := o.calm(ctx, outageCalm)
	if err != nil {
		return effects, nil, err
	}
	data, _, err := o.session.Get(ctx, o.paths.History(), false)
	if err != nil {
		return effects, nil, err
	}
	past, err := cluster.DecodeHistory(o.paths.History(), data)
	if err != nil {
		return effects, nil, err
	}
	var terms []cluster.PastTerm
	leader := before.elected.Node
	for _, p := range past.Terms {
		if p.Term > before.elected.Term {
			terms = append(terms, p)
			if p.Node != leader {
				effects.moves++
			}
			leader = p.Node
		}
	}
	if after.elected.Node != leader {
		effects.moves++
	}
	effects.strikes = max(0, strikesOf(after.elected)-strikesOf(before.elected))
	effects.restarts = after.starts - before.starts
	return effects, terms, nil
}

func strikesOf(e cluster.Elected) (sum int) {
	for _, x := range e.Exclusions {
		sum += x.Strikes
	}
	return sum
}

// calm waits until all members are registered and the elected one is READY, and nothing has changed for a while.
func (o *outageGroup) calm(ctx context.Context, span time.Duration) (outageState, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	since, last := time.Now(), int64(-1)
	for {
		state, ready, err := o.look(ctx)
		if err != nil || !ready || state.elected.Term != last {
			since, last = time.Now(), state.elected.Term
		}
		if err == nil && ready && time.Since(since) >= span {
			return state, nil
		}
		if waitFor(ctx, 100*time.Millisecond) != nil {
			return state, fmt.Errorf("the group is not calm: elected %s in term %d, %w", state.elected.Node, state.elected.Term, err)
		}
	}
}

// look reads the state, and reports whether the elected member is READY and all are registered.
func (o *outageGroup) look(ctx context.Context) (state outageState, ready bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	names, _, err := o.session.Children(ctx, o.paths.Election(), false)
	if err != nil {
		return state, false, err
	}
	data, stat, err := o.session.Get(ctx, o.paths.Elected(), false)
	if err != nil {
		return state, false, err
	}
	state.elected = cluster.ReadStored[cluster.Elected](o.paths.Elected(), data, stat, true).Record
	if data, stat, err = o.session.Get(ctx, o.paths.Current(), false); err != nil {
		return state, false, err
	}
	current := cluster.ReadStored[cluster.Current](o.paths.Current(), data, stat, true).Record
	if data, err = os.ReadFile(o.starts); err != nil {
		return state, false, err
	}
	state.starts = len(data)
	return state, len(names) == len(outageMembers) && current.State == cluster.CurrentReady && current.Incarnation == state.elected.Incarnation, nil
}
