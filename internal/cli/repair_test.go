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
		for line := range strings.Lines(p.output()) {
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

func (f *fleet) znode(name string) string {
	return map[string]string{"elected": f.paths.Elected(), "leader": f.paths.Leader(), "current": f.paths.Current()}[name]
}

// Whichever records of a leadership an operator deletes at once, the next child must not start while the old one still runs,
// which ignores TERM.
func TestLeadershipWipedUnderAChildThatIgnoresTerm(t *testing.T) {
	t.Parallel()
	for name, wipe := range map[string]func(p cluster.Paths) []cluster.Op{
		"elected": func(p cluster.Paths) []cluster.Op { return []cluster.Op{remove(p.Elected())} },
		"current": func(p cluster.Paths) []cluster.Op { return []cluster.Op{remove(p.Current())} },
		"fence":   func(p cluster.Paths) []cluster.Op { return []cluster.Op{overwrite(p.Leader(), "")} },
		"elected and current": func(p cluster.Paths) []cluster.Op {
			return []cluster.Op{remove(p.Elected()), remove(p.Current())}
		},
		"elected and fence": func(p cluster.Paths) []cluster.Op {
			return []cluster.Op{remove(p.Elected()), overwrite(p.Leader(), "")}
		},
		"fence and current": func(p cluster.Paths) []cluster.Op {
			return []cluster.Op{overwrite(p.Leader(), ""), remove(p.Current())}
		},
		"all": func(p cluster.Paths) []cluster.Op {
			return []cluster.Op{overwrite(p.Leader(), ""), remove(p.Current()), remove(p.Elected())}
		},
		"all damaged": func(p cluster.Paths) []cluster.Op {
			return []cluster.Op{overwrite(p.Leader(), "x"), remove(p.Current()), overwrite(p.Elected(), "x")}
		},
	} {
		t.Run(name, func(t *testing.T) {
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
			old := f.child("a")
			f.write(wipe(f.paths)...)
			g := status.Of(f.groupName(), f.paths.Root, f.leadership("a leadership again"))
			f.waitForWork(g.Leader)
			f.waitForDeath(old)
			f.checkInvariants()
			for term, times := range f.acquisitions() {
				if times != 1 {
					t.Errorf("term %s was acquired %d times", term, times)
				}
			}
		})
	}
}

// While the policy can't be read, the elector uses its own; a deleted policy is published again.
func TestDamagedPolicyKeepsTheLeader(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("a", "b")
	f.write(overwrite(f.paths.Policy(), "\x00garbage"))
	elector := f.until("a status", func(status.Group) bool { return true }).Elector
	f.logged(elector, "the policy in ZooKeeper cannot be used: ranking by this daemon's configuration")
	f.logged(elector, "znode "+f.paths.Policy()+" is not a zkelectd record")
	if !leads("a")(f.until("a status", func(status.Group) bool { return true })) {
		t.Error("the leader changed")
	}
	f.write(remove(f.paths.Policy()))
	f.eventually("the policy is published again", func() bool { s := f.snapshot(); return s.Policy.Readable() })
	f.checkInvariants()
}

// The leader's session ends on the server: its incarnation and current are gone, and it comes back with a new one.
func TestLeaderLosesItsIncarnation(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("a", "b")
	f.waitForWork("a")
	before := f.snapshot()
	old := before.Elected.Record.Incarnation
	f.write(remove(f.paths.Incarnation(old)))
	f.eventually("a has a new incarnation", func() bool {
		s := f.snapshot()
		_, alive := s.Member(old)
		return !alive && len(s.Members) == 2
	})
	f.until("a leads again, as the better one", leads("a"))
	if after := f.leadership("a leadership"); after.Elected.Record.Term <= before.Elected.Record.Term || after.Elected.Record.Incarnation == old {
		t.Errorf("term %d of %s, then %d of %s", before.Elected.Record.Term, old, after.Elected.Record.Term, after.Elected.Record.Incarnation)
	}
	if out := f.daemons["a"].output(); !strings.Contains(out, "its own") {
		t.Errorf("a does not say why:\n%s", out)
	}
	f.checkInvariants()
}

// A daemon that is alone must recover after its own registration was damaged (L1).
func TestLoneDaemonRepairsItsRegistration(t *testing.T) {
	t.Parallel()
	for name, op := range map[string]func(string) cluster.Op{
		"deleted": remove,
		"damaged": func(path string) cluster.Op { return overwrite(path, "\x00garbage") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.join("a")
			f.write(op(f.paths.Node("a")))
			f.eventually("its record is back", func() bool {
				s := f.snapshot()
				return len(s.Members) == 1 && s.Members[0].Node.Readable()
			}, func() string { return fmt.Sprint(f.until("", func(status.Group) bool { return true }).Table()) })
			f.until("a leads", leads("a"))
			f.checkInvariants()
		})
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
	if code := f.exit("a"); code != 1 || !strings.Contains(f.daemons["a"].output(), "run 'zkelectd repair root --root "+f.paths.Root+"'") {
		t.Errorf("exit status %d\n%s", code, f.daemons["a"].output())
	}
	if out, err := f.run("repair", "root"); err != nil || record() != want {
		t.Errorf("%v: %s, then %s", err, out, record())
	}
	f.start("a")
	f.until("a leads again", leads("a"))
	other := *f
	other.paths.Root += "-other"
	f.write(cluster.Op{Kind: cluster.OpCreate, Path: other.paths.Root, Data: []byte("garbage")})
	other.failsWith("there is no group with this root", "repair", "root")
	f.checkInvariants()
}
