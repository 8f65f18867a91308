package cli

import (
	"strings"
	"testing"

	"zkelectd/internal/cluster"
)

// replaceCurrent puts a znode into the place of current, with what current had.
func (f *fleet) replaceCurrent(op cluster.Op, more ...cluster.Op) {
	f.t.Helper()
	op.Kind, op.Path = cluster.OpCreate, f.paths.Current()
	f.write(append([]cluster.Op{remove(op.Path), op}, more...)...)
}

// Whatever takes the place of current, another leadership begins.
func TestReplacedCurrentIsRevoked(t *testing.T) {
	t.Parallel()
	for name, replace := range map[string]func(f *fleet, current []byte){
		"a copy":            func(f *fleet, current []byte) { f.replaceCurrent(cluster.Op{Data: current}) },
		"an empty one":      func(f *fleet, _ []byte) { f.replaceCurrent(cluster.Op{}) },
		"junk":              func(f *fleet, _ []byte) { f.replaceCurrent(cluster.Op{Data: []byte("\x00junk")}) },
		"another session's": func(f *fleet, current []byte) { f.replaceCurrent(cluster.Op{Data: current, Ephemeral: true}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.join("a", "b")
			before := f.leadership("a leadership")
			f.waitForWork("a")
			replace(f, cluster.Encode(&before.Current.Record))
			if after := f.leadership("another one").Elected.Record.Term; after <= before.Elected.Record.Term {
				t.Errorf("term %d, then %d", before.Elected.Record.Term, after)
			}
			f.checkInvariants()
		})
	}
}

// A current that the elector cannot delete is named by the daemon, once, and by each command, with what to do.
func TestCurrentThatCannotBeDeleted(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("a", "b")
	before := f.leadership("a leadership")
	elector := f.until("a leads", leads("a")).Elector
	child := f.paths.Current() + "/child"
	f.replaceCurrent(cluster.Op{Data: cluster.Encode(&before.Current.Record)}, cluster.Op{Kind: cluster.OpCreate, Path: child})
	f.logged(elector, f.paths.Current()+": znode has children")
	const advice = "no session owns it; the elector deletes it: if it cannot, delete it with 'deleteall "
	for _, args := range [][]string{{"status"}, {"doctor", "--config", f.file("a")}, {"repair"}} {
		if out, _ := f.run(args...); !strings.Contains(out, advice+f.paths.Current()) {
			t.Errorf("%s: %s", args, out)
		}
	}
	f.exits(2, "status", "--check")
	refused := func() int { return strings.Count(f.daemons[elector].output(), "ZooKeeper refuses") }
	if n := strings.Count(f.daemons[elector].output(), "msg=revoking"); n != 1 || refused() > 0 {
		t.Errorf("it logs %d times that it revokes, and %d refusals", n, refused())
	}
	f.write(remove(child), remove(f.paths.Current()))
	f.leadership("a leadership again")
	f.checkInvariants()
}
