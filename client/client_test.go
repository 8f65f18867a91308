package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// daemon answers like one with a handler.
func daemon(t *testing.T, handler http.HandlerFunc) *Client {
	t.Helper()
	socket, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: handler}
	go s.Serve(socket)
	t.Cleanup(func() { s.Close() })
	return &Client{Socket: socket.Addr().String(), Group: "g"}
}

func reply(w http.ResponseWriter, lease string, left time.Duration, stop bool) {
	at := now()
	fmt.Fprintf(w, `{"leading":%t,"stop":%t,"lease":%q,"token":7,"lease_end_ns":%d,"boottime_ns":%d}`,
		left > 0, stop, lease, int64(at+left), int64(at))
}

// The work runs under a lease that is extended until it must stop, and is returned.
func TestRunWhileLeading(t *testing.T) {
	var asked atomic.Int32
	returned := make(chan string, 1)
	c := daemon(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if q.Get("group") != "g" {
			t.Errorf("%s", r.URL)
		}
		switch n := asked.Add(1); {
		case r.Method == http.MethodDelete:
			returned <- q.Get("lease")
		case n == 1:
			http.Error(w, `{"error":"busy"}`, http.StatusServiceUnavailable)
		case n == 2:
			reply(w, "", 0, false)
		case n == 3 && q.Get("lease") == "" && q.Get("bound") == "true":
			reply(w, "x", time.Second, false)
		case n == 4 && q.Get("lease") == "x":
			reply(w, "x", 2*time.Second, false)
		case n == 5:
			reply(w, "x", time.Second, true)
		default:
			t.Errorf("%d: %s", n, r.URL)
		}
	})
	if c.IsLeader() {
		t.Error("the leader before it works")
	}
	failed := errors.New("failed")
	err := c.RunWhileLeading(t.Context(), func(ctx context.Context) error {
		if !c.IsLeader() || c.Token() != 7 {
			t.Errorf("token %d", c.Token())
		}
		if err := c.RunWhileLeading(ctx, nil); !errors.Is(err, ErrRunning) {
			t.Errorf("at the same time: %v", err)
		}
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), ErrStop) || !c.IsLeader() {
			t.Errorf("%v, leader: %t", context.Cause(ctx), c.IsLeader())
		}
		return failed
	})
	if !errors.Is(err, failed) || c.IsLeader() || <-returned != "x" {
		t.Errorf("%v, leader: %t", err, c.IsLeader())
	}
}

// A lease that is not extended ends, and the work is asked to stop before.
func TestALeaseThatIsNotExtendedEnds(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"the daemon hangs": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"it is busy": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, `{"error":"busy"}`, http.StatusServiceUnavailable)
		},
		"it refuses":       func(w http.ResponseWriter, _ *http.Request) { http.Error(w, `{"error":"no group"}`, 404) },
		"it is another":    func(w http.ResponseWriter, _ *http.Request) { reply(w, "", 0, false) },
		"it hands out one": func(w http.ResponseWriter, _ *http.Request) { reply(w, "y", time.Hour, false) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var handed atomic.Bool
			c := daemon(t, func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Method == http.MethodDelete:
				case handed.CompareAndSwap(false, true):
					reply(w, "x", 600*time.Millisecond, false)
				default:
					answer(w, r)
				}
			})
			err := c.RunWhileLeading(t.Context(), func(ctx context.Context) error {
				began := now()
				<-ctx.Done()
				if !c.IsLeader() {
					return errors.New("there is no time to stop")
				}
				last := began
				for at := now(); c.IsLeader(); at = now() {
					last = at
					pause(t.Context(), time.Millisecond)
				}
				if took := last - began; took > 600*time.Millisecond {
					return fmt.Errorf("it has lasted %s", took)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestWithoutALeaseNothingRuns(t *testing.T) {
	never := func(context.Context) error {
		t.Error("it runs")
		return nil
	}
	c := daemon(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, `{"error":"no such group"}`, 404) })
	var refused *RefusedError
	if err := c.RunWhileLeading(t.Context(), never); !errors.As(err, &refused) || refused.Reason != "no such group" {
		t.Errorf("refused: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	none := &Client{Socket: filepath.Join(t.TempDir(), "none")}
	if err := none.RunWhileLeading(ctx, never); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a daemon: %v", err)
	}
}
