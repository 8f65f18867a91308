package sim

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
	"zkelectd/internal/policy"
	"zkelectd/internal/whatif"
)

// What is foretold of a loss is what then happens: for 500 random groups, policies and requests.
func TestForecastsComeTrue(t *testing.T) {
	for range 5 {
		rapid.Check(t, func(t *rapid.T) {
			w := newWorld(rapid.Uint64Range(1, 1<<40).Draw(t, "seed"), breakage{}, nil)
			w.peaceful()
			w.plan()
			w.run(w.traits.busy)
			w.heal()
			w.timeless()
			w.rest()
			lost := w.hosts[rapid.IntRange(0, len(w.hosts)-1).Draw(t, "lost")]
			foretold := w.foretell(lost.id)
			before := w.leader()
			lost.crash(false)
			lost.alive = true // nobody starts it again
			w.run(w.now + 3*lost.timeout)
			w.rest()
			if w.failure != "" {
				t.Fatal(w.failure)
			}
			is := w.leader()
			held := foretold.Last.Blocked != "" && foretold.Last.Ranking.Entries[0].Member.ID == is
			if is != foretold.Leader.ID && !held {
				t.Fatalf("without %s, after %s, %q was to lead (%v, %s %s), and %q does", lost.id, before, foretold.Leader.ID, foretold.Steps, foretold.Last.Blocked, foretold.Last.Note, is)
			}
		})
	}
}

// peaceful leaves only what operators do and hosts say of themselves.
func (w *world) peaceful() {
	t := &w.traits
	t.stuck, t.clings, t.keeps, t.noise, t.total, t.jumps = false, false, true, false, 0, 0
	t.slow, t.lateWatch, t.lostWatch, t.ghosts, t.slowKill, t.hooks, t.failing, t.dying, t.ambush, t.snatch = 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
	t.granting = grantAlike
	t.exclusion, t.flaky = time.Second, 0 // none ends while all rests
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

// timeless has no request end by itself: when that is seen is the elector's own.
func (w *world) timeless() {
	w.command(0, func(c *cluster.Control) { c.Each(func(o *cluster.Request) { o.For, o.Remaining = 0, 0 }) })
}

// rest waits until nothing has been decided for longer than failback and damping may take.
func (w *world) rest() {
	const quiet = 25 * time.Second
	for changed, at := int64(-1), w.now; w.failure == "" && w.now-at < quiet; w.run(w.now + time.Second) {
		if now := w.check.readElected().Stat.Modified + w.check.readCurrent().Stat.Modified; now != changed {
			changed, at = now, w.now
		}
	}
}

// leader is who is READY, "" if nobody is.
func (w *world) leader() string {
	if c := w.check.readCurrent(); c.Readable() && c.Record.State == cluster.CurrentReady {
		return c.Record.Node
	}
	return ""
}

// foretell asks what would come of a loss, as zkelectd whatif does.
func (w *world) foretell(lost string) whatif.Outcome {
	in, err := w.members()
	if err != nil {
		w.fail("%v", err)
	}
	compiled, err := w.inForce()
	if err != nil {
		w.fail("%v", err)
	}
	data, stat, err := w.tree.Get(0, w.known.policy, false)
	snap := cluster.Snapshot{
		Policy:  cluster.ReadSlot[cluster.Policy](w.known.policy, data, stat, err == nil),
		Elected: w.check.readElected(), Fence: w.check.readFence(), Current: w.check.readCurrent(), Control: w.check.readControl(), Members: in.Members,
		Leadership: true, Elector: true,
	}
	return whatif.Run(whatif.Question{
		Snapshot: snap, Policy: compiled, Change: whatif.Change{Without: []string{lost}}, Wall: w.wall(),
		Options: elector.Options{Exclusion: w.traits.exclusion, ExclusionMax: max(w.traits.exclusion, time.Hour)},
		Ask: func(ask policy.Input) *policy.Answer {
			a := w.answer(ask)
			return &a
		},
	})
}
