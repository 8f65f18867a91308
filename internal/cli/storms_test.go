package cli

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// estateOfMany is many groups on three hosts, whose work takes a while to start, and writes down when.
type estateOfMany struct {
	*fleet
	base  string
	names []string
	// election is YAML of the groups' elections and policies.
	election string
}

const (
	stormGroups = 30
	perHost     = 4
	spreadOver  = 6 * time.Second // twice the failback
)

func newEstateOfMany(t *testing.T, n int, election string) *estateOfMany {
	e := &estateOfMany{base: fmt.Sprintf("/estates/e%d", groups.Add(1)), election: election}
	e.fleet = newFleetAt(t, e.base+"/g-00")
	for i := range n {
		e.names = append(e.names, fmt.Sprintf("g-%02d", i))
	}
	return e
}

func (e *estateOfMany) configure(id string) {
	e.t.Helper()
	dir := filepath.Join(e.dir, id+".d")
	mkdir(e.t, dir)
	write := func(file, format string, args ...any) {
		if err := os.WriteFile(file, fmt.Appendf(nil, format, args...), 0o600); err != nil {
			e.t.Fatal(err)
		}
	}
	write(e.file(id), `node: {id: %s, site: dc1}
zookeeper: {servers: [%s], root: %s, session_timeout: 8s}
groups_dir: %s
defaults: {%s}
`, id, e.servers[0], e.base, dir, e.election)
	for _, name := range e.names {
		ready := filepath.Join(dir, name+".ready")
		write(filepath.Join(dir, name+".yaml"), `child: {command: [sh, -c, 'echo "%s $ZKELECTD_TERM $(date +%%s%%N)" >>%s.starts; sleep 0.2; echo "%s $ZKELECTD_TERM $(date +%%s%%N)" >>%s.starts; : >%s; exec sleep infinity'],
  stop_timeout: 500ms, ready: {exec: [test, -e, %s]}}
hooks: {pre_start: [rm, -f, %s]}
`, name, e.file(id), name, e.file(id), ready, ready, ready)
	}
}

// leaders returns which node leads each group; groups without a READY leader are missing.
func (e *estateOfMany) leaders() map[string]string {
	all := make(map[string]string)
	for _, name := range e.names {
		path := cluster.Paths{Root: e.base + "/" + name}.Current()
		data, stat, err := e.session.Get(e.t.Context(), path, false)
		if rec := cluster.ReadStored[cluster.Current](path, data, stat, err == nil); rec.Readable() && rec.Record.State == cluster.CurrentReady {
			all[name] = rec.Record.Node
		}
	}
	return all
}

// ledWithout waits until all groups are led, none of them by a node, and returns by whom.
func (e *estateOfMany) ledWithout(id string) map[string]string {
	e.t.Helper()
	var led map[string]string
	e.eventually("all groups are led, not by "+id, func() bool {
		led = e.leaders()
		for _, by := range led {
			if by == id {
				return false
			}
		}
		return len(led) == len(e.names)
	}, func() string { return fmt.Sprint(led) })
	return led
}

// period is a takeover or a move.
type period struct{ begin, end time.Time }

// most returns how many periods overlapped at most.
func most(all []period) int {
	type edge struct {
		at   time.Time
		step int
	}
	var edges []edge
	for _, p := range all {
		edges = append(edges, edge{p.begin, 1}, edge{p.end, -1})
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(a.at.Compare(b.at), a.step-b.step) })
	n, top := 0, 0
	for _, e := range edges {
		n += e.step
		top = max(top, n)
	}
	return top
}

// starts returns the starts of work on a node, by group and term.
func (e *estateOfMany) starts(id string) map[string]period {
	e.t.Helper()
	all := make(map[string]period)
	data, _ := os.ReadFile(e.file(id) + ".starts")
	for line := range strings.Lines(string(data)) {
		key, at, _ := strings.Cut(strings.TrimSpace(line), " ")
		term, at, _ := strings.Cut(at, " ")
		ns, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			e.t.Fatalf("%s: %q", id, line)
		}
		key += " " + term
		p, begun := all[key]
		if !begun {
			p.begin = time.Unix(0, ns)
		}
		p.end = time.Unix(0, ns)
		all[key] = p
	}
	return all
}

var preempting = regexp.MustCompile(`(?m)^time=(\S+) .*msg=electing .*\bgroup=(\S+) leader=(\S+) term=(\d+) cause=preempt`)

// moves returns the preemptions that a node has decided on as the elector, until the work of the new leader was up.
func (e *estateOfMany) moves(elector string, later time.Time) []period {
	e.t.Helper()
	var all []period
	for _, m := range preempting.FindAllStringSubmatch(e.daemons[elector].Output(), -1) {
		at, err := time.Parse(time.RFC3339Nano, m[1])
		if err != nil {
			e.t.Fatal(err)
		}
		if p, started := e.starts(m[3])[m[2]+" "+m[4]]; started && at.After(later) {
			all = append(all, period{at, p.end})
		}
	}
	return all
}

