package cli

import (
	"testing"

	"zkelectd/internal/operator/status"
	"zkelectd/internal/test/faultproxy"
	"zkelectd/internal/test/zkserver"
)

// ownServer starts a server that the test may disturb, and a fleet whose node a connects through a proxy.
func ownServer(t *testing.T) (*zkserver.Server, *fleet, *faultproxy.Proxy) {
	t.Helper()
	server, err := zkserver.Start(t.Context(), zkserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Stop() })
	return server, newFleet(t, server.Addr()), newLink(t, server.Addr())
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
