package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/status"
)

// asked waits for the listener, and returns the reason for a no.
func asked(t *testing.T, addr, path string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := Ask(ctx, addr, path); err != nil {
		return err.Error()
	}
	return "yes"
}

func TestAskGetsTheAnswerOfTheProbe(t *testing.T) {
	for _, view := range []status.Daemon{leader(), standby(), stuck()} {
		addr := listening(t, of(view), maxClients)
		for _, q := range questions {
			want := q.no(view)
			if want == "" {
				want = "yes"
			}
			if got := asked(t, addr, q.path); got != want {
				t.Errorf("%s of a daemon that is %s: %q, want %q", q.path, view.State(), got, want)
			}
		}
	}
}

func TestAskKnowsTheAddressesOfTheListener(t *testing.T) {
	_, port, _ := strings.Cut(listening(t, of(standby()), maxClients), ":")
	for _, addr := range []string{":" + port, "0.0.0.0:" + port, "localhost:" + port} {
		if got := asked(t, addr, "/livez"); got != "yes" {
			t.Errorf("%s: %s", addr, got)
		}
	}

	socket := "unix:" + filepath.Join(t.TempDir(), "api.sock")
	ctx, cancel := context.WithCancel(t.Context())
	l, err := listen(ctx, socket)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- Listener{}.serve(ctx, l, of(standby()), maxClients) }()
	if got := asked(t, socket, "/livez"); got != "yes" {
		t.Errorf("%s: %s", socket, got)
	}
	cancel()
	<-done
	if got := asked(t, socket, "/livez"); !strings.Contains(got, "nobody answers on http.listen "+socket) {
		t.Errorf("without a daemon: %s", got)
	}
}

// Whatever is not clearly a yes is a no.
func TestAskFailsClosed(t *testing.T) {
	for body, why := range map[string]string{
		"ok":                                "no zkelectd",
		"{}":                                "no zkelectd",
		`{"answer":true}`:                   "no zkelectd",
		`{"state":"leading"}`:               "200 OK",
		`{"state":"stuck","why":"is stuck"`: "no zkelectd",
	} {
		other := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) })
		if got := asked(t, listening(t, other, maxClients), "/leader"); !strings.Contains(got, why) {
			t.Errorf("%s: %q, want %q in it", body, got, why)
		}
	}
	if got := asked(t, "127.0.0.1:1", "/metrics"); got != `"/metrics" is not one of /leader, /replica, /health, /livez, /readyz` {
		t.Error(got)
	}

	silent := listening(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), maxClients)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := Ask(ctx, silent, "/livez"); err == nil || !strings.Contains(err.Error(), "deadline exceeded") {
		t.Errorf("a daemon that does not answer: %v", err)
	}
}
