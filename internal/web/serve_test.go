package web

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

func newHTTPClient() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}
}

func serveAt(ctx context.Context, addr string, handler http.Handler) error {
	return Endpoint{Addr: addr}.Serve(ctx, handler)
}

// fetch retries until there is a response: the server may not listen yet.
func fetch(t *testing.T, c *http.Client, url string) (int, string) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(20 * time.Second); ; <-tick.C {
		resp, err := c.Get(url)
		if err == nil {
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			return resp.StatusCode, string(body)
		}
		if time.Now().After(limit) {
			t.Fatal(err)
		}
	}
}

// listening serves handler on a new port until the test ends.
func listening(t *testing.T, handler http.Handler, clients int) string {
	t.Helper()
	return listeningWith(t, Endpoint{}, handler, clients)
}

func listeningWith(t *testing.T, how Endpoint, handler http.Handler, clients int) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serving(t, how, l, handler, clients)
	return l.Addr().String()
}

// serving serves until the test ends.
func serving(t *testing.T, how Endpoint, l net.Listener, handler http.Handler, clients int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- how.serve(ctx, l, handler, clients) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serving ended with %v", err)
		}
	})
}

// A request in progress does not prevent the daemon from ending.
func TestServeEndsWithItsRequests(t *testing.T) {
	entered, left := make(chan struct{}), make(chan struct{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Endpoint{}.serve(ctx, l, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			close(entered)
			<-r.Context().Done()
			close(left)
		}), 1)
	}()
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		if resp, err := newHTTPClient().Get("http://" + l.Addr().String()); err == nil {
			resp.Body.Close()
		}
	}()
	<-entered
	cancel()
	if err := <-done; err != nil {
		t.Errorf("ended with %v", err)
	}
	<-left
	<-asked
}

func TestHugeRequestIsRefused(t *testing.T) {
	addr := listening(t, handlerFor(leader()), 4)
	req, err := http.NewRequest("GET", "http://"+addr+"/leader", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Long", strings.Repeat("x", 64<<10))
	resp, err := newHTTPClient().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("%d", resp.StatusCode)
	}
}
