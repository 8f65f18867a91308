package faults

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
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

	"zkelectd/internal/boottime"
	"zkelectd/internal/testhelper"
)

var (
	count = flag.Int("faults.n", 12, "the number of faults to inject")
	only  = flag.String("faults.only", "", "inject mostly faults whose name contains this")
	keep  = flag.Bool("faults.keep", false, "keep the ledger and the logs")
	seed  = flag.Uint64("faults.seed", 0, "the seed for the choice of faults; 0 takes one from the clock")
	// self is this program, which is also the child.
	self   string
	binDir string
)

func TestMain(m *testing.M) {
	var err error
	self, err = os.Executable()
	if err == nil && playRole() {
		return
	}
	flag.Parse()
	if err == nil {
		binDir, err = os.MkdirTemp("", "zkelectd-faults-bin-")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(binDir)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// buildDaemon builds zkelectd, with the race detector if this test has it.
func buildDaemon(t *testing.T, tags string) string {
	t.Helper()
	path := filepath.Join(binDir, "zkelectd-"+tags)
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
	f := newFleet(t, buildDaemon(t, ""), *seed, func(*node) {})
	if _, err := f.converge(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := &campaign{fleet: f, began: time.Now(), injected: make(map[string]int), settled: make(map[string][]time.Duration)}
	for n := 0; n < *count && !t.Failed(); {
		n += c.round(min(*count-n, 1+max(0, f.rng.IntN(6)-3)))
		if f.rng.Float64() < 0.7 {
			c.settle()
			f.checkLedger()
		}
	}
	c.settle()
	c.report()
}

// campaign records the faults injected into a fleet, and how long it took to settle.
type campaign struct {
	*fleet
	began    time.Time
	injected map[string]int             // by the fault's name
	since    []string                   // the faults since the fleet has settled
	settled  map[string][]time.Duration // how long it took to settle, by the names of the faults before it; "" for all
}

// settle waits until the fleet has settled, and records how long it took.
func (c *campaign) settle() {
	took, err := c.converge(c.t.Context())
	if err != nil {
		c.t.Errorf("%v (%s)", err, strings.Join(c.since, ", "))
	}
	slices.Sort(c.since)
	for _, name := range append(slices.Compact(c.since), "") {
		c.settled[name] = append(c.settled[name], took)
	}
	c.since = nil
}

// round injects some faults at once, keeps them for up to three session timeouts, and ends them. It returns how many there were.
func (c *campaign) round(together int) (injected int) {
	var heals []func()
	var names []string
	for range together {
		k := allFaults[c.rng.IntN(len(allFaults))]
		if *only != "" && !strings.Contains(k.name, *only) && c.rng.Float64() < 0.95 {
			continue
		}
		heal, err := k.inject(c.fleet)
		switch {
		case errors.Is(err, errNotPromised):
			continue
		case err != nil:
			c.t.Errorf("%s: %v", k.name, err)
			continue
		}
		heals, names = append(heals, heal), append(names, k.name)
		c.injected[k.name]++
	}
	if len(names) == 0 {
		return 0
	}
	c.since = append(c.since, names...)
	hold := time.Duration(c.rng.Int64N(int64(3 * sessionTimeout)))
	if c.rng.Float64() < 0.5 {
		hold /= 5
	}
	c.t.Logf("%s at %d: %s", hold.Round(time.Millisecond), boottime.Now(), strings.Join(names, ", "))
	c.wait(hold)
	for _, heal := range slices.Backward(heals) {
		heal()
	}
	return len(names)
}

// checkLedger checks S1 in the ledger.
func (f *fleet) checkLedger() []tenure {
	all, err := readLedger(f.file("ledger"))
	if err != nil {
		f.t.Error(err)
	}
	for _, fault := range check(all) {
		f.t.Error(fault)
	}
	return all
}

// report checks the ledger and the logs at the end, and logs the results.
func (c *campaign) report() {
	lasted := time.Since(c.began)
	all := c.checkLedger()
	if !linearizable(all) {
		c.t.Error("porcupine: acquiring and releasing is not linearizable")
	}
	for _, n := range c.nodes {
		log, err := os.ReadFile(c.file(n.id + ".log"))
		if err != nil {
			c.t.Error(err)
		}
		if strings.Contains(string(log), "panic:") || testhelper.HasRace(string(log)) {
			c.t.Errorf("the log of %s contains a panic or a data race", n.id)
		}
	}
	waited := 0
	for _, n := range c.nodes {
		waited += n.disk.Waited()
		control, err := os.ReadFile(filepath.Join(n.memory.Dir, "memory.oom_control"))
		if err != nil {
			c.t.Error(err)
		}
		c.t.Logf("%s: %s", n.id, strings.ReplaceAll(strings.TrimSpace(string(control)), "\n", ", "))
	}
	c.t.Logf("%d reads waited for a stalled disk", waited)
	for _, name := range slices.Sorted(maps.Keys(c.injected)) {
		c.t.Logf("%4d  %-55s settled after %s", c.injected[name], name, summary(c.settled[name]))
	}
	total, longest := leaderlessTime(all)
	c.t.Logf("%d faults in %s, %d tenures, %d overlaps; without a leader for %s in total, at most %s; settled after %s",
		sum(c.injected), lasted.Round(time.Second), len(all), len(check(all)), total.Round(time.Millisecond), longest.Round(time.Millisecond),
		summary(c.settled[""]))
}

// summary returns the median and the maximum of some durations.
func summary(took []time.Duration) string {
	if len(took) == 0 {
		return "-"
	}
	slices.Sort(took)
	return fmt.Sprintf("%s (median), %s (maximum)", took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
}

func sum(m map[string]int) (n int) {
	for _, x := range m {
		n += x
	}
	return n
}

// Without enforcement of leases, a daemon that is stopped for long is replaced while its child still runs. The campaign must
// notice that.
func TestCampaignNoticesMissingEnforcement(t *testing.T) {
	f := newFleet(t, buildDaemon(t, "noenforcement"), 1, func(*node) {})
	if _, err := f.converge(t.Context()); err != nil {
		t.Fatal(err)
	}
	daemon, ok := f.leader().pids()[daemonProcess]
	if !ok {
		t.Fatal("the leader has no daemon")
	}
	syscall.Kill(daemon, syscall.SIGSTOP)
	defer syscall.Kill(daemon, syscall.SIGCONT)
	f.waitForOverlap()
}

// With the containment keeper, a hidden grandchild survives if guard, keeper and daemon are killed at once, as docs/safety.md
// says. The campaign must notice that, too.
func TestCampaignNoticesHiddenGrandchildren(t *testing.T) {
	f := newFleet(t, buildDaemon(t, ""), 1, func(n *node) { n.containment, n.hidesChildren = "keeper", true })
	if _, err := f.converge(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.poll("a grandchild", func(ledger string) bool { return strings.Contains(ledger, grandchildArgument) })
	n := f.leader()
	if n.isPromised(zkelectdProcesses, nil) {
		t.Error("isPromised reports that the death of this work is promised")
	}
	pids := n.pids()
	for _, who := range zkelectdProcesses {
		if pids[who] == 0 {
			t.Fatalf("the leader has no %s", who)
		}
	}
	for _, who := range zkelectdProcesses {
		syscall.Kill(pids[who], syscall.SIGSTOP)
	}
	// The guard last: the kernel continues stopped processes when the death of their parent orphans their process group.
	for _, who := range slices.Backward(zkelectdProcesses) {
		syscall.Kill(pids[who], syscall.SIGKILL)
	}
	f.waitForOverlap()
}

// waitForOverlap waits until the checkers find two children that run at the same time.
func (f *fleet) waitForOverlap() {
	f.t.Helper()
	f.poll("two running children", func(string) bool {
		all, err := readLedger(f.file("ledger"))
		if err != nil {
			f.t.Fatal(err)
		}
		faults := check(all)
		if len(faults) == 0 || linearizable(all) {
			return false
		}
		f.t.Logf("noticed: %s", faults[0])
		return true
	})
}

// poll waits until the ledger shows a condition.
func (f *fleet) poll(what string, shown func(ledger string) bool) {
	f.t.Helper()
	limit := time.After(settleTimeout)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		data, err := os.ReadFile(f.file("ledger")) // perhaps no child has written yet
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			f.t.Fatal(err)
		}
		if err == nil && shown(string(data)) {
			return
		}
		select {
		case <-tick.C:
		case <-limit:
			f.t.Fatalf("the ledger does not show %s", what)
		}
	}
}
