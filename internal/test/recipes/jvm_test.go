package recipes

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/test/testhelper"
	"zkelectd/internal/test/zkserver"
)

func init() { recipes["jvm"] = runJVM }

// A service that needs 20 s to start is answered by the next leader without them, because that one was warm.
func runJVM(t *testing.T) {
	n := newNetwork(t, "n1", "n2", "n3", "proxy")
	f := newFleet(t, zkserver.Options{})
	p := &proxied{fleet: f, network: n, servers: n.serveZooKeeper(f.zk.Addr())}
	app := f.write("App.java", f.example("jvm/App.java"))
	hosts := []string{"n1", "n2", "n3"}
	since := time.Now()
	for i, id := range hosts {
		f.daemon(id, f.example("jvm/zkelectd.yaml", "{id: n1, priority: 100}", fmt.Sprintf("{id: %s, priority: %d}", id, 100-i),
			`["zk1:2181", "zk2:2181", "zk3:2181"]`, fmt.Sprintf("[%q]", p.servers),
			"  auth: {file: /etc/zkelectd/zookeeper.auth}\n  acl: private\n", "", "/usr/local/lib/app/App.java", app), n.in(id)...)
	}
	f.stopFirst(hosts...)
	f.start("haproxy", n.command("proxy", "/usr/sbin/haproxy", "-db", "-f", f.write("haproxy.cfg", f.example("jvm/haproxy.cfg"))))
	p.writes = n.startClient("proxy", askHTTP("127.0.0.1:8000", http.MethodPost))
	testhelper.Eventually(t, 2*waitTimeout, "a leader answers", func() bool { return p.writes.last(since) != "" })
	t.Logf("first answer %s after the start", time.Since(since).Round(time.Millisecond))
	for range 3 {
		testhelper.Eventually(t, 2*waitTimeout, "all standbys are warm", func() bool { return f.warm() == len(hosts) })
		var leader string
		f.eventually("the leader answers", func() (ok bool) {
			leader, _, ok = strings.Cut(p.writes.last(since), " ")
			return ok
		})
		target := hosts[(slices.Index(hosts, leader)+1)%len(hosts)]
		since = time.Now()
		f.moves("/jvm", target)
		p.answered("move", target, since)
		testhelper.Eventually(t, 2*waitTimeout, "all standbys are warm", func() bool { return f.warm() == len(hosts) })
		since = time.Now()
		f.signal(syscall.SIGKILL, target, "daemon")
		f.eventually("another host answers", func() bool {
			node, _, ok := strings.Cut(p.writes.last(since), " ")
			return ok && node != target
		})
		t.Logf("kill -9 of the leader's daemon: %s without an answer", p.writes.gap(since))
		if gap := p.writes.gap(since); gap > 15*time.Second {
			t.Errorf("it took %s: as long as a start", gap)
		}
	}
	p.checkTerms()
}

// warm returns how many members have a warm standby, or lead with it.
func (f *fleet) warm() (n int) {
	out, _ := f.zkelectd("status", "--zk", f.zk.Addr(), "--root", "/jvm", "-o", "json")
	var status struct {
		Members []struct{ Standby struct{ State string } }
	}
	if json.Unmarshal([]byte(out), &status) != nil {
		return 0
	}
	for _, m := range status.Members {
		if m.Standby.State == "warm" {
			n++
		}
	}
	return n
}
