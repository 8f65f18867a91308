package sim

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/policy"
)

// The forecast of a loss is what then happens, for 500 random groups, policies and requests.
func TestForecastsComeTrue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		for range 5 {
			forecastComesTrue(t, rapid.Uint64Range(1, 1<<40).Draw(t, "seed"), func(hosts int) int {
				return rapid.IntRange(0, hosts-1).Draw(t, "lost")
			})
		}
	})
}

// Forecasts that did not come true once.
func TestEarlierForecastsComeTrue(t *testing.T) {
	for seed, lost := range map[uint64]int{859690107: 0} {
		forecastComesTrue(t, seed, func(int) int { return lost })
	}
}

// forecastComesTrue runs a group, forecasts what happens if the chosen one of its hosts is lost, and loses it.
func forecastComesTrue(t rapid.TB, seed uint64, choose func(hosts int) int) {
	t.Helper()
	w := newQuietWorld(seed, shape{groups: 1})
	defer w.closeReaders()
	g := w.groups[0]
	lost := w.hosts[choose(len(w.hosts))]
	predicted := g.forecast(lost.id)
	before := g.leader()
	lost.crashForGood()
	w.run(w.now + 3*lost.timeout)
	w.waitUntilQuiet()
	if w.failure != "" {
		t.Fatalf("seed %d: %s", seed, w.failure)
	}
	is := g.leader()
	held := predicted.Last.Blocked.Reason != "" && predicted.Last.Ranking.Entries[0].Member.ID == is
	approved := predicted.Last.AwaitsApproval && strings.HasPrefix(predicted.Last.Note, is+" ") // by confirm_after
	if is != predicted.Leader.ID && !held && !approved {
		t.Fatalf("seed %d: without %s, after %s, %q was to lead (%v, %s %s), and %q does",
			seed, lost.id, before, predicted.Leader.ID, predicted.Steps, predicted.Last.Blocked, predicted.Last.Note, is)
	}
}

// newQuietWorld returns a world with one group that has had only requests of operators, once nothing happens in it any more. Its readers
// must be closed.
func newQuietWorld(seed uint64, s shape) *world {
	w := newWorld(seed, s, breakage{}, nil)
	w.onlyRequests()
	w.plan()
	w.run(w.traits.busy)
	w.heal()
	w.groups[0].withoutDurations()
	w.waitUntilQuiet()
	return w
}

// onlyRequests leaves only requests of operators and the hosts' own reports.
func (w *world) onlyRequests() {
	w.quiet, w.fencing = true, nil
	w.withoutRollCalls()
	t := &w.traits
	t.stuck, t.refusesRelease, t.total, t.jumps = false, false, 0, 0
	for _, g := range w.groups {
		g.traits.keepsRequests, g.traits.noise = true, false
	}
	t.slow, t.lateWatch, t.lostWatch, t.lateWrites, t.slowKill, t.hooks, t.failing, t.dying, t.handoverFault, t.deletedDecision, t.interrupted = 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
	t.granting = grantAlike
	t.exclusion, t.flaky = time.Second, 0 // none ends while the world is quiet
	t.turn = min(t.turn, time.Millisecond)
	for i := range t.latency {
		t.latency[i] = min(t.latency[i], 10*time.Millisecond)
	}
	for i, k := range faultKinds {
		if !k.byOperator && !strings.HasSuffix(k.name, "changed") {
			t.weights[i] = 0
		}
		t.total += t.weights[i]
	}
}

// withoutDurations has no request end by itself: when that is seen is the elector's own.
func (g *group) withoutDurations() {
	g.command(0, func(c *cluster.Control) {
		endless := func(o *cluster.Request) { o.For, o.Remaining = 0, 0 }
		c.Each(endless)
	})
}

// waitUntilQuiet waits until nothing has been decided for longer than failback and damping may take.
func (w *world) waitUntilQuiet() {
	const quiet = 35 * time.Second // an heir that takes turns with another, or was refused, is written up to 30 s later
	for changed, at := int64(-1), w.now; w.failure == "" && w.now-at < quiet; w.run(w.now + time.Second) {
		check := w.groups[0].check
		if now := check.readElected().Stat.Modified + check.readCurrent().Stat.Modified + check.readHeir().Stat.Modified; now != changed {
			changed, at = now, w.now
		}
	}
}

// leader returns the node that is READY, "" if none is.
func (g *group) leader() string {
	if c := g.check.readCurrent(); c.Readable() && c.Record.State == cluster.CurrentReady {
		return c.Record.Node
	}
	return ""
}

// forecast forecasts a loss, as zkelectd whatif does.
func (g *group) forecast(lost string) whatif.Outcome {
	w := g.w
	in, err := g.toRank()
	if err != nil {
		g.fail("%v", err)
	}
	compiled, err := g.inForce()
	if err != nil {
		g.fail("%v", err)
	}
	snap := cluster.Snapshot{
		Policy:  g.readPolicy(),
		Elected: g.check.readElected(), Fence: g.check.readFence(), Current: g.check.readCurrent(), Control: g.check.readControl(), Members: in.Members,
		HolderRead: true, Elector: true,
	}
	return whatif.Run(whatif.Question{
		Snapshot: snap, Policy: compiled, Change: whatif.Change{Without: []string{lost}}, Wall: w.wall(),
		Options: elector.Options{Exclusion: w.traits.exclusion, ExclusionMax: max(w.traits.exclusion, time.Hour)},
		Ask: func(ask policy.Input) *policy.Answer {
			a := g.answer(ask)
			return &a
		},
	})
}
