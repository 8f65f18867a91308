package cli

import (
	"strings"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
)

// A current that the elector cannot delete is named by the daemon, once, and by each command, with what to do. A policy that is damaged
// or deleted, and the end of the leader's session on the server, disturb less.
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
	f.keepsItsLeaderWithoutAPolicy()
	f.losesTheLeadersIncarnation()
	f.checkInvariants()
}

// keepsItsLeaderWithoutAPolicy: while the policy can't be read, the elector uses its own; a deleted policy is published again.
func (f *fleet) keepsItsLeaderWithoutAPolicy() {
	f.t.Helper()
	f.write(overwrite(f.paths.Policy(), "\x00garbage"))
	elector := f.until("a status", func(status.Group) bool { return true }).Elector
	f.logged(elector, "the policy in ZooKeeper cannot be used: ranking by this daemon's configuration")
	f.logged(elector, "znode "+f.paths.Policy()+" is not a zkelectd record")
	if !leads("a")(f.until("a status", func(status.Group) bool { return true })) {
		f.t.Error("the leader changed")
	}
	f.write(remove(f.paths.Policy()))
	f.eventually("the policy is published again", func() bool { return f.snapshot().Policy.Readable() })
}

// losesTheLeadersIncarnation ends a's session on the server: its incarnation and current are gone, and it comes back with a new one.
func (f *fleet) losesTheLeadersIncarnation() {
	f.t.Helper()
	f.waitForWork("a")
	before := f.snapshot().Elected.Record
	f.write(remove(f.paths.Incarnation(before.Incarnation)))
	f.eventually("a has a new incarnation", func() bool {
		s := f.snapshot()
		_, alive := s.Member(before.Incarnation)
		return !alive && len(s.Members) == 2
	})
	f.until("a leads again, as the better one", leads("a"))
	if after := f.leadership("a leadership").Elected.Record; after.Term <= before.Term || after.Incarnation == before.Incarnation {
		f.t.Errorf("term %d of %s, then %d of %s", before.Term, before.Incarnation, after.Term, after.Incarnation)
	}
	f.logged("a", "its own")
}
