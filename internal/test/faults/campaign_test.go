package faults

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/test/testhelper"
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
	var races *testhelper.Races
	if err == nil {
		testhelper.CatchIgnoredSignals() // SIGHUP reloads
		races, err = testhelper.CollectRaces()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	testhelper.RunMain(m, func() error { return os.RemoveAll(binDir) }, races.Check)
}

func TestCampaign(t *testing.T) {
	runCampaign(t, 1, *count, allFaults, nil)
}

// The groups of a host share a session and a guard, so a fault of one must not end the work of another, and S1 must hold in each.
func TestCampaignOfGroups(t *testing.T) {
	groups := 12
	if testhelper.Race {
		groups = 3 // beside other tests, more daemons with the race detector do not get the processor in time
	}
	runCampaign(t, groups, max(1, *count/4), slices.Concat(allFaults, groupFaults), nil)
}

func runCampaign(t *testing.T, groups, n int, faults []fault, fix func(*node)) *fleet {
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d, repeat with: go test ./internal/test/faults -run '^%s$' -faults.n=%d -faults.seed=%d", *seed, t.Name(), *count, *seed)
	f := newFleet(t, fleetOptions{binary: testhelper.BuildZkelectd(t, binDir, "record"), seed: *seed, groups: groups, fix: fix})
	if _, err := f.converge(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := &campaign{
		fleet: f, faults: faults, began: time.Now(), injected: make(map[string]int), settled: make(map[string][]time.Duration),
		gaps: newGapCheck(f.recordings()),
	}
	t.Cleanup(c.gaps.watchProcessor())
	for injected := 0; injected < n && !t.Failed(); {
		injected += c.round(min(n-injected, 1+max(0, f.rng.IntN(6)-3)))
		if f.rng.Float64() < 0.7 {
			c.settle()
			f.checkLedgers()
		}
	}
	c.settle()
	c.report()
	c.gaps.report(t)
	f.checkRecordings()
	return f
}

// campaign records the faults injected into a fleet, and how long it took to settle.
type campaign struct {
	*fleet
	faults   []fault
	began    time.Time
	injected map[string]int             // by the fault's name
	since    []string                   // the faults since the fleet has settled
	settled  map[string][]time.Duration // how long it took to settle, by the names of the faults before it; "" for all
	gaps     *gapCheck                  // nil for none
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
	if c.gaps != nil {
		c.gaps.settled(c)
	}
}

// choose returns a kind of fault.
func (c *campaign) choose() fault {
	from := c.faults
	if *only != "" && c.rng.Float64() < 0.95 {
		from = slices.DeleteFunc(slices.Clone(from), func(k fault) bool { return !strings.Contains(k.name, *only) })
	}
	if len(from) == 0 {
		c.t.Fatalf("no fault has %q in its name", *only)
	}
	return from[c.rng.IntN(len(from))]
}

// round injects some faults at once, keeps them for up to three session timeouts, and ends them. It returns how many there were.
func (c *campaign) round(together int) (injected int) {
	var heals []func()
	var names []string
	began := boottime.Now()
	for range together {
		k := c.choose()
		heal, err := k.inject(c.fleet)
		switch {
		case errors.Is(err, errNotPromised):
			continue
		case err != nil:
			c.t.Errorf("%s: %v", k.name, err)
			continue
		}
		heals, names = append(heals, heal), append(names, k.name)
		if c.gaps != nil {
			c.gaps.injected(k.name, began)
		}
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

// checkLedgers checks S1 in the ledger of each group.
func (f *fleet) checkLedgers() {
	for _, g := range f.groups {
		g.checkLedger()
	}
}

// readLedger returns the tenures of the group; none if its first child has not written yet, or was stopped before it did.
func (g *group) readLedger() []tenure {
	all, err := readLedger(g.ledger())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		g.f.t.Error(err)
	}
	return all
}

// checkLedger checks S1 in the ledger.
func (g *group) checkLedger() []tenure {
	all := g.readLedger()
	for _, fault := range check(all) {
		g.f.t.Errorf("%s: %s", g.name, fault)
	}
	return all
}

// report checks the ledgers and the logs at the end, and logs the results.
func (c *campaign) report() {
	lasted := time.Since(c.began)
	tenures, overlaps := 0, 0
	for _, g := range c.groups {
		all := g.checkLedger()
		if len(all) == 0 {
			c.t.Errorf("%s: no child has worked", g.name)
		}
		tenures, overlaps = tenures+len(all), overlaps+len(check(all))
	}
	for _, n := range c.nodes {
		log, err := os.ReadFile(c.file(n.id + ".log"))
		if err != nil {
			c.t.Error(err)
		}
		if _, text, found := strings.Cut(string(log), "panic:"); found {
			c.t.Errorf("%s panicked:%s", n.id, text)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.injected)) {
		c.t.Logf("%4d  %-55s settled after %s", c.injected[name], name, summary(c.settled[name]))
	}
	c.t.Logf("%d faults in %s, groups: %d, tenures: %d, overlaps: %d; settled after %s",
		sum(c.injected), lasted.Round(time.Second), len(c.groups), tenures, overlaps, summary(c.settled[""]))
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
	f := newFleet(t, fleetOptions{binary: testhelper.BuildZkelectd(t, binDir, "noenforcement"), seed: 1, groups: 1})
	if _, err := f.converge(t.Context()); err != nil {
		t.Fatal(err)
	}
	g := f.groups[0]
	daemons := g.working().pids()[daemonProcess]
	if len(daemons) == 0 {
		t.Fatal("the leader has no daemon")
	}
	signal(syscall.SIGSTOP, daemons...)
	defer signal(syscall.SIGCONT, daemons...)
	g.waitForOverlap()
}

// With the containment keeper, a hidden grandchild survives if guard, keeper and daemon are killed at once, as docs/safety.md
// says. The campaign must notice that, too.
func TestCampaignNoticesHiddenGrandchildren(t *testing.T) {
	f := newFleet(t, fleetOptions{binary: testhelper.BuildZkelectd(t, binDir, ""), seed: 1, groups: 1, fix: func(n *node) {
		n.containment, n.hidesChildren = "keeper", true
	}})
	if _, err := f.converge(t.Context()); err != nil {
		t.Fatal(err)
	}
	g := f.groups[0]
	g.poll("a grandchild", func(ledger string) bool { return strings.Contains(ledger, grandchildArgument) })
	n := g.working()
	if n.isPromised(zkelectdProcesses, nil) {
		t.Error("isPromised reports that the death of this work is promised")
	}
	pids := n.pids()
	for _, who := range zkelectdProcesses {
		if len(pids[who]) == 0 {
			t.Fatalf("the leader has no %s", who)
		}
	}
	for _, who := range zkelectdProcesses {
		signal(syscall.SIGSTOP, pids[who]...)
	}
	// The guard last: the kernel continues stopped processes when the death of their parent orphans their process group.
	for _, who := range slices.Backward(zkelectdProcesses) {
		signal(syscall.SIGKILL, pids[who]...)
	}
	g.waitForOverlap()
}

// waitForOverlap waits until the ledger shows two children that run at the same time.
func (g *group) waitForOverlap() {
	g.f.t.Helper()
	g.poll("two running children", func(string) bool {
		all, err := readLedger(g.ledger())
		if err != nil {
			g.f.t.Fatal(err)
		}
		faults := check(all)
		if len(faults) == 0 {
			return false
		}
		g.f.t.Logf("noticed: %s", faults[0])
		return true
	})
}

// poll waits until the ledger shows a condition.
func (g *group) poll(what string, shown func(ledger string) bool) {
	f := g.f
	f.t.Helper()
	limit := time.After(settleTimeout)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		data, err := os.ReadFile(g.ledger()) // perhaps no child has written yet
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
