package recipes

import (
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/test/zkserver"
)

func init() { recipes["dns"] = runDNS }

const zone = `$TTL 60
@ IN SOA ns hostmaster 1 3600 600 86400 5
@ IN NS ns
ns IN A 192.0.2.4
n1 IN A 192.0.2.1
n2 IN A 192.0.2.2
n3 IN A 192.0.2.3
`

// dnsGroup is a group on three hosts, and a name server on a fourth one.
type dnsGroup struct {
	*fleet
	network *network
	hook    string
}

// The name follows the leader, and a late hook changes nothing.
func runDNS(t *testing.T) {
	n := newNetwork(t, "n1", "n2", "n3", "dns")
	f := newFleet(t, zkserver.Options{})
	g := &dnsGroup{fleet: f, network: n}
	g.startServer()
	servers := n.serveZooKeeper(f.zk.Addr())
	g.hook = f.write("dns-leader", f.example("dns/dns-leader"))
	for i, host := range []string{"n1", "n2", "n3"} {
		f.daemon(host, f.example("dns/zkelectd.yaml",
			"{id: n1, site: dc1, priority: 100}", fmt.Sprintf("{id: %s, site: dc1, priority: %d}", host, 100-i),
			`["zk1:2181", "zk2:2181", "zk3:2181"]`, fmt.Sprintf("[%q]", servers),
			"  auth: {file: /etc/zkelectd/zookeeper.auth}\n  acl: private\n", "",
			"/usr/bin/app, --serve", "sleep, infinity", "192.0.2.53", "192.0.2.4", "/etc/zkelectd/dns.key", f.file("zkelectd.key"),
			"/usr/local/lib/zkelectd/dns-leader", g.hook), n.in(host)...)
	}
	f.stopFirst("n1", "n2", "n3")

	g.pointsTo("n1", time.Now())
	since := time.Now()
	f.moves("/app", "n2")
	g.pointsTo("n2", since)
	since = time.Now()
	f.signal(syscall.SIGKILL, "n2", "daemon")
	g.pointsTo("n1", since)
	g.lateHooks()
}

func (g *dnsGroup) startServer() {
	g.t.Helper()
	key, err := exec.CommandContext(g.t.Context(), "/usr/sbin/tsig-keygen", "zkelectd").Output()
	if err != nil {
		g.t.Fatal(err)
	}
	g.write("zkelectd.key", string(key))
	config := g.write("named.conf", fmt.Sprintf("options { directory %q; pid-file none; session-keyfile none; listen-on { 192.0.2.4; }; listen-on-v6 { none; };\n"+
		"recursion no; dnssec-validation no; };\ncontrols { };\n", g.dir)+
		g.example("dns/named.conf.local", "/etc/bind/zkelectd.key", g.file("zkelectd.key"), "/var/lib/bind/example.org.zone", g.write("zone", zone)))
	g.start("named", g.network.command("dns", "/usr/sbin/named", "-g", "-c", config))
	g.logged("named", "running")
}

// lookup returns the records of a name as the server answers them.
func (g *dnsGroup) lookup(name, kind string) string {
	out, _ := g.network.command("dns", "dig", "+short", "+time=1", "@192.0.2.4", name, kind).Output()
	return strings.TrimSpace(string(out))
}

// pointsTo waits until the name points to a host.
func (g *dnsGroup) pointsTo(host string, since time.Time) {
	g.t.Helper()
	g.eventually("app.example.org points to "+host, func() bool { return g.lookup("app.example.org", "CNAME") == host+".example.org." })
	g.t.Logf("app.example.org points to %s after %s", host, time.Since(since).Round(time.Millisecond))
}

// lateHooks runs the hook for many terms at once, in no order: the newest term must be left, and an old one changes nothing.
func (g *dnsGroup) lateHooks() {
	g.t.Helper()
	var term int64
	if _, err := fmt.Sscan(strings.Trim(g.lookup("_term.app.example.org", "TXT"), `"`), &term); err != nil {
		g.t.Fatal(err)
	}
	var hooks sync.WaitGroup
	for i := range int64(5) {
		hooks.Go(func() { g.run(fmt.Sprintf("n%d", i+1), term+i-2) }) // from n1 in an old term to n5 in a new one
	}
	hooks.Wait()
	g.run("n9", term-1)
	if name := g.lookup("app.example.org", "CNAME"); name != "n5.example.org." {
		g.t.Errorf("app.example.org points to %s, not to n5 of the newest term", name)
	}
}

func (g *dnsGroup) run(leader string, term int64) {
	hook := g.network.command("n3", "env", "ZKELECTD_LEADER="+leader, fmt.Sprintf("ZKELECTD_TERM=%d", term),
		"DNS_SERVER=192.0.2.4", "DNS_NAME=app.example.org", "DNS_DOMAIN=example.org", "DNS_KEY="+g.file("zkelectd.key"), g.hook)
	if out, err := hook.CombinedOutput(); err != nil {
		g.t.Logf("the hook of %s in term %d: %v: %s", leader, term, err, out)
	}
}
