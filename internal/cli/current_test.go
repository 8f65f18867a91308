package cli

import (
	"strings"
	"testing"

	"zkelectd/internal/cluster"
)

// A current that the elector cannot delete is named by the daemon, once, and by each command, with what to do.
func TestCurrentThatCannotBeDeleted(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("a", "b")
	before := f.leadership("a leadership")
	elector := f.until("a leads", leads("a")).Elector
	child := f.paths.Current() + "/child"
	f.write(remove(f.paths.Current()),
		cluster.Op{Kind: cluster.OpCreate, Path: f.paths.Current(), Data: cluster.Encode(&before.Current.Record)},
		cluster.Op{Kind: cluster.OpCreate, Path: child})
	f.logged(elector, f.paths.Current()+": znode has children")
	const advice = "no session owns it; the elector deletes it: if it cannot, delete it with 'deleteall "
	for _, args := range [][]string{{"status"}, {"doctor", "--config", f.file("a")}, {"repair"}} {
		if out, _ := f.run(args...); !strings.Contains(out, advice+f.paths.Current()) {
			t.Errorf("%s: %s", args, out)
		}
	}
	f.exits(2, "status", "--check")
	refused := func() int { return strings.Count(f.daemons[elector].Output(), "ZooKeeper refuses") }
	if n := strings.Count(f.daemons[elector].Output(), "msg=revoking"); n != 1 || refused() > 0 {
		t.Errorf("it logs %d times that it revokes, and %d refusals", n, refused())
	}
	f.write(remove(child), remove(f.paths.Current()))
	f.leadership("a leadership again")
	f.until("a leads again", leads("a"))
	f.checkInvariants()
}
