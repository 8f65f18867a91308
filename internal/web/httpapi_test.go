package web

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/web/page"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// standby returns the fresh view of a healthy standby.
func standby() status.Daemon {
	return status.Daemon{
		Node: "a", Site: "dc1", Root: "/c", Incarnation: "a-0000000000000001-n_0000000000", Phase: "standby", Loop: true, Session: true, Connected: true,
		SessionTimeout: cluster.Duration(6 * time.Second), Lease: cluster.Duration(900 * time.Millisecond), UpdatedAt: 1, SnapshotAt: 1, RespondedAt: 1, Elected: "b", ElectedTerm: 7,
	}
}

func leader() status.Daemon {
	v := standby()
	v.Phase, v.Term, v.Elected, v.LeaseRemaining = "leading", 7, "a", cluster.Duration(1500*time.Millisecond)
	return v
}

// stuck returns the view of a leader whose loop has been stuck for an hour.
func stuck() status.Daemon {
	v := leader()
	v.Age = cluster.Duration(time.Hour)
	return v
}

func serveRequest(handler http.Handler, method, path string) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	handler.ServeHTTP(rec, httptest.NewRequest(method, path, nil))
	return rec
}

func handlerFor(v status.Daemon) http.Handler {
	return New(optionsOf(Group{View: func() status.Daemon { return v }}))
}

func TestProbes(t *testing.T) {
	connecting := status.Daemon{Node: "a", Phase: "standby", ElectedTerm: 7}
	late := leader()
	late.LeaseRemaining = 0
	ill := standby()
	ill.Unhealthy = "disk"
	heir := standby()
	heir.Heir, heir.IsHeir = "a", true
	deaf := standby()
	deaf.LastResponseAge = cluster.Duration(time.Hour)
	for _, c := range []struct {
		name string
		view status.Daemon
		yes  string
	}{
		{"a leader", leader(), "/leader /health /livez /readyz"},
		{"a leader whose lease is over", late, "/health /livez /readyz"},
		{"a leader whose loop is stuck", stuck(), ""},
		{"a standby", standby(), "/replica /health /livez /readyz"},
		{"the heir", heir, "/heir /replica /health /livez /readyz"},
		{"an unhealthy standby", ill, "/livez /readyz"},
		{"without responses from ZooKeeper", deaf, "/health /livez"},
		{"before there is a session", connecting, "/livez"},
	} {
		for _, path := range []string{"/leader", "/heir", "/replica", "/health", "/livez", "/readyz"} {
			want := http.StatusServiceUnavailable
			for yes := range strings.FieldsSeq(c.yes) {
				if yes == path {
					want = http.StatusOK
				}
			}
			for _, method := range []string{"GET", "HEAD"} {
				rec := serveRequest(handlerFor(c.view), method, path)
				var got map[string]any
				err := json.Unmarshal(rec.Body.Bytes(), &got)
				if rec.Code != want || err != nil || got["answer"] != (want == http.StatusOK) || (got["reason"] == nil) != (want == http.StatusOK) {
					t.Errorf("%s %s of %s: %d %s, want %d", method, path, c.name, rec.Code, rec.Body, want)
				}
			}
		}
	}
}

// Every response contains the daemon's name and the age of its view.
func TestEveryResponseHasStampAndSecurityHeaders(t *testing.T) {
	for _, path := range []string{"/leader", "/heir", "/replica", "/health", "/livez", "/readyz", "/v1/status", "/nothing", "/leader/x", "/%2e%2e/etc/passwd"} {
		for _, method := range []string{"GET", "POST"} {
			rec := serveRequest(handlerFor(stuck()), method, path)
			var got map[string]any
			if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil {
				t.Errorf("%s %s: %d %s: %v", method, path, rec.Code, rec.Body, err)
			}
			if got["node"] != "a" || got["term"] != 7.0 || got["state"] != "stuck" || got["age"] != "1h0m0s" {
				t.Errorf("%s %s: %v", method, path, got)
			}
			for name, want := range map[string]string{
				"Content-Type": "application/json", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer",
				"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'", "Access-Control-Allow-Origin": "",
			} {
				if got := rec.Header().Get(name); got != want {
					t.Errorf("%s %s: %s is %q, want %q", method, path, name, got, want)
				}
			}
		}
	}
}

func TestMethods(t *testing.T) {
	for _, r := range newAPI(optionsOf(Group{View: leader})).routes() {
		for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "TRACE", "OPTIONS"} {
			want, allow := http.StatusMethodNotAllowed, strings.Join(r.methods, ", ")
			switch {
			case method == "OPTIONS" && slices.Contains(r.methods, method): // a probe, which answers yes or no
				continue
			case (r.path == leasePath || method == "PUT") && slices.Contains(r.methods, method): // which has not come through the socket
				want, allow = http.StatusForbidden, ""
			case slices.Contains(r.methods, method): // an operator request without credentials
				want, allow = http.StatusUnauthorized, ""
			}
			rec := serveRequest(handlerFor(leader()), method, strings.Replace(r.path, "{group}", "c", 1))
			if rec.Code != want || rec.Header().Get("Allow") != allow {
				t.Errorf("%s %s: %d, Allow %q", method, r.path, rec.Code, rec.Header().Get("Allow"))
			}
		}
	}
}

// Each method that a probe accepts gets its answer: with another one, every host would look like the leader to a load balancer.
func TestProbesAnswerEachMethodAlike(t *testing.T) {
	for _, path := range ProbePaths() {
		for name, v := range map[string]status.Daemon{"a leader": leader(), "stuck": stuck(), "connecting": {Phase: "standby"}} {
			want := serveRequest(handlerFor(v), "GET", path).Code
			for _, method := range []string{"HEAD", "OPTIONS", "POST", "TRACE", "X"} {
				got := serveRequest(handlerFor(v), method, path).Code
				if got != want && got != http.StatusMethodNotAllowed {
					t.Errorf("%s %s of %s: %d, but GET gets %d", method, path, name, got, want)
				}
			}
		}
	}
	if got := serveRequest(handlerFor(status.Daemon{Phase: "standby"}), "OPTIONS", "/leader").Code; got != http.StatusServiceUnavailable {
		t.Errorf("OPTIONS /leader on a standby: %d", got)
	}
}

func TestPageIsServed(t *testing.T) {
	for path := range page.Handlers() {
		for method, want := range map[string]int{"GET": 200, "HEAD": 200, "OPTIONS": 405, "POST": 405, "DELETE": 405} {
			rec := serveRequest(handlerFor(stuck()), method, path)
			if rec.Code != want || (want == 405) != (rec.Header().Get("Allow") == "GET, HEAD") {
				t.Errorf("%s %s: %d, Allow %q", method, path, rec.Code, rec.Header().Get("Allow"))
			}
		}
	}
	for _, path := range []string{"/index.html", "/page.go", "/page.css/", "/favicon.ico"} {
		if rec := serveRequest(handlerFor(leader()), "GET", path); rec.Code != 404 || rec.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s", path, rec.Code, rec.Header().Get("Content-Type"))
		}
	}
}
