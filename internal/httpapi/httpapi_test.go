package httpapi

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"zkelectd/internal/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func get(t *testing.T, v status.Daemon, method, path string) (int, string) {
	t.Helper()
	rec := httptest.NewRecorder()
	New(Options{View: func() status.Daemon { return v }, Version: "v1"}).ServeHTTP(rec, httptest.NewRequest(method, path, nil))
	return rec.Code, rec.Body.String()
}

func TestAnswersFailClosed(t *testing.T) {
	leader := status.Daemon{Node: "a", Incarnation: "a-n_0000000000", Phase: "leading", Term: 7, LeaseRemaining: time.Second}
	late := leader
	late.LeaseRemaining = 0
	standby := status.Daemon{Node: "a", Incarnation: "a-n_0000000000", Phase: "standby"}
	for _, c := range []struct {
		name, path string
		view       status.Daemon
		want       int
	}{
		{"a leader", "/leader", leader, 200},
		{"a leader whose lease is over", "/leader", late, 503},
		{"a candidate", "/leader", status.Daemon{Incarnation: "x", Phase: "starting", LeaseRemaining: time.Second}, 503},
		{"a standby", "/leader", standby, 503},
		{"a standby", "/replica", standby, 200},
		{"a leader", "/replica", leader, 503},
		{"before there is a session", "/replica", status.Daemon{Phase: "standby"}, 503},
		{"before there is a session", "/health", status.Daemon{Phase: "standby"}, 503},
		{"a standby", "/health", standby, 200},
		{"after the session", "/health", status.Daemon{Incarnation: "x", Phase: "ended"}, 503},
		{"anything", "/v1/status", standby, 200},
	} {
		for _, method := range []string{"GET", "HEAD"} {
			if code, body := get(t, c.view, method, c.path); code != c.want || (method == "GET" && !strings.Contains(body, `"phase"`)) {
				t.Errorf("%s %s of %s: %d %s", method, c.path, c.name, code, body)
			}
		}
	}
	if code, _ := get(t, leader, "POST", "/leader"); code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", code)
	}
	if code, _ := get(t, leader, "GET", "/"); code != http.StatusNotFound {
		t.Errorf("/: %d", code)
	}
}

func TestMetrics(t *testing.T) {
	v := status.Daemon{Incarnation: "x", Phase: "leading", ElectedTerm: 7, LeaseRemaining: 1500 * time.Millisecond}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(&collector{Options{View: func() status.Daemon { return v }, Version: "v1"}})
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	_, body := get(t, v, "GET", "/metrics")
	for _, want := range []string{"zkelectd_is_leader 1", "zkelectd_lease_remaining_seconds 1.5", "zkelectd_term 7", `zkelectd_phase{phase="leading"} 1`} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in\n%s", want, body)
		}
	}
}

func TestServe(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := Serve(t.Context(), addr, http.NotFoundHandler()); err == nil || !strings.Contains(err.Error(), addr) || !strings.Contains(err.Error(), "--http") {
		t.Errorf("a port in use: %v", err)
	}
	l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, addr, New(Options{View: func() status.Daemon { return status.Daemon{} }})) }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(20 * time.Second); ; <-tick.C {
		resp, err := client.Get("http://" + addr + "/v1/status")
		if err == nil {
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			break
		}
		if time.Now().After(limit) {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("ended with %v", err)
	}
}
