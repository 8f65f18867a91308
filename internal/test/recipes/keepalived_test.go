package recipes

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"zkelectd/internal/test/zkserver"
)

func init() { recipes["keepalived"] = runKeepalived }

// The address leaves a host whose check fails, and does not return by itself.
func runKeepalived(t *testing.T) {
	n := newNetwork(t, "n1", "n2")
	f := newFleet(t, zkserver.Options{})
	servers := n.serveZooKeeper(f.zk.Addr())
	n.watch(ipv4)
	script, err := filepath.Abs(filepath.Join(examples, "floating-ip/floating-ip"))
	if err != nil {
		t.Fatal(err)
	}
	for i, host := range []string{"n1", "n2"} {
		f.daemon(host, f.example("keepalived/zkelectd.yaml",
			"{id: n1, site: dc1, priority: 100}", fmt.Sprintf("{id: %s, site: dc1, priority: %d}", host, 100-i),
			`["zk1:2181", "zk2:2181", "zk3:2181"]`, fmt.Sprintf("[%q]", servers),
			"  auth: {file: /etc/zkelectd/zookeeper.auth}\n  acl: private  ", "",
			"/usr/local/lib/zkelectd/floating-ip", script, "/usr/local/bin/notify", "/bin/true",
			`[/usr/bin/curl, --fail, --silent, --output, /dev/null, "http://127.0.0.1/"]`, fmt.Sprintf("[test, -e, %s]", f.write("healthy-"+host, ""))), n.in(host)...)
	}
	f.stopFirst("n1", "n2")
	on := func(host string) {
		t.Helper()
		f.eventually("the address is on "+host, func() bool {
			now, _, overlaps := n.holders(ipv4)
			if len(overlaps) > 0 {
				t.Fatal(strings.Join(overlaps, "\n"))
			}
			return now == host
		})
	}
	on("n1")
	if err := os.Remove(f.file("healthy-n1")); err != nil {
		t.Fatal(err)
	}
	on("n2")
	f.write("healthy-n1", "")
	f.eventually("n1 is healthy, and the address stays on n2", func() bool {
		out, _ := f.zkelectd("explain", "--zk", f.zk.Addr(), "--root", "/web")
		return strings.Contains(out, "n1 would be better than n2")
	})
	on("n2")
}
