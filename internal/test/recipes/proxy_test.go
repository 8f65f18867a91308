package recipes

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/test/zkserver"
)

// proxied is a group on three hosts behind a proxy, which runs on a fourth one. The child on the leader serves writes on port 8080; it
// answers with its node and its term. All hosts serve reads on port 8081.
type proxied struct {
	*fleet
	network *network
	servers string
	writes  *client
}

// serverProgram is the child: it answers each request with its node and term.
const serverProgram = `#!/usr/bin/python3
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = f"{os.environ['ZKELECTD_NODE']} {os.environ['ZKELECTD_TERM']}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass
http.server.ThreadingHTTPServer(("", 8080), Handler).serve_forever()
`

// newProxied starts the hosts with a configuration of a recipe. A client sends writes to port 8000 of the proxy.
func newProxied(t *testing.T, config string) *proxied {
	n := newNetwork(t, "n1", "n2", "n3", "proxy")
	f := newFleet(t, zkserver.Options{})
	p := &proxied{fleet: f, network: n, servers: n.serveZooKeeper(f.zk.Addr())}
	f.write("app", serverProgram)
	hosts := []string{"n1", "n2", "n3"}
	for i, host := range hosts {
		n.listen(host, ":8081", serveHTTP(host))
		p.startMember(host, config, fmt.Sprintf("{id: %s, site: dc1, priority: %d}\npolicy: {failback: immediate}", host, 100-i))
	}
	f.stopFirst(hosts...)
	p.writes = n.startClient("proxy", askHTTP("127.0.0.1:8000", http.MethodPost))
	return p
}

func (p *proxied) startMember(host, config, node string) {
	p.daemon(host, p.example(config,
		"{id: n1, site: dc1, priority: 100}", node,
		`["zk1:2181", "zk2:2181", "zk3:2181"]`, fmt.Sprintf("[%q]", p.servers),
		"  auth: {file: /etc/zkelectd/zookeeper.auth}\n  acl: private\n", "",
		`[/usr/bin/app, --writes, ":8080"]`, fmt.Sprintf("[%s]", p.file("app"))), p.network.in(host)...)
}

// failovers moves the leader and loses it in several ways. Each time the writes must reach the new leader, and must never reach an older
// one after that.
func (p *proxied) failovers() {
	p.t.Helper()
	p.answered("the first election", "n1", time.Now())
	since := time.Now()
	p.moves("/app", "n2")
	p.answered("move", "n2", since)
	since = time.Now()
	p.signal(syscall.SIGKILL, "n2", "daemon")
	p.answered("kill -9 of the leader's daemon", "n1", since)
	since = time.Now()
	p.network.cut("n1", true, "front", "back")
	p.answered("the leader's host is lost", "", since)
	since = time.Now()
	p.network.cut("n1", false, "front", "back")
	p.answered("it returns", "n1", since)
	p.checkTerms()
}

// answered waits until a host answers the writes; without a name, any but n1.
func (p *proxied) answered(what, host string, since time.Time) {
	p.t.Helper()
	p.eventually(what+": writes are answered by "+host, func() bool {
		node, _, ok := strings.Cut(p.writes.last(since), " ")
		return ok && (node == host || host == "" && node != "n1")
	})
	p.t.Logf("%s: %s without an answer", what, p.writes.gap(since))
}

// checkTerms checks that no answer has an older term than an answer before it.
func (p *proxied) checkTerms() {
	p.t.Helper()
	p.writes.mu.Lock()
	defer p.writes.mu.Unlock()
	newest, answers := int64(0), 0
	for _, a := range p.writes.answers {
		var node string
		var term int64
		if _, err := fmt.Sscan(a.text, &node, &term); err != nil {
			continue // no answer
		}
		if answers++; term < newest {
			p.t.Errorf("%s answers in term %d after an answer in term %d", node, term, newest)
		}
		newest = max(newest, term)
	}
	p.t.Logf("%d writes of %d were answered, none by a leader of an older term", answers, len(p.writes.answers))
}

// askHTTP sends a request on a new connection, and returns the answer if it is 200.
func askHTTP(address, method string) func() (string, error) {
	return func() (string, error) {
		c, err := net.DialTimeout("tcp", address, time.Second)
		if err != nil {
			return "", err
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(time.Second))
		fmt.Fprintf(c, "%s / HTTP/1.0\r\n\r\n", method)
		response, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return "", err
		}
		body, err := io.ReadAll(response.Body)
		if err == nil && response.StatusCode != http.StatusOK {
			err = fmt.Errorf("status %s", response.Status)
			body = nil
		}
		return string(body), err
	}
}

// serveHTTP answers each request with the name of a host.
func serveHTTP(host string) func(net.Conn) {
	return func(c net.Conn) {
		c.SetDeadline(time.Now().Add(time.Second))
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			fmt.Fprintf(c, "HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(host), host)
		}
	}
}
