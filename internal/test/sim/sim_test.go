package sim

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var (
	oneSeed   = flag.Uint64("sim.seed", 0, "replay this schedule and print its trace")
	groups    = flag.Int("sim.groups", 0, "how many groups the hosts have; 0: one, or several in some of the schedules")
	runFor    = flag.Duration("sim.for", 3*time.Second, "how long to try new schedules")
	slotted   = flag.Bool("sim.slots", false, "the first group has slots; with sim.groups")
	failsafes = flag.Bool("sim.failsafe", false, "the groups use failsafe mode; with sim.groups")
	hunt      = flag.Bool("sim.hunt", false, "search for schedules that notice the breakages that none has noticed yet")
	from      = flag.Uint64("sim.from", 0, "the first seed; 0 takes it from the clock")
)

// A schedule leaves much garbage and keeps little memory, so collecting seldom is faster.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800)
	goleak.VerifyTestMain(m)
}

// play runs one schedule.
func play(seed uint64, s shape, broken breakage, trace func(string)) *world {
	if broken.calmOutage {
		return playOutage(seed, broken, trace)
	}
	w := newWorld(seed, s, broken, trace)
	w.log("seed %d: %+v", seed, w.traits)
	w.plan()
	w.run(w.traits.busy)
	if w.failure == "" {
		w.heal()
		w.converge()
	}
	w.closeReaders()
	return w
}

// closeReaders ends the readers.
func (w *world) closeReaders() {
	for _, h := range w.hosts {
		h.endInstances()
	}
}

// several is how many groups the hosts have in the schedules with more than one.
const several = 3

// shapeOf returns the shape of the schedule of a seed.
func shapeOf(seed uint64) shape {
	s := kindOf(seed)
	s.values = seed%5 == 4
	return s
}

func kindOf(seed uint64) shape {
	switch {
	case *groups > 0:
		return shape{groups: *groups, slots: *slotted, failsafe: *failsafes}
	case seed%8 == 2:
		return shape{groups: 1, failsafe: true}
	case seed%24 == 6:
		return shape{groups: several, failsafe: true}
	case seed%12 == 1:
		return shape{groups: 2, slots: true}
	case seed%3 == 1:
		return shape{groups: 1, slots: true}
	case seed%3 == 0:
		return shape{groups: several}
	}
	return shape{groups: 1}
}

// report reports a failed schedule with the end of its trace.
func report(t *testing.T, seed uint64, s shape) {
	t.Helper()
	var lines []string
	w := play(seed, s, breakage{}, func(line string) { lines = append(lines, line) })
	const most = 120
	t.Errorf("%s\nreplay with: go test ./internal/test/sim -run TestSimulation -sim.seed=%d -sim.groups=%d -sim.slots=%v -sim.failsafe=%v\n%s", w.failure, seed, s.groups, s.slots, s.failsafe,
		strings.Join(lines[max(0, len(lines)-most):], "\n"))
}

func TestSimulation(t *testing.T) {
	if *oneSeed != 0 {
		w := play(*oneSeed, shapeOf(*oneSeed), breakage{}, func(line string) { fmt.Fprintln(os.Stdout, line) })
		if w.failure != "" {
			t.Error(w.failure)
		}
		return
	}
	simulate(t, shapeOf)
}

// firstSeed returns the seed to begin with.
func firstSeed() uint64 {
	if *from != 0 {
		return *from
	}
	return uint64(time.Now().UnixNano())
}

// simulate plays new schedules, of these shapes.
func simulate(t *testing.T, shapeOf func(seed uint64) shape) {
	t.Helper()
	seed := firstSeed()
	first, began, events, terms := seed, time.Now(), 0, 0
	faults := make(map[string]int)
	for ; time.Since(began) < *runFor && !t.Failed(); seed++ {
		w := play(seed, shapeOf(seed), breakage{}, nil)
		events += w.events
		for _, g := range w.groups {
			terms += g.check.terms
		}
		for k, n := range w.faults {
			faults[k] += n
		}
		if w.failure != "" {
			report(t, seed, shapeOf(seed))
		}
	}
	n := int(seed - first)
	took := time.Since(began).Seconds()
	t.Logf("seeds %d to %d: %d schedules of %d events on average, %.0f a second; %d leaderships", first, seed, n, events/max(1, n), float64(n)/took, terms)
	for _, k := range slices.Sorted(maps.Keys(faults)) {
		t.Logf("%8d  %s", faults[k], k)
	}
}

// A seed always gives the same schedule.
func TestReplay(t *testing.T) {
	for seed := range uint64(20) {
		var a, b []string
		play(seed, shapeOf(seed), breakage{}, func(line string) { a = append(a, line) })
		play(seed, shapeOf(seed), breakage{}, func(line string) { b = append(b, line) })
		if !slices.Equal(a, b) {
			t.Fatalf("seed %d gave two different schedules", seed)
		}
	}
}

// Each check is removed in turn, which the simulation must detect: otherwise it proves nothing.
func TestBreakages(t *testing.T) {
	for _, b := range breakages {
		if b.merged || b.slotted {
			continue
		}
		t.Run(strings.ReplaceAll(b.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			b.find(t, b.one, shape{groups: 1})
		})
	}
}

// The simulation must also detect them where hosts have several groups.
func TestBreakagesInSeveralGroups(t *testing.T) {
	for _, b := range breakages {
		if b.slotted || b.rare && !*hunt {
			continue
		}
		t.Run(strings.ReplaceAll(b.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			b.find(t, b.three, shape{groups: several})
		})
	}
}

// The simulation must also detect those of what slots add. That of the checks of slots in ACQUIRE and ELECT is tested in package cluster:
// other checks mostly stand in for them.
func TestBreakagesInSlots(t *testing.T) {
	for _, b := range breakages {
		if !b.slotted {
			continue
		}
		t.Run(strings.ReplaceAll(b.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			b.find(t, b.slots, shape{groups: 1, slots: true})
		})
	}
}

// find tries the schedule that has noticed the breakage before. If it no longer does, which any change may cause, others are tried.
func (b breakage) find(t *testing.T, known uint64, s shape) {
	t.Helper()
	const limit = 20_000
	if b.noticed(t, known, s) {
		return
	}
	for seed := uint64(1); seed <= limit; seed++ {
		if b.noticed(t, seed, s) {
			t.Logf("record this seed: %d no longer notices it", known)
			return
		}
	}
	t.Errorf("not noticed by %d schedules", limit)
}

// noticed reports whether a schedule notices the breakage, and passes without it.
func (b breakage) noticed(t *testing.T, seed uint64, s shape) bool {
	t.Helper()
	w, control := play(seed, s, b, nil), b
	control.name = b.control
	by, _, _ := strings.Cut(w.failure, ":")
	if w.failure == "" || !strings.Contains(b.by, by) || play(seed, s, control, nil).failure != "" {
		return false
	}
	t.Logf("%s: noticed by seed %d: %s", b.name, seed, w.failure)
	return true
}
