package cli

import (
	"strings"
	"testing"

	"zkelectd/internal/test/faultproxy"
	"zkelectd/internal/test/zkserver"
	"zkelectd/internal/zk"
)

const mayRun = "s because the lease of a, which did not release, may still be running"

// A leader that is cut off notices too late that an unauthorized client has closed its session. Its successor waits until the
// lease is over.
func TestAnUnauthorizedClientClosesTheLeadersSession(t *testing.T) {
	t.Parallel()
	f, l := newFleet(t), faultproxy.ForTest(t, shared.Addr())
	f.pair(l, "session_timeout: 10s", "ignore-term")
	child := f.child("a")
	l.SetMode(faultproxy.BlackHole)
	// Anyone who can reach the client port can do so: the id is on every ephemeral znode and in the answer to cons, and ZooKeeper
	// computes the password from it.
	_, stat, err := f.session.Get(t.Context(), f.paths.Current(), false)
	if err != nil {
		t.Fatal(err)
	}
	e := zk.SessionHandle{Servers: f.servers, Session: stat.Owner, Password: zkserver.SessionPassword(stat.Owner)}
	if err := zk.CloseSession(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	f.until("b leads", leads("b"))
	f.waitForChild("b", 1)
	f.waitForDeath(child)
	f.logged("b", "waiting 6.12"+mayRun)
	f.checkInvariants()
}

// A lost host releases nothing: explain and history show why its successor waits.
func TestTheLeaseWaitAfterALostHostIsExplained(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("a", "b")
	f.waitForWork("a")
	f.crashUnwatched("a")
	f.eventually("explain has the reason", func() bool {
		out, err := f.run("explain")
		return err == nil && strings.Contains(out, "\nWaiting  2.45"+mayRun+"\n")
	})
	f.until("b leads", leads("b"))
	f.eventually("history has the reason", func() bool {
		out, err := f.run("history")
		return err == nil && strings.Contains(out, "[waited 2.45"+mayRun+"]")
	})
	f.checkInvariants()
}
