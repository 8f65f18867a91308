package web

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/operator/status"
	"zkelectd/internal/test/testhelper"
)

// dial returns a connection that stays open until the test ends.
func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	return dialFrom(t, "127.0.0.1", addr)
}

// dialFrom returns a connection from another loopback address.
func dialFrom(t *testing.T, from, addr string) net.Conn {
	t.Helper()
	c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(20 * time.Second))
	t.Cleanup(func() { c.Close() })
	return c
}

// sendLine sends text and returns the first line of the response.
func sendLine(c net.Conn, text string) (string, error) {
	io.WriteString(c, text)
	return bufio.NewReader(c).ReadString('\n')
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	testhelper.Eventually(t, 20*time.Second, what, is)
}

const question = "GET /leader HTTP/1.1\r\nHost: x\r\n\r\n"

// slowStatus is a daemon whose requests about the group block until free is closed. Each sends to entered first.
func slowStatus(entered chan<- struct{}, free <-chan struct{}) *api {
	opt := optionsWithGroup()
	only(opt).History = nil
	only(opt).Group = func(context.Context) (status.Group, error) {
		entered <- struct{}{}
		<-free
		return status.Group{}, nil
	}
	return newAPI(opt)
}

// Long requests do not block probes, no matter how many a client sends.
func TestProbesAreAnsweredAtTheRequestLimit(t *testing.T) {
	entered, free := make(chan struct{}, maxRequests), make(chan struct{})
	a := slowStatus(entered, free)
	a.groupQuota = newQuota(maxRequests, maxRequests)
	const places = maxClientRequests + 4
	addr := listening(t, a.handler(), places)
	var answered []net.Conn
	for range maxClientRequests {
		answered = append(answered, dial(t, addr))
		io.WriteString(answered[len(answered)-1], "GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n")
		<-entered
	}
	for range 2 * places {
		if line, err := sendLine(dial(t, addr), question); !strings.Contains(line, "200") {
			t.Fatalf("a probe: %q %v", line, err)
		}
	}
	if line, _ := sendLine(dial(t, addr), "GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n"); !strings.Contains(line, "503") {
		t.Errorf("one more request from that address: %q", line)
	}
	io.WriteString(dialFrom(t, "127.0.0.2", addr), "GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n")
	<-entered // another address has its own limit
	close(free)
	for _, c := range answered {
		if line, err := bufio.NewReader(c).ReadString('\n'); !strings.Contains(line, "200") {
			t.Fatalf("a request in progress: %q %v", line, err)
		}
	}
	eventually(t, "all requests are finished", func() bool {
		a.requestQuota.mu.Lock()
		defer a.requestQuota.mu.Unlock()
		return a.requestQuota.used == 0 && len(a.requestQuota.usedBy) == 0
	})
}

// Clients that never finish a request, or keep idle connections, do not block others.
func TestIdleConnectionsAreEvicted(t *testing.T) {
	const places = 4
	addr := listening(t, handlerFor(leader()), places)
	for range 5 * places {
		silent, slow, idle := dial(t, addr), dial(t, addr), dial(t, addr)
		_ = silent
		io.WriteString(slow, "GET /leader HTTP/1.1\r\nHost: x\r\nX-Slow: ")
		if line, err := sendLine(idle, question); !strings.Contains(line, "200") {
			t.Fatalf("a client with a request: %q %v", line, err)
		}
	}
	if code, _ := fetch(t, newHTTPClient(), "http://"+addr+"/leader"); code != 200 {
		t.Errorf("/leader: %d", code)
	}
}

// A client that opens many connections evicts its own: the load balancer keeps its connection, however old and idle.
func TestFloodEvictsOnlyItsOwnConnections(t *testing.T) {
	const places = 8
	addr := listening(t, handlerFor(leader()), places)
	balancer := dialFrom(t, "127.0.0.2", addr)
	answers := bufio.NewReader(balancer)
	for range 3 {
		for i := range 5 * places {
			c := dialFrom(t, fmt.Sprintf("127.0.0.%d", 3+i%2), addr)
			if i%2 == 0 {
				io.WriteString(c, "GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n") // and nothing else
			}
		}
		io.WriteString(balancer, question)
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatalf("the load balancer's own connection: %v", err)
		}
		io.Copy(io.Discard, resp.Body)
		if resp.StatusCode != 200 {
			t.Errorf("%d", resp.StatusCode)
		}
	}
}

