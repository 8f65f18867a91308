package cli

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store"
)

// snapshot returns a snapshot of the group.
func (f *fleet) snapshot() cluster.Snapshot {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), testTimeout)
	defer cancel()
	snap, err := store.ReadAll(ctx, f.session, f.paths, false)
	if err != nil {
		f.t.Fatal(err)
	}
	return snap
}

// leadership waits until every record of a leadership is readable and they agree. After damage, that is a repair.
func (f *fleet) leadership(what string) cluster.Snapshot {
	f.t.Helper()
	var snap cluster.Snapshot
	f.eventually(what, func() bool {
		snap = f.snapshot()
		return snap.Ready() && snap.Current.Readable() && snap.Current.Record.State == cluster.CurrentReady &&
			snap.Current.Record.Term == snap.Elected.Record.Term
	}, func() string { return status.Of(f.groupName(), f.paths.Root, snap).Table() })
	return snap
}

// acquisitions counts how often each term was acquired, from the logs of the daemons.
func (f *fleet) acquisitions() map[string]int {
	terms := make(map[string]int)
	for _, p := range f.daemons {
		for line := range strings.Lines(p.Output()) {
			if strings.Contains(line, `msg="now preparing"`) || strings.Contains(line, `msg="now lease-wait"`) {
				_, rest, _ := strings.Cut(line, " term=")
				term, _, _ := strings.Cut(rest, " ")
				terms[term]++
			}
		}
	}
	return terms
}

func overwrite(path, data string) cluster.Op {
	return cluster.Op{Kind: cluster.OpSet, Path: path, Version: cluster.AnyVersion, Data: []byte(data)}
}

func remove(path string) cluster.Op {
	return cluster.Op{Kind: cluster.OpDelete, Path: path, Version: cluster.AnyVersion}
}

// Whichever records of a leadership an operator deletes at once, the next child must not start while the old one still runs,
// which ignores TERM.
func TestLeadershipWipedUnderAChildThatIgnoresTerm(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	const manual = "policy: {failback: manual}\nelection: {exclusion: 1s}\nchild: {command: [ledger-child], env: {LEDGER: LEDGERFILE, MODE: ignore-term}, stop_timeout: 400ms}\n"
	f.configure("a", "dc1", 1, manual)
	f.configure("b", "dc1", 2, manual)
	f.start("a")
	f.until("a leads", leads("a"))
	f.waitForWork("a")
	f.start("b")
	f.until("b has joined", func(g status.Group) bool { return len(g.Members) == 2 })
	elected, fence, current := f.paths.Elected(), f.paths.Leader(), f.paths.Current()
	leader := "a"
	for what, wipe := range map[string][]cluster.Op{
		"elected":             {remove(elected)},
		"current":             {remove(current)},
		"fence":               {overwrite(fence, "")},
		"elected and current": {remove(elected), remove(current)},
		"elected and fence":   {remove(elected), overwrite(fence, "")},
		"fence and current":   {overwrite(fence, ""), remove(current)},
		"all":                 {overwrite(fence, ""), remove(current), remove(elected)},
		"all damaged":         {overwrite(fence, "x"), remove(current), overwrite(elected, "x")},
	} {
		old := f.child(leader)
		f.write(wipe...)
		f.waitForDeath(old)
		f.eventually("other work after a loss of "+what, func() bool {
			leader = f.leadership("a leadership again").Elected.Record.Node
			child := f.child(leader)
			return child != old && running(fmt.Sprint(child))
		}, f.table)
		f.waitForWork(leader)
	}
	f.checkInvariants()
	for term, times := range f.acquisitions() {
		if times != 1 {
			t.Errorf("term %s was acquired %d times", term, times)
		}
	}
}

// A damaged record in the root neither stops the group nor keeps a member from coming back: the others restore it, or an operator
// does if none runs. What belongs to another application stays.
func TestADamagedRootIsRestored(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("a", "b")
	f.waitForWork("a")
	record := func() string {
		data, _, err := f.session.Get(t.Context(), f.paths.Root, false)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	want := record()
	f.write(overwrite(f.paths.Root, "garbage"))
	f.eventually("a member restores the record", func() bool { return record() == want })
	for _, id := range []string{"a", "b"} {
		f.stop(id)
	}
	f.write(overwrite(f.paths.Root, "garbage"))
	f.start("a")
	if code := f.exit("a"); code != 1 || !strings.Contains(f.daemons["a"].Output(), "run 'zkelectd repair root --root "+f.paths.Root+"'") {
		t.Errorf("exit status %d\n%s", code, f.daemons["a"].Output())
	}
	repaired := string(cluster.Encode(&cluster.Identity{Root: f.paths.Root, Kind: cluster.KindSingle})) // members know the id
	if out, err := f.run("repair", "root"); err != nil || record() != repaired {
		t.Errorf("%v: %s, then %s", err, out, record())
	}
	f.start("a")
	f.until("a leads again", leads("a"))
	if !strings.Contains(record(), `"id":"`) {
		t.Errorf("after the start of a member: %s", record())
	}
	other := *f
	other.paths.Root += "-other"
	f.write(cluster.Op{Kind: cluster.OpCreate, Path: other.paths.Root, Data: []byte("garbage")})
	other.failsWith("there is no group with this root", "repair", "root")
	f.checkInvariants()
}
