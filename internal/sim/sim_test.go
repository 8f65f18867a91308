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

	"zkelectd/internal/transition"
)

var (
	oneSeed     = flag.Uint64("sim.seed", 0, "replay this schedule and print its trace")
	runFor      = flag.Duration("sim.for", 3*time.Second, "how long to try new schedules")
	maxFailures = flag.Int("sim.failures", 1, "stop after this many schedules have failed")
	from        = flag.Uint64("sim.from", 0, "the first seed; 0 takes it from the clock")
)

// A schedule leaves much garbage and keeps little memory, so collecting seldom is faster.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800)
	m.Run()
}

var quitEvent = transition.Quit{Reason: "stopped by the schedule"}

// play runs one schedule.
func play(seed uint64, broken breakage, trace func(string)) *world {
	w := newWorld(seed, broken, trace)
	w.log("seed %d: %s", seed, w.traits)
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
		if h.loop != nil {
			h.loop.close()
		}
	}
}

// report reports a failed schedule with the end of its trace.
func report(t *testing.T, seed uint64) {
	t.Helper()
	var lines []string
	w := play(seed, breakage{}, func(line string) { lines = append(lines, line) })
	const most = 120
	t.Errorf("%s\nreplay with: go test ./internal/sim -run TestSimulation -sim.seed=%d\n%s", w.failure, seed,
		strings.Join(lines[max(0, len(lines)-most):], "\n"))
}

func TestSimulation(t *testing.T) {
	if *oneSeed != 0 {
		w := play(*oneSeed, breakage{}, func(line string) { fmt.Fprintln(os.Stdout, line) })
		if w.failure != "" {
			t.Error(w.failure)
		}
		return
	}
	seed := *from
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	first, began, events, terms, failed := seed, time.Now(), 0, 0, 0
	faults := make(map[string]int)
	for ; time.Since(began) < *runFor; seed++ {
		w := play(seed, breakage{}, nil)
		events += w.events
		terms += w.check.terms
		for k, n := range w.faults {
			faults[k] += n
		}
		if w.failure == "" {
			continue
		}
		if failed++; *maxFailures == 1 {
			report(t, seed)
		} else {
			t.Errorf("seed %d: %s", seed, w.failure)
		}
		if failed == *maxFailures {
			break
		}
	}
	n := int(seed - first)
	took := time.Since(began).Seconds()
	t.Logf("seeds %d to %d: %d schedules of %d events on average, %.0f a second; %d leaderships", first, seed, n, events/max(1, n), float64(n)/took, terms)
	for _, k := range slices.Sorted(maps.Keys(faults)) {
		t.Logf("%8d  %s", faults[k], k)
	}
}

// TestKnownSeeds replays schedules that once failed. They change whenever what a schedule draws changes.
func TestKnownSeeds(t *testing.T) {
	for _, seed := range []uint64{} {

		if w := play(seed, breakage{}, nil); w.failure != "" {
			report(t, seed)
		}
	}
}

// A seed always gives the same schedule.
func TestReplay(t *testing.T) {
	for seed := range uint64(20) {
		var a, b []string
		play(seed, breakage{}, func(line string) { a = append(a, line) })
		play(seed, breakage{}, func(line string) { b = append(b, line) })
		if !slices.Equal(a, b) {
			t.Fatalf("seed %d gave two different schedules", seed)
		}
	}
}

// Each check is removed in turn, which the simulation must detect: otherwise it proves nothing.
func TestBreakages(t *testing.T) {
	const limit = 20_000
	for _, b := range []breakage{
		{name: noOwnIncarnation, by: "S1 S2"}, {name: noElectedVersion, by: "S1 S2"}, {name: noFenceVersion, by: "S1 S2"}, {name: noLeaseWait, by: "S1"}, {name: releasedUnclean, by: "S1"},
		{name: releaseEarly, by: "S1"}, {name: weakRenew, by: "S1"}, {name: inMemory, by: "L2"}, {name: blameCandidate, by: "L2"}, {name: noAmnesty, by: "L1 L3"}, {name: noRevoke, by: "L1 L2"},
		{name: noDamping, by: "damping"}, {name: newCircumstances, by: "S3 L4"}, {name: noHysteresis, by: "S3"}, {name: softPause, by: "pause"}, {name: noPause, by: "pause"}, {name: noCordon, by: "L4"}, {name: noMove, by: "L4"},
		{name: noFailback, by: "failback"}, {name: noElection, by: "L4"}, {name: mixedMoments, by: "S1 S2"}, {name: holderGone, by: "S1"}, {name: shortKill, by: "S1"},
		{name: absentFenceClean, by: "S1"}, {name: keepLease, by: "S1", timed: true, granting: grantShorter}, {name: longestLease, by: "S1", timed: true, granting: grantLonger}, {name: anyTerm, by: "S2"}, {name: trustSessionEnd, by: "S1"}, {name: leaveEarly, by: "S1"},
	} {
		t.Run(strings.ReplaceAll(b.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= limit; seed++ {
				w := play(seed, b, nil)
				if by, _, _ := strings.Cut(w.failure, ":"); w.failure != "" && strings.Contains(b.by, by) && play(seed, breakage{timed: b.timed, granting: b.granting}, nil).failure == "" {
					t.Logf("caught by seed %d: %s", seed, w.failure)
					return
				}
			}
			t.Errorf("not caught by %d schedules", limit)
		})
	}
}
