package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ask sends a GET request to a daemon's socket; the status is 0 if it does not answer.
func (f *fleet) ask(id, path string) (int, string) {
	resp, err := f.request(f.t.Context(), id, path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

func (f *fleet) request(ctx context.Context, id, path string) (*http.Response, error) {
	client := &http.Client{Transport: f.transport(id)}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+id+path, nil)
	if err != nil {
		return nil, err
	}
	return client.Do(req)
}

// transport returns a transport to a daemon's socket.
func (f *fleet) transport(id string) *http.Transport {
	return &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", f.socket(id))
		},
	}
}

// proxy returns the TCP address of a proxy to a daemon's socket, whether the daemon runs or not.
func (f *fleet) proxy(id string) string {
	f.t.Helper()
	to := &url.URL{Scheme: "http", Host: "zkelectd"}
	server := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host
		},
		Transport: f.transport(id), ErrorLog: log.New(io.Discard, "", 0),
	})
	f.t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func (f *fleet) socket(id string) string { return filepath.Join(f.dir, id) }

func (f *fleet) answers(id, path string, want int) {
	f.t.Helper()
	var code int
	var body string
	f.eventually(fmt.Sprintf("%s%s is %d", id, path, want), func() bool {
		code, body = f.ask(id, path)
		return code == want
	}, func() string { return fmt.Sprint(code, " ", body) })
}

// events returns the lines of a daemon's stream of events.
func (f *fleet) events(id string) *bufio.Scanner {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), testTimeout)
	f.t.Cleanup(cancel)
	resp, err := f.request(ctx, id, "/v1/events")
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { resp.Body.Close() })
	return bufio.NewScanner(resp.Body)
}

// hasEvent waits for an event with a text in a stream.
func (f *fleet) hasEvent(lines *bufio.Scanner, want string) {
	f.t.Helper()
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data: ") && strings.Contains(lines.Text(), want) {
			return
		}
	}
	f.t.Fatalf("the stream ended without %s: %v", want, lines.Err())
}

// A reload changes by which names the API may be asked, which DNS rebinding does not know.
func TestAllowedHostsAreReloaded(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.startLeader("a", "http: {listen: '127.0.0.1:0', allowed_hosts: [lb.example]}\n")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: testTimeout}
	answers := func(host string, want int) func() bool {
		return func() bool {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+f.address("a")+"/livez", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = host
			resp, err := client.Do(req)
			if err != nil {
				return false
			}
			resp.Body.Close()
			return resp.StatusCode == want
		}
	}
	f.eventually("the name is known", answers("lb.example:80", http.StatusOK))
	f.configure("a", "dc1", 100, "http: {listen: '127.0.0.1:0', allowed_hosts: [other.example]}\n")
	f.reload("a")
	f.eventually("the name of the reload is known", answers("other.example", http.StatusOK))
	f.eventually("the one before is not", answers("lb.example", http.StatusMisdirectedRequest))
	f.checkInvariants()
}

// In a unit, the daemon listens at a socket in its runtime directory unless http.listen says otherwise. A command finds it by the configuration file,
// outside of the unit as well.
func TestTheAPIListensInTheRuntimeDirectory(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	dir, err := os.MkdirTemp("/run", "zkelectd-test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	probes := func() (string, error) {
		out, err := zkelectd("probe", "/livez", "--config", f.file("a"))
		return out, err
	}
	for i, extra := range []string{"", "http: {listen: none}\n"} {
		f.configure("a", "dc1", 100, extra)
		f.startWith([]string{"RUNTIME_DIRECTORY=" + dir}, "a")
		f.until("a leads", leads("a"))
		if i == 0 {
			f.eventually("a probe", func() bool { _, err := probes(); return err == nil })
			if info, err := os.Stat(filepath.Join(dir, "api.sock")); err != nil || info.Mode() != fs.ModeSocket|0o660 {
				t.Errorf("the socket is %v, %v", info, err)
			}
		} else if out, err := probes(); err == nil || !strings.Contains(out, "http.listen is not set") {
			t.Errorf("without a listener: %v, %s", err, out)
		}
		f.stop("a")
	}
}
