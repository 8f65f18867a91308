package web

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestHosts(t *testing.T) {
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	h := NewHosts("api.dc1.example:7980", "N1")
	h.SetAllowed([]string{"LB.example", "*.svc.example."})
	for header, want := range map[string]bool{
		"": true, "127.0.0.1": true, "127.0.0.1:7980": true, "[::1]:7980": true, "[::1]": true, "192.0.2.77:80": true, "[fe80::1%25eth0]:1": true,
		"localhost": true, "LOCALHOST:7980": true, "localhost.": true, "a.localhost:1": true, own: true, own + ":7980": true, "n1:7980": true,
		"api.dc1.example:7980": true, "lb.example": true, "lb.EXAMPLE.:1": true, "n1.svc.example": true, "a.n1.svc.example:1": true,
		"evil.example": false, "evil.example:7980": false, "svc.example": false, "xsvc.example": false, "127.0.0.1.evil.example": false,
		"localhost.evil.example": false, "evillocalhost": false, "n1.evil.example": false, own + ".evil.example": false, "lb.example.evil.example": false,
		"2130706433": false, "0x7f.1": false, "a b": false, ":7980": true,
	} {
		if err := h.Check(header); (err == nil) != want {
			t.Errorf("%q: %v", header, err)
		} else if err != nil && !strings.Contains(err.Error(), "add it to http.allowed_hosts") {
			t.Errorf("%q: %v", header, err)
		}
	}
	if h.SetAllowed([]string{"*"}); h.Check("evil.example") != nil {
		t.Error("* does not allow all names")
	}
	if h.SetAllowed(nil); h.Check("lb.example") == nil || h.Check("n1") != nil {
		t.Error("SetAllowed keeps earlier names, or removes the daemon's own")
	}
}

// With DNS rebinding a page can read nothing, not even the name of the daemon, and cannot submit operator requests.
func TestDNSRebindingIsRefused(t *testing.T) {
	opt := optionsWithSubmit(t, accept)
	opt.Hosts = NewHosts("", "a")
	addr := listening(t, New(opt), 8)
	for _, path := range []string{"/", "/leader", "/livez", "/metrics", "/v1/status", "/v1/events", "/v1/whoami", "/nothing", "/v1/reelect"} {
		for _, host := range []string{"evil.example", "evil.example:80"} {
			c := dial(t, addr)
			io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: "+host+"\r\nOrigin: http://"+host+"\r\n\r\n")
			answer, err := io.ReadAll(c)
			head, body, _ := strings.Cut(string(answer), "\r\n\r\n")
			if err != nil || !strings.HasPrefix(head, "HTTP/1.1 421 ") || strings.Contains(body, "node") || strings.Contains(body, "leading") ||
				!strings.Contains(body, `"error":"the Host header is \"evil.example\", which is not a name of this daemon`) {
				t.Errorf("%s: %v\n%s", path, err, answer)
			}
		}
	}
	post := must(http.NewRequest("POST", "http://"+addr+"/v1/reelect", strings.NewReader("{}")))
	post.Host = "evil.example"
	post.Header.Set("Authorization", "Bearer "+annsToken)
	post.Header.Set("Content-Type", "application/json")
	resp, err := newHTTPClient().Do(post)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMisdirectedRequest {
		t.Errorf("a request: %d", resp.StatusCode)
	}
	// HAProxy's simple checks have no Host header.
	if line, _ := sendLine(dial(t, addr), "GET /leader HTTP/1.0\r\n\r\n"); !strings.Contains(line, "200") {
		t.Errorf("without a Host: %q", line)
	}
}

// Requests over the unix socket may have any Host header: browsers cannot connect to it.
func TestSocketAcceptsAnyHost(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := Endpoint{Addr: "unix:" + path}.listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	opt := optionsWithGroup()
	opt.Hosts = NewHosts("unix:"+path, "a")
	serving(t, Endpoint{}, l, New(opt), 8)
	if code, body := fetch(t, overSocket(path), "http://whatever.example/v1/status"); code != 200 {
		t.Errorf("%d %s", code, body)
	}
}

func TestProbeSendsAnAllowedHost(t *testing.T) {
	opt := optionsWithGroup()
	opt.Hosts = NewHosts("", "a")
	addr := listening(t, New(opt), maxConns)
	if err := (Endpoint{Addr: addr}).Probe(context.Background(), "/livez", ""); err != nil {
		t.Error(err)
	}
}
