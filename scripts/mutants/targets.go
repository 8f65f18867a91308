package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A target is a package whose mutants are tried.
type target struct {
	pkg   string
	files []string // empty: all
	args  []string // for its own tests
	own   bool
	// groups: see suite
	groups bool
	// named targets are tried only if they are named: they take hours, or S1 does not depend on them.
	named bool
	also  []suite // tests of other packages, for mutants that survive the tests of the package
}

// simulation runs the first schedules, as many as fit.
var simulation = suite{pkg: "internal/test/sim", args: []string{"-test.run=^TestSimulation$", "-sim.from=1",
	"-sim.for=6s"}}

var targets = []target{
	{pkg: "internal/elector", args: rapid, also: []suite{{pkg: "internal/elector/whatif"}, simulation}},
	{pkg: "internal/transition", args: rapid, also: []suite{simulation}},
	{pkg: "internal/transition/failsafe", also: []suite{{pkg: "internal/transition", args: rapid}, simulation}},
	{pkg: "internal/watchdog", also: []suite{simulation}},
	{pkg: "internal/cluster/renewal", also: []suite{simulation}},
	{pkg: "internal/cluster", args: rapid, also: []suite{{pkg: "internal/transition", args: rapid},
		{pkg: "internal/elector", args: rapid}, simulation}},
	{pkg: "internal/policy", args: rapid, named: true, also: []suite{{pkg: "internal/elector", args: rapid}, simulation}},
	{pkg: "internal/store", files: []string{"reader.go", "collector.go", "source.go", "register.go", "snapshot.go"},
		own: true, named: true, also: []suite{simulation}},
	{pkg: "internal/zk", files: []string{"session.go", "dial.go", "grant.go", "rollback.go", "close.go", "finaltx.go",
		"conn.go", "await.go", "group.go", "renewer.go"}, own: true, named: true},
	// its tests mostly wait
	{pkg: "internal/guard", args: []string{"-test.parallel=4"}, own: true, groups: true, named: true},
}

// rapid makes property tests use the same values every time, and not write files when they fail.
var rapid = []string{"-rapid.seed=1", "-rapid.nofailfile"}

// suites returns the tests for the mutants of t, the package's own first.
func (t target) suites() []suite {
	all := []suite{{pkg: t.pkg, args: append(slices.Clone(t.args), "-test.run="+*tests), own: t.own, groups: t.groups}}
	if !*quick {
		all = append(all, t.also...)
	}
	return all
}

// mutants returns the mutants of t.
func (t target) mutants(root string) ([]mutant, error) {
	names := t.files
	if len(names) == 0 {
		entries, err := os.ReadDir(filepath.Join(root, t.pkg))
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), ".go") && !strings.HasSuffix(e.Name(), "_test.go") {
				names = append(names, e.Name())
			}
		}
	}
	var all []mutant
	for _, name := range slices.Sorted(slices.Values(names)) {
		ms, err := parse(root, filepath.Join(t.pkg, name))
		if err != nil {
			return nil, err
		}
		all = append(all, ms...)
	}
	return all, nil
}
