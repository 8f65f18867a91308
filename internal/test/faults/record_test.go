package faults

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"zkelectd/internal/test/record"
)

// recordings is the directory with what all nodes record.
func (f *fleet) recordings() string { return f.file("recordings") }

// checkRecordings stops the fleet, and fails for each promise that is broken by what the nodes have recorded. The ledger shows whether
// two works overlap; this shows whether they were kept from that by chance.
func (f *fleet) checkRecordings() {
	f.t.Helper()
	f.shutDown()
	v := newRecordCheck()
	nodes := make(map[string]int)
	err := record.Read(f.recordings(), func(l record.Line) {
		nodes[l.Node]++
		v.see(l)
	})
	if err != nil {
		f.t.Error(err)
	}
	if len(nodes) != len(f.nodes) {
		f.t.Errorf("only some nodes have recorded: %v", nodes)
	}
	for _, fault := range v.report() {
		f.t.Errorf("recordings: %s", fault)
	}
	f.t.Logf("recordings: lines by node: %v; works: %d; terms: %d; decisions: %d", nodes, v.works, len(v.holders), len(v.elected))
}

// recordCheck checks recordings.
type recordCheck struct {
	leases  map[string]lease // by the incarnation
	works   int
	elected map[election]bool
	holders map[term]map[string]bool // the incarnations that held leadership in a term
	faults  []string
}

// lease is what a member may do.
type lease struct {
	end     time.Duration
	working bool
}

// election is a decision that somebody has read.
type election struct {
	root string
	record.Decision
}

// term is a term of a group.
type term struct {
	root   string
	number int64
}

func newRecordCheck() *recordCheck {
	return &recordCheck{leases: make(map[string]lease), elected: make(map[election]bool), holders: make(map[term]map[string]bool)}
}

// see takes in a line.
func (c *recordCheck) see(l record.Line) {
	if l.Read != nil {
		c.elected[election{l.Root, *l.Read}] = true
	}
	for _, h := range l.Holders {
		t := term{l.Root, h.Term}
		if c.holders[t] == nil {
			c.holders[t] = make(map[string]bool)
		}
		c.holders[t][h.Incarnation] = true
	}
	if l.Event != "" {
		c.step(l)
	}
}

// step checks that work begins under a lease, and that it has ended before leadership is released.
func (c *recordCheck) step(l record.Line) {
	now := c.leases[l.Incarnation]
	if l.Lease != 0 {
		now.end = l.Lease
	}
	switch {
	case l.Starts != 0:
		if !now.working {
			c.works++
		}
		now.working = true
		if l.At >= now.end {
			c.faults = append(c.faults, fmt.Sprintf("%s started its work of term %d at %s, but its lease had ended at %s", l.Incarnation, l.Starts, l.At, now.end))
		}
	case !l.Running && slices.Contains([]string{"ChildDead", "ChildFailed", "HookDone"}, l.Event):
		now.working = false
	}
	if l.Releases && now.working {
		c.faults = append(c.faults, fmt.Sprintf("%s sent RELEASE at %s while its work ran", l.Incarnation, l.At))
	}
	c.leases[l.Incarnation] = now
}

// report returns what is wrong. Terms must grow from one decision to the next, and only the elected incarnation may hold leadership.
func (c *recordCheck) report() []string {
	faults := c.faults
	chosen := make(map[term]string)
	var before election
	for _, e := range slices.SortedFunc(maps.Keys(c.elected), func(a, b election) int {
		return cmp.Or(cmp.Compare(a.root, b.root), cmp.Compare(a.Written, b.Written), cmp.Compare(a.Transaction, b.Transaction))
	}) {
		// Servers that have lost their data begin anew with low transaction ids.
		if e.root == before.root && e.Transaction > before.Transaction && e.Term <= before.Term {
			faults = append(faults, fmt.Sprintf("%s: term %d of %s follows term %d of %s", e.root, e.Term, e.Incarnation, before.Term, before.Incarnation))
		}
		before, chosen[term{e.root, e.Term}] = e, e.Incarnation
	}
	for t, holders := range c.holders {
		all := slices.Sorted(maps.Keys(holders))
		if elected := chosen[t]; len(all) > 1 || elected != "" && elected != all[0] {
			faults = append(faults, fmt.Sprintf("%s: in term %d %q was elected, and %q held leadership", t.root, t.number, elected, all))
		}
	}
	return faults
}

// The check finds each broken promise.
func TestRecordCheck(t *testing.T) {
	step := func(at time.Duration, event string) record.Line {
		return record.Line{At: at, Root: "/a", Incarnation: "n1", Event: event}
	}
	lease := step(1, "TxDone")
	lease.Lease = 10
	start := step(2, "HookDone")
	start.Starts = 7
	late := start
	late.At = 10
	release := step(5, "Quit")
	release.Releases = true
	read := func(d record.Decision, holders ...record.Holder) record.Line {
		l := step(3, "Saw")
		l.Read, l.Holders = &d, holders
		return l
	}
	first := record.Decision{Term: 7, Incarnation: "n1", Written: 100, Transaction: 5}
	again := record.Decision{Term: 7, Incarnation: "n1", Written: 101, Transaction: 6}
	anew := record.Decision{Term: 6, Incarnation: "n1", Written: 102, Transaction: 1}
	for name, c := range map[string]struct {
		lines []record.Line
		want  int
	}{
		"all is well":              {[]record.Line{lease, start, step(4, "ChildDead"), release, read(first, record.Holder{Term: 7, Incarnation: "n1"})}, 0},
		"no lease":                 {[]record.Line{start}, 1},
		"the lease is over":        {[]record.Line{lease, late}, 1},
		"released too early":       {[]record.Line{lease, start, release}, 1},
		"a term twice":             {[]record.Line{read(first), read(again)}, 1},
		"the servers were emptied": {[]record.Line{read(first), read(anew)}, 0},
		"another one holds":        {[]record.Line{read(first, record.Holder{Term: 7, Incarnation: "n2"})}, 1},
		"two hold":                 {[]record.Line{read(anew, record.Holder{Term: 7, Incarnation: "n1"}, record.Holder{Term: 7, Incarnation: "n2"})}, 1},
	} {
		v := newRecordCheck()
		for _, l := range c.lines {
			v.see(l)
		}
		if faults := v.report(); len(faults) != c.want {
			t.Errorf("%s: %q", name, faults)
		}
	}
}