// A host with a third of the groups is lost, and returns: the takeovers come in batches, the moves back spread out, a few at a time.
func TestALostHostCausesNoStorm(t *testing.T) {
	t.Parallel()
	e := newEstateOfMany(t, stormGroups, "policy: {type: spread, failback: 3s, max_preemptions: 0}")
	ids := []string{"n1", "n2", "n3"}
	for _, id := range ids {
		e.configure(id)
		e.fleet.start(id)
	}
	before := e.ledWithout("")
	var own []string
	for name, id := range before {
		if id == "n3" {
			own = append(own, name)
		}
	}
	if len(own) < 5 {
		t.Fatalf("n3 leads only %v", own)
	}
	for _, id := range ids {
		if moved := e.moves(id, time.Time{}); len(moved) > 0 { // they have settled first
			t.Errorf("%s moved %d groups at the start", id, len(moved))
		}
	}

	e.crash("n3")
	lost := time.Now()
	during := e.ledWithout("n3")
	for name, id := range before {
		if id != "n3" && during[name] != id {
			t.Errorf("%s moved from %s to %s, although its leader was not lost", name, id, during[name])
		}
	}

	e.fleet.start("n3")
	e.eventually("the groups are back on n3", func() bool {
		led := e.leaders()
		for _, name := range own {
			if led[name] != "n3" {
				return false
			}
		}
		return true
	})
	var moved []period
	for _, id := range ids[:2] {
		moves := e.moves(id, lost)
		if n := most(moves); n > perHost {
			t.Errorf("%s moved %d groups at once", id, n)
		}
		moved = append(moved, moves...)
	}
	if len(moved) != len(own) {
		t.Errorf("%d moves, want %d", len(moved), len(own))
	}
	slices.SortFunc(moved, func(a, b period) int { return a.begin.Compare(b.begin) })
	if first, last := moved[0].begin.Sub(lost), moved[len(moved)-1].begin.Sub(lost); first < spreadOver || last-first < spreadOver/3 {
		t.Errorf("the first move came %s after the loss, the last %s", first, last)
	}
	for _, id := range ids {
		var starts []period
		for _, p := range e.starts(id) {
			starts = append(starts, p)
		}
		maxStarting := max(8, 2*runtime.NumCPU())
		if n := most(starts); n > maxStarting || n == 0 {
			t.Errorf("%s started the work of %d groups at once, of %d in all", id, n, len(starts))
		} else {
			t.Logf("%s: %d starts, %d at once", id, len(starts), n)
		}
	}
	t.Logf("%d groups moved back, the first %s and the last %s after the loss", len(moved), moved[0].begin.Sub(lost), moved[len(moved)-1].begin.Sub(lost))
}

func TestRebalance(t *testing.T) {
	t.Parallel()
	e := newEstateOfMany(t, 6, "policy: {type: fewest}")
	for _, id := range []string{"n1", "n2"} { // n1 leads all before n2 comes
		e.configure(id)
		e.fleet.start(id)
		e.ledWithout("n2")
	}
	e.eventually("n2 has joined", func() bool { return strings.Count(e.daemons["n2"].Output(), "msg=registered") == len(e.names) })
	run := func(args ...string) (string, error) {
		return zkelectd(append(args, "--zk", e.servers[0], "--root", e.base)...)
	}
	contains := func(out string, texts ...string) {
		t.Helper()
		for _, text := range texts {
			if !strings.Contains(out, text) {
				t.Errorf("want %q:\n%s", text, out)
			}
		}
	}
	plan := []string{"g-00   n1         n2          reelection requested", "3 of 6 groups change, 3 of them their leader; 3 are not affected",
		"n1    6          3", "n2    0          3", "the most that a node leads is 2.00 times the mean, and would be 1.00 times"}
	out, err := run("reelect", "--all", "--dry-run")
	if contains(out, plan...); err != nil || len(e.leaders()) != 6 {
		t.Error(err)
	}
	out, err = run("reelect", "--all")
	if contains(out, "nothing was done: confirm it at a terminal, or add --yes"); err == nil {
		t.Error("not confirmed")
	}
	e.ledWithout("n2")
	out, err = run("reelect", "--all", "--yes", "--wait", "--parallel", "1")
	if contains(out, append(plan, "3 of 3  ", ": n2 (dc1) leads in term ")...); err != nil {
		t.Error(err)
	}
	count := make(map[string]int)
	for _, id := range e.leaders() {
		count[id]++
	}
	if count["n1"] != 3 || count["n2"] != 3 {
		t.Errorf("led by %v", count)
	}
	out, err = run("reelect", "--all", "--yes")
	if contains(out, "0 of 6 groups change", "would be 1.00 times"); err != nil {
		t.Error(err)
	}
}
