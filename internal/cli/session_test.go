package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/operator/status"
	"zkelectd/internal/test/faultproxy"
	"zkelectd/internal/test/zkserver"
)

// ownServer starts a server that the test may disturb, and a fleet whose node a connects through a proxy.
func ownServer(t *testing.T) (*zkserver.Server, *fleet, *faultproxy.Proxy) {
	t.Helper()
	server := zkserver.ForTest(t, zkserver.Options{})
	return server, newFleet(t, server.Addr()), faultproxy.ForTest(t, server.Addr())
}

// pair starts a, through the proxy, and b, with settings of the section zookeeper and a mode of the child.
func (f *fleet) pair(l *faultproxy.Proxy, settings, mode string) {
	f.t.Helper()
	direct := f.servers
	child := "child: {command: [ledger-child], env: {LEDGER: LEDGERFILE, MODE: " + mode + "}, stop_timeout: 500ms}\n"
	f.servers = []string{l.Addr()}
	f.configure("a", "dc1", 2, "zookeeper: {"+settings+"}\n"+child)
	f.servers = direct
	f.configure("b", "dc1", 1, "zookeeper: {"+settings+"}\n"+child)
	f.start("a")
	f.until("a leads", leads("a"))
	f.start("b")
	f.until("both have joined", func(g status.Group) bool { return len(g.Members) == 2 && leads("a")(g) })
	f.waitForWork("a")
}

// A server returns with a smaller limit for session timeouts, and the leader is cut off as soon as it has reconnected: its
// lease, computed from the longer timeout, must not outlast the session.
func TestLeaseEndsWithASessionTimeoutThatShrank(t *testing.T) {
	t.Parallel()
	server, f, l := ownServer(t)
	f.pair(l, "session_timeout: 10s", "ignore-term")
	session := f.sessionOf("a")
	if err := server.SetMaxSession(2 * time.Second); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.eventually("a has reconnected", func() bool {
		if strings.Contains(f.daemons["a"].Output(), "granted a shorter session timeout") {
			return true // it may send little more
		}
		answer, err := server.FourLetterWord(t.Context(), "cons")
		if err != nil {
			return false
		}
		for line := range strings.Lines(answer) {
			// A request after the connect request shows that it has read the answer.
			if strings.Contains(line, session) && strings.Contains(line, "to=2000") && !strings.Contains(line, "recved=1,") {
				return true
			}
		}
		return false
	})
	l.SetMode(faultproxy.BlackHole)
	child := f.child("a")
	f.until("b leads", leads("b"))
	f.waitForChild("b", 1)
	f.waitForDeath(child)
	f.checkInvariants()
	f.logged("a", "granted a shorter session timeout")
	for _, want := range []string{"server=" + l.Addr(), "granted=2s", "lease_base=10s", "zookeeper.min_session_timeout: 2s"} {
		f.logged("a", want)
	}
	l.SetMode(faultproxy.Pass)
	f.until("a is back, and leads as the better one", leads("a"))
	f.waitForWork("a")
	f.checkInvariants()
}

// sessionOf returns the id of the session that registered a node, as ZooKeeper formats it.
func (f *fleet) sessionOf(id string) string {
	f.t.Helper()
	_, stat, err := f.session.Get(f.t.Context(), f.paths.Node(id), false)
	if err != nil {
		f.t.Fatal(err)
	}
	return fmt.Sprintf("0x%x", stat.Owner)
}
