package web

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/operator/status"
)

// probeError waits until the endpoint responds, and returns the reason for a no.
func probeError(t *testing.T, addr, path string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := (Endpoint{Addr: addr}).Probe(ctx, path, ""); err != nil {
		return err.Error()
	}
	return "yes"
}

func TestProbe(t *testing.T) {
	for _, view := range []status.Daemon{leader(), standby(), stuck()} {
		addr := listening(t, handlerFor(view), maxConns)
		for _, q := range probeChecks {
			want := "yes"
			if err := q.check(view); err != nil {
				want = err.Error()
			}
			if got := probeError(t, addr, q.path); got != want {
				t.Errorf("%s of a %s daemon: %q, want %q", q.path, view.State(), got, want)
			}
		}
	}
}

func TestProbeAddresses(t *testing.T) {
	_, port, _ := strings.Cut(listening(t, handlerFor(standby()), maxConns), ":")
	for _, addr := range []string{":" + port, "0.0.0.0:" + port, "localhost:" + port} {
		if got := probeError(t, addr, "/livez"); got != "yes" {
			t.Errorf("%s: %s", addr, got)
		}
	}

	socket := "unix:" + filepath.Join(t.TempDir(), "api.sock")
	ctx, cancel := context.WithCancel(t.Context())
	l, err := Endpoint{Addr: socket}.listen(ctx)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- Endpoint{}.serve(ctx, l, handlerFor(standby()), maxConns) }()
	if got := probeError(t, socket, "/livez"); got != "yes" {
		t.Errorf("%s: %s", socket, got)
	}
	cancel()
	<-done
	if got := probeError(t, socket, "/livez"); !strings.Contains(got, "no answer on http.listen "+socket) {
		t.Errorf("without a daemon: %s", got)
	}
}

// Everything that is not clearly a yes is a no.
func TestProbeFailsClosed(t *testing.T) {
	for body, why := range map[string]string{
		"ok":                                   "not zkelectd",
		"{}":                                   "not zkelectd",
		`{"answer":true}`:                      "not zkelectd",
		`{"state":"leading"}`:                  "200 OK",
		`{"state":"stuck","reason":"is stuck"`: "not zkelectd",
	} {
		other := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) })
		if got := probeError(t, listening(t, other, maxConns), "/leader"); !strings.Contains(got, why) {
			t.Errorf("%s: %q, want %q in it", body, got, why)
		}
	}
	if got := probeError(t, "127.0.0.1:1", "/metrics"); got != `"/metrics" is not one of /leader, /heir, /replica, /health, /livez, /readyz` {
		t.Error(got)
	}

	silent := listening(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), maxConns)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := (Endpoint{Addr: silent}).Probe(ctx, "/livez", ""); err == nil || !strings.Contains(err.Error(), "deadline exceeded") {
		t.Errorf("a daemon that does not respond: %v", err)
	}
}

// Under TLS the daemon is identified by its certificate. If the server requires more than a probe has, the error says what.
func TestProbeUnderTLS(t *testing.T) {
	e := newTLSServer(t)
	ask := func(addr string, web Config) string {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		return fmt.Sprint(Endpoint{Addr: addr, Web: web}.Probe(ctx, "/livez", ""))
	}
	web := Config{e.write(operatorsGive)}
	addr := e.serve(operatorsGive, maxConns)
	if got := ask(addr, web); got != "<nil>" {
		t.Error(got)
	}
	strict := strings.Replace(operatorsGive, "VerifyClientCertIfGiven", "RequireAndVerifyClientCert", 1)
	for more, want := range map[string]string{
		strict: "certificate required",
	} {
		e.write(more)
		if got := ask(addr, web); !strings.Contains(got, want) {
			t.Errorf("%s: %s", more, got)
		}
	}
	other := newTLSServer(t)
	if got := ask(addr, Config{other.write("")}); !strings.Contains(got, "the server's certificate is not the one in") {
		t.Error(got)
	}
}
