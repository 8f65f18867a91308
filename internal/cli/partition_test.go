package cli

import (
	"testing"

	"zkelectd/internal/test/faultproxy"
)

// newLink returns a network path to a server, which can be cut.
func newLink(t *testing.T, target string) *faultproxy.Proxy {
	t.Helper()
	l, err := faultproxy.New(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// Short interruptions of the connection change nothing.
func TestBlipChangesNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	l := newLink(t, shared.Addr())
	f.servers = []string{l.Addr()}
	f.configure("a", "dc1", 1, "zookeeper: {session_timeout: 30s}\n")
	f.start("a")
	before := f.until("a leads", leads("a"))
	f.waitForChild("a", 1)
	for range 3 {
		l.SetMode(faultproxy.Refuse)
		l.SetMode(faultproxy.Pass)
		after := f.until("a leads", leads("a"))
		if after.Term != before.Term {
			t.Errorf("term %d, then %d", before.Term, after.Term)
		}
	}
	if all := f.checkInvariants(); len(all) != 1 || all[0].ended {
		t.Errorf("tenures %+v", all)
	}
}
