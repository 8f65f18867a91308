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
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/operator/status"
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

// A load balancer, an operator and Prometheus see the failover of a group whose leader crashes.
func TestHTTPFollowsAFailover(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	for i, id := range []string{"a", "b"} {
		f.configure(id, "dc1", 100-i, fmt.Sprintf("http: {listen: 'unix:%s'}\npolicy: {failback: manual}\n", f.socket(id)))
		f.start(id)
		f.answers(id, "/readyz", 200)
	}
	f.until("both have joined", func(g status.Group) bool { return len(g.Members) == 2 && leads("a")(g) })
	f.answers("a", "/leader", 200)
	f.answers("a", "/replica", 503)
	f.answers("b", "/replica", 200)
	f.answers("b", "/leader", 503)
	for path, want := range map[string]string{
		"/v1/status":  `"members":[{"node":"a"`,
		"/v1/explain": "if a is lost, b (dc1) leads",
		"/metrics":    "\nprocess_open_fds ",
	} {
		f.eventually("b knows "+want, func() bool {
			_, body := f.ask("b", path)
			return strings.Contains(body, want)
		})
	}

	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	resp, err := f.request(ctx, "b", "/v1/events")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	began := time.Now()
	syscall.Kill(f.daemon("a"), syscall.SIGKILL)
	for seen := false; !seen; {
		if !lines.Scan() {
			t.Fatalf("the stream ended: %v", lines.Err())
		}
		seen = strings.HasPrefix(lines.Text(), "data: ") && strings.Contains(lines.Text(), `"state":"leading","reason":"the takeover is complete"`)
	}
	t.Logf("the event of the new leader came after %s", time.Since(began))
	f.answers("b", "/leader", 200)
	// The guard has restarted a's daemon, which replaces the socket that the old one left behind.
	f.answers("a", "/replica", 200)
	f.answers("a", "/leader", 503)
	f.eventually("b counts the failover", func() bool {
		_, body := f.ask("b", "/metrics")
		return regexp.MustCompile(`zkelectd_transitions_total\{cause="(stopped|failure)",group="[^"]+",result="ready"\} 1`).MatchString(body)
	})
	f.eventually("the history has it", func() bool {
		_, body := f.ask("a", "/v1/history?n=1")
		return strings.Contains(body, `"node":"b","site":"dc1","previous":"a"`)
	})
	f.daemons["b"].signal(syscall.SIGTERM)
	for lines.Scan() { // the stream ends with the daemon
	}
	if code := f.exit("b"); code != 0 {
		t.Errorf("b ended with %d", code)
	}
	f.checkInvariants()
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
		out, err := exec.Command("zkelectd", "probe", "/livez", "--config", f.file("a")).CombinedOutput()
		return string(out), err
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
