package sim

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"zkelectd/internal/operator/losses"
)

// No loss takes longer than the table says, for random groups, policies, latencies and clocks that go at different rates.
func TestLossesTakeNoLongerThanSaid(t *testing.T) {
	t.Parallel()
	longest := make(map[losses.Kind]float64) // how much of the time was needed
	rapid.Check(t, func(t *rapid.T) {
		for range 5 {
			kind, part := loseAndMeasure(t, rapid.Uint64Range(1, 1<<40).Draw(t, "seed"))
			if part > 0 {
				longest[kind] = max(longest[kind], part)
			}
		}
	})
	for kind, part := range longest {
		t.Logf("%s: %.2f of the time was needed", kind, part)
	}
}

// loseAndMeasure loses something of a group, and returns what, and how much of the time that the table says has passed until the next
// leader is READY. The work, the messages and the candidate's clock come on top of that time.
func loseAndMeasure(t *rapid.T, seed uint64) (losses.Kind, float64) {
	w := newQuietWorld(seed, shape{groups: 1, failsafe: seed%3 == 0})
	defer w.closeReaders()
	w.ticks, w.program = 3, 0 // else a session may end before its holder counts as silent, or before another member is elected
	g := w.groups[0]
	i := slices.IndexFunc(w.hosts, func(h *host) bool { return h.id == g.leader() })
	if i < 0 || !w.alike() || g.forecast(w.hosts[i].id).Leader.ID == "" {
		return "", 0
	}
	fence, deputies := g.check.readFence().Record, g.check.readElected().Record.Deputies
	if heir := g.check.readHeir(); heir.Readable() && heir.Record.Term == fence.Term {
		deputies = heir.Record.Deputies
	}
	if fence.Failsafe != nil && slices.ContainsFunc(deputies, func(id string) bool { return !fence.Names(id) }) {
		return "", 0 // a deputy without a right of succession leaves the takeover to the next one
	}
	lost, c := w.hosts[i], losses.Config{Budget: g.members[i].budget}
	c.Failsafe = w.failsafe != nil
	said := rapid.SampledFrom(losses.Table(c)).Draw(t, "loss")
	if said.Outcome == losses.SameLeader { // a property of the whole schedule: TestNoNeedlessStopInAnOutage
		return said.Kind, 0
	}
	term := g.check.readCurrent().Record.Term
	from := w.suffer(lost, said.Kind)
	within := time.Duration(said.Within)
	slack := w.traits.ready + time.Second + within/100 // the messages: a candidate reads first, then acquires
	for w.failure == "" && (g.leader() == "" || g.check.readCurrent().Record.Term == term) && w.now <= from+within+slack {
		w.run(w.now + 20*time.Millisecond)
	}
	if w.failure != "" {
		t.Fatalf("seed %d: %s", seed, w.failure)
	}
	if took := w.now - from; took > within+slack {
		t.Fatalf("seed %d: no leader %s after the loss of %s (%s); said were %s (%s)", seed, took, lost.id, said.Kind, said.Time(), said.Sum())
	}
	return said.Kind, float64(w.now-from) / float64(within)
}

// suffer makes a leader's host suffer a loss, and returns from when on its time counts.
func (w *world) suffer(h *host, k losses.Kind) (from time.Duration) {
	switch k {
	case losses.Daemon:
		h.crash(true)
	case losses.Host, losses.StandStill:
		h.crashForGood()
	case losses.Partition:
		h.cut(time.Hour, h.timeout)
	case losses.ZooKeeper:
		away := w.between(h.timeout, 4*h.timeout)
		w.outage(away)
		w.run(w.now + away)
	}
	return w.now
}

// alike reports whether all hosts have the same session timeout.
func (w *world) alike() bool {
	return len(slices.Compact(slices.Clone(w.traits.timeouts))) == 1
}
