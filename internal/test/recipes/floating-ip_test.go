package recipes

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/test/zkserver"
)

func init() { recipes["floating-ip"] = runFloatingIP }

const (
	ipv4, ipv6 = "192.0.2.100", "2001:db8::100"
	vipRoot    = "/floating-ip"
	// neighborProbe is the time after which a Linux client that got no announcement asks for the address again.
	neighborProbe = 5 * time.Second
)

// Whatever ends the leadership, the addresses are never on two hosts, and a client reaches the new host.
func runFloatingIP(t *testing.T) {
	n := newNetwork(t, "n1", "n2", "n3", "client")
	f := newFleet(t, zkserver.Options{})
	s := &floatingIP{fleet: f, network: n, servers: n.serveZooKeeper(f.zk.Addr())}
	for i, host := range []string{"n1", "n2", "n3"} {
		n.listen(host, ":7000", serveName(host))
		s.startHost(host, 100-i)
	}
	f.stopFirst("n1", "n2", "n3")
	n.watch(ipv4, ipv6)
	s.clients = map[string]*client{
		ipv4: n.startClient("client", askName(ipv4+":7000")),
		ipv6: n.startClient("client", askName("["+ipv6+"]:7000")),
	}
	s.reached("the first election", "n1", time.Now())

	s.step("move", "n2", func() { s.move("n2") })
	s.step("kill -9 of the leader's daemon", "", func() { s.signal(syscall.SIGKILL, s.leader(), "daemon") })
	s.move("n1")
	s.step("kill -9 of guard and daemon, which stay down", "", func() { s.signal(syscall.SIGKILL, "n1", "guard", "daemon") })
	s.startHost("n1", 100)
	s.move("n1")
	s.step("the leader's host is cut off from ZooKeeper", "", func() { n.cut("n1", true, "back") })
	n.cut("n1", false, "back")
	s.move("n1")
	s.step("SIGSTOP of the leader's daemon", "", func() { s.signal(syscall.SIGSTOP, "n1", "daemon") })
	s.move("n1")
	s.step("stop of the leader's service", "", func() { f.stop("n1") })
	if _, all, _ := n.holders(ipv4); len(all) < 10 {
		t.Errorf("%s was only on %s", ipv4, strings.Join(all, ", "))
	}
}

type floatingIP struct {
	*fleet
	network *network
	servers string
	clients map[string]*client
}

func (s *floatingIP) startHost(host string, priority int) {
	script, err := filepath.Abs(filepath.Join(examples, "floating-ip/floating-ip"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.daemon(host, s.example("floating-ip/zkelectd.yaml",
		"{id: n1, site: dc1, priority: 100}", fmt.Sprintf("{id: %s, site: dc1, priority: %d}", host, priority),
		`["zk1:2181", "zk2:2181", "zk3:2181"]`, fmt.Sprintf("[%q]", s.servers),
		"  auth: {file: /etc/zkelectd/zookeeper.auth}\n  acl: private\n", "",
		"/usr/local/lib/zkelectd/floating-ip", script), s.network.in(host)...)
}

// step does something to the leader, and waits until the clients reach the next one: a certain one, or any other than now.
func (s *floatingIP) step(what, next string, do func()) {
	s.t.Helper()
	old, since := s.leader(), time.Now()
	do()
	if next == "" {
		s.eventually("another host has the address: "+what, func() bool {
			next = s.leader()
			return next != "" && next != old
		})
	}
	s.reached(what, next, since)
}

// reached waits until a host alone holds the addresses, and the clients reach it.
func (s *floatingIP) reached(what, host string, since time.Time) {
	s.t.Helper()
	for address, c := range s.clients {
		s.eventually(fmt.Sprintf("%s: %s is on %s, and clients reach it", what, address, host), func() bool {
			now, _, overlaps := s.network.holders(address)
			if len(overlaps) > 0 {
				s.t.Fatal(strings.Join(overlaps, "\n"))
			}
			return now == host && c.last(since) == host
		})
		gap := c.gap(since)
		s.t.Logf("%s: %s is on %s, %s without an answer", what, address, host, gap)
		if what == "move" && gap > neighborProbe {
			s.t.Errorf("clients reached %s after %s: they did not learn from the announcements where it is", address, gap)
		}
	}
}

// leader returns the host that holds the IPv4 address.
func (s *floatingIP) leader() string {
	now, _, _ := s.network.holders(ipv4)
	return now
}

// move returns leadership to a host that may have been excluded because it failed.
func (s *floatingIP) move(host string) {
	s.t.Helper()
	since := time.Now()
	s.zkelectd("clear-strikes", host, "--zk", s.zk.Addr(), "--root", vipRoot)
	s.eventually("leadership moves to "+host, func() bool {
		_, status := s.zkelectd("move", "--zk", s.zk.Addr(), "--root", vipRoot, "--to", host, "--wait")
		return status == 0
	})
	s.reached("move", host, since)
}
