package faults

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"zkelectd/internal/racelog"
)

var (
	count = flag.Int("faults.n", 12, "inject so many faults")
	seed  = flag.Uint64("faults.seed", 0, "repeat this choice of faults; 0 takes one from the clock")
	// self plays the child.
	self string
	bins string
)

func TestMain(m *testing.M) {
	if os.Getenv("LEDGER") != "" {
		child()
		return
	}
	flag.Parse()
	var err error
	if self, err = os.Executable(); err == nil {
		bins, err = os.MkdirTemp("", "zkelectd-faults-bin-")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(bins)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// build builds zkelectd, with the race detector if this test has it.
func build(t *testing.T, tags string) string {
	t.Helper()
	path := filepath.Join(bins, "zkelectd-"+tags)
	args := []string{"build", "-o", path, "-tags", tags}
	if race {
		args = append(args, "-race")
	}
	out, err := exec.CommandContext(t.Context(), "go", append(args, "zkelectd/cmd/zkelectd")...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

func TestCampaign(t *testing.T) {
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d, repeat with: go test ./internal/faults -run TestCampaign -faults.n=%d -faults.seed=%d", *seed, *count, *seed)
	f := newFleet(t, build(t, ""), *seed)
	if _, err := f.converge(t.Context()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	injected := make(map[string]int)
	var took []time.Duration
	for n := 0; n < *count && !t.Failed(); {
		n += f.round(injected, min(*count-n, 1+max(0, f.rng.IntN(6)-3)))
		if f.rng.Float64() < 0.7 {
			d, err := f.converge(t.Context())
			if err != nil {
				t.Error(err)
			}
			took = append(took, d)
			f.inspect()
		}
	}
	d, err := f.converge(t.Context())
	if err != nil {
		t.Error(err)
	}
	took = append(took, d)
	f.report(injected, took, time.Since(began))
}

// round injects some faults together, holds them for up to three session timeouts, and heals them.
func (f *fleet) round(injected map[string]int, together int) int {
	var heals []func()
	var names []string
	for range together {
		k := kinds[f.rng.IntN(len(kinds))]
		heal, err := k.inject(f)
		if err != nil {
			f.t.Errorf("%s: %v", k.name, err)
			continue
		}
		heals, names = append(heals, heal), append(names, k.name)
		injected[k.name]++
	}
	hold := time.Duration(f.rng.Int64N(int64(3 * sessionTimeout)))
	if f.rng.Float64() < 0.5 {
		hold /= 5
	}
	f.t.Logf("%s: %s", hold.Round(time.Millisecond), strings.Join(names, ", "))
	held := time.NewTimer(hold)
	defer held.Stop()
	select {
	case <-held.C:
	case <-f.t.Context().Done():
	}
	for _, heal := range slices.Backward(heals) {
		heal()
	}
	return together
}

// inspect reads S1 in the ledger.
func (f *fleet) inspect() []tenure {
	all, err := readLedger(f.file("ledger"))
	if err != nil {
		f.t.Error(err)
	}
	for _, fault := range check(all) {
		f.t.Error(fault)
	}
	return all
}

func (f *fleet) report(injected map[string]int, took []time.Duration, lasted time.Duration) {
	all := f.inspect()
	if !linearizable(all) {
		f.t.Error("porcupine: acquiring and releasing is not linearizable")
	}
	for _, n := range f.nodes {
		log, err := os.ReadFile(f.file(n.id + ".log"))
		if err != nil {
			f.t.Error(err)
		}
		if strings.Contains(string(log), "panic:") || racelog.Found(string(log)) {
			f.t.Errorf("the log of %s has a panic or a data race", n.id)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(injected)) {
		f.t.Logf("%4d  %s", injected[name], name)
	}
	total, longest := idle(all)
	slices.Sort(took)
	f.t.Logf("%d faults in %s, %d tenures, %d overlaps; without a leader %s in all, %s at most; settled after %s (median), %s at most",
		sum(injected), lasted.Round(time.Second), len(all), len(check(all)), total.Round(time.Millisecond), longest.Round(time.Millisecond),
		took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
}

func sum(m map[string]int) (n int) {
	for _, x := range m {
		n += x
	}
	return n
}

// With the enforcement of the lease taken out, the campaign must notice: a daemon that stands still for long is replaced,
// and its child works on.
func TestWithoutEnforcementTheLedgerShowsIt(t *testing.T) {
	f := newFleet(t, build(t, "noenforcement"), 1)
	if _, err := f.converge(t.Context()); err != nil {
		t.Fatal(err)
	}
	daemon := f.leader().pids().daemon
	syscall.Kill(daemon, syscall.SIGSTOP)
	defer syscall.Kill(daemon, syscall.SIGCONT)
	limit := time.After(bound)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		all, err := readLedger(f.file("ledger"))
		if err != nil {
			t.Fatal(err)
		}
		if faults := check(all); len(faults) > 0 && !linearizable(all) {
			t.Logf("noticed: %s", faults[0])
			return
		}
		select {
		case <-tick.C:
		case <-limit:
			t.Fatal("two children at work are not noticed")
		}
	}
}