// 60 requests per second that announce a body and never send it do not delay probes, and are answered and closed at once.
func TestMissingBodyBlocksNothing(t *testing.T) {
	const places, patience = 4, 2 * time.Second // less than the server waits for a request
	addr := listening(t, New(optionsWithSubmit(t, accept)), places)
	for i := range 10 * places {
		for _, head := range []string{
			"GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n", "HEAD /leader HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n",
			"GET /v1/status HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", "OPTIONS /readyz HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n",
			"POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n", "DELETE /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n",
			"GET //livez HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n",
			"POST /v1/move HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n",
		} {
			c := dial(t, addr)
			io.WriteString(c, head)
			if i > 0 {
				continue
			}
			c.SetDeadline(time.Now().Add(patience))
			answer, err := io.ReadAll(c)
			want := "HTTP/1.1 400 Bad Request\r\n"
			if strings.Contains(head, "/v1/move") {
				want = "HTTP/1.1 401 Unauthorized\r\n"
			}
			if err != nil || !strings.HasPrefix(string(answer), want) || !strings.Contains(string(answer), "nosniff") {
				t.Errorf("%q: %q, %v", head, answer, err)
			}
		}
		quick := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
		resp, err := quick.Get("http://" + addr + "/leader")
		if err != nil {
			t.Fatalf("a probe in the meantime: %v", err)
		}
		resp.Body.Close()
	}
	// A client that sends the body gets the reason.
	resp, err := newHTTPClient().Do(must(http.NewRequest("GET", "http://"+addr+"/livez", strings.NewReader("{}"))))
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != 400 || !strings.Contains(string(body), "takes no body here") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

func must(r *http.Request, err error) *http.Request {
	if err != nil {
		panic(err)
	}
	return r
}

// An IPv6 network counts as one host, no matter how many addresses it uses.
func TestChooseEviction(t *testing.T) {
	for _, c := range []struct{ open, newcomer, loser string }{
		{"192.0.2.1 192.0.2.2", "192.0.2.3", "192.0.2.1"}, // the oldest
		{"192.0.2.1 192.0.2.2", "192.0.2.2", "192.0.2.2"}, // its own
		{"192.0.2.1 192.0.2.2 192.0.2.2", "192.0.2.3", "192.0.2.2"},
		{"192.0.2.1 2001:db8::1 2001:db8::2", "192.0.2.3", "2001:db8::1"},
		{"192.0.2.1 192.0.2.1 2001:db8::1", "2001:db8::2", "192.0.2.1"},
		{"192.0.2.1 192.0.2.1 192.0.2.1 2001:db8::1 2001:db8::2", "2001:db8::3", "192.0.2.1"},
	} {
		p := &connLimiter{}
		for address := range strings.FieldsSeq(c.open) {
			p.conns = append(p.conns, &limitedConn{client: clientAt(net.JoinHostPort(address, "1"))})
		}
		got := p.chooseEviction(clientAt(net.JoinHostPort(c.newcomer, "1")))
		if address := cmp.Or(got, &limitedConn{}).client.address; address != c.loser {
			t.Errorf("%s is evicted for %s, want %s (%s)", address, c.newcomer, c.loser, c.open)
		}
	}
}

func TestQuota(t *testing.T) {
	s := newQuota(10, 2)
	take := func(address string, want bool) {
		t.Helper()
		if got := s.acquire(clientAt(net.JoinHostPort(address, "1"))); got != want {
			t.Errorf("acquire for %s: %v", address, got)
		}
	}
	for _, address := range []string{"192.0.2.1", "2001:db8::1", "2001:db8::2"} {
		take(address, true)
		take(address, true)
		take(address, false)
	}
	take("2001:db8::3", false) // the network has reached its limit
	take("2001:db8:0:1::3", true)
	s.release(clientAt("[2001:db8::1]:1"))
	take("2001:db8::3", true)
	for i := range 3 {
		take(fmt.Sprint("192.0.3.", i), true)
	}
	take("192.0.3.9", false)
}

// connOf returns the connection under TLS too, also for HTTP/2.
func TestConnOfUnderTLS(t *testing.T) {
	e := newTLSServer(t)
	for _, http2 := range []bool{false, true} {
		web, err := ReadConfig(e.write(fmt.Sprintf("http_server_config: {http2: %v}\n", http2)))
		if err != nil {
			t.Fatal(err)
		}
		addr := listeningWith(t, Endpoint{Web: web}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if c := connOf(r); c == nil || c.client.address != "127.0.0.1" || (r.ProtoMajor == 2) != http2 {
				t.Errorf("%s: %+v", r.Proto, c)
			}
		}), 8)
		fetch(t, e.httpClient(), "https://"+addr)
	}
}

func TestClientAt(t *testing.T) {
	for remote, want := range map[string]client{
		"192.0.2.1:80": {address: "192.0.2.1"}, "[::ffff:192.0.2.1]:80": {address: "192.0.2.1"},
		"[2001:db8:1:2:3::4]:80": {address: "2001:db8:1:2:3::4", network: "2001:db8:1:2::/64"},
		"[fe80::1%eth0]:80":      {address: "fe80::1%eth0", network: "fe80::/64"}, "@": {address: "@"},
	} {
		if got := clientAt(remote); got != want {
			t.Errorf("%s: %+v, want %+v", remote, got, want)
		}
	}
}
