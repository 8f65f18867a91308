package recipes

import (
	"net/http"
	"testing"
	"time"
)

func init() { recipes["haproxy"] = runHAProxy }

// Writes reach the leader only, reads the standbys only.
func runHAProxy(t *testing.T) {
	p := newProxied(t, "haproxy/zkelectd.yaml")
	// HAProxy's default check sends OPTIONS: the path alone must do as well.
	config := p.write("haproxy.cfg", p.example("haproxy/haproxy.cfg", "httpchk GET /leader", "httpchk /leader"))
	p.start("haproxy", p.network.command("proxy", "/usr/sbin/haproxy", "-db", "-f", config))
	p.failovers()

	reads := p.network.startClient("proxy", askHTTP("127.0.0.1:8001", http.MethodGet))
	since := time.Now()
	p.eventually("both standbys have served reads", func() bool {
		by := reads.counts(since)
		return by["n2"] > 100 && by["n3"] > 100
	})
	if by := reads.counts(since); by["n1"] > 0 {
		t.Errorf("the leader n1 served reads: %v", by)
	}
}
