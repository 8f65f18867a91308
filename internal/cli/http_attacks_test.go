package cli

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// dialFrom opens a connection to a daemon from a loopback address. It is closed with the test.
func dialFrom(t *testing.T, from, addr string) net.Conn {
	t.Helper()
	c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// firstLine sends a request and returns the first line of the answer.
func firstLine(t *testing.T, from, addr, request string) string {
	t.Helper()
	c := dialFrom(t, from, addr)
	c.SetDeadline(time.Now().Add(testTimeout))
	io.WriteString(c, request)
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(line)
}

// Known attacks on the HTTP API of the leader affect neither a load balancer nor the owner of a token.
func TestAttacksOnTheLeadersAPI(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.startLeader("a", fmt.Sprintf("http: {listen: '127.0.0.1:0', allowed_hosts: [lb.example], %s}\n", f.tokens("night-shift:"+nightsToken)))
	addr := f.address("a")
	t.Run("bodies that never come", func(t *testing.T) { bodiesThatNeverCome(t, addr) })
	t.Run("wrong tokens", func(t *testing.T) { wrongTokens(t, addr) })
	t.Run("all streams of events", func(t *testing.T) {
		for i := range 64 {
			if line := firstLine(t, "127.0.0.1", addr, "GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"); !strings.Contains(line, "200") && i < 16 {
				t.Fatalf("stream %d: %s", i, line)
			}
		}
		if line := firstLine(t, "127.0.0.2", addr, "GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"); !strings.Contains(line, "200") {
			t.Errorf("another client's: %s", line)
		}
	})
	t.Run("DNS rebinding", func(t *testing.T) {
		for host, want := range map[string]string{
			"evil.example": "421", "a.evil.example": "421", "localhost": "200", "a": "200", "lb.example:80": "200", "198.51.100.7:7980": "200",
		} {
			if line := firstLine(t, "127.0.0.1", addr, "GET /v1/status HTTP/1.1\r\nHost: "+host+"\r\n\r\n"); !strings.Contains(line, want) {
				t.Errorf("%s: %s, want %s", host, line, want)
			}
		}
	})
	if out, err := f.run("probe", "/leader", "--http", addr); err != nil {
		t.Errorf("the command: %v %s", err, out)
	}
	f.configure("a", "dc1", 100, fmt.Sprintf("http: {listen: '127.0.0.1:0', allowed_hosts: [other.example], %s}\n", f.tokens("night-shift:"+nightsToken)))
	f.reload("a")
	f.eventually("the names of the reload", func() bool {
		return strings.Contains(firstLine(t, "127.0.0.1", addr, "GET /livez HTTP/1.1\r\nHost: other.example\r\n\r\n"), "200") &&
			strings.Contains(firstLine(t, "127.0.0.1", addr, "GET /livez HTTP/1.1\r\nHost: lb.example\r\n\r\n"), "421")
	})
	f.checkInvariants()
}

// 60 unfinished requests per second, for longer than the server waits for one, with 30 probes meanwhile.
func bodiesThatNeverCome(t *testing.T, addr string) {
	const rate, seconds = 60, 8
	probes := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	failed, tick := 0, time.NewTicker(time.Second/rate)
	defer tick.Stop()
	for i := range rate * seconds {
		<-tick.C
		io.WriteString(dialFrom(t, "127.0.0.1", addr), "GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n")
		if i%(rate*seconds/30) != 0 {
			continue
		}
		resp, err := probes.Get("http://" + addr + "/leader")
		if err != nil {
			failed++
			continue
		}
		resp.Body.Close() // whatever it says: on a busy machine the leader may change
	}
	if failed > 0 {
		t.Errorf("%d of 30 probes were not answered", failed)
	}
}

func wrongTokens(t *testing.T, addr string) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: testTimeout}
	last := 0
	for i := range 12 {
		last, _ = post(client, "http://"+addr+"/v1/pause", fmt.Sprintf("wrong-wrong-%04d", i), "{}")
	}
	if last != http.StatusTooManyRequests {
		t.Errorf("the twelfth wrong token: %d", last)
	}
	for _, kind := range []string{"pause", "resume"} {
		if code, answer := post(client, "http://"+addr+"/v1/"+kind, nightsToken, "{}"); code != http.StatusOK {
			t.Errorf("%s by the right one: %d %s", kind, code, answer)
		}
	}
}
