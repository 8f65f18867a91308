package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
)

// estateOfMany is many groups of some hosts.
type estateOfMany struct {
	*fleet
	base  string
	names []string
	// election is YAML of the groups' elections and policies.
	election string
}

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
		write(filepath.Join(dir, name+".yaml"), "child: {command: [sleep, infinity], stop_timeout: 500ms}\n")
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
