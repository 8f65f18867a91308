package web

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/operator/status"
)

// event is an event as a client receives it.
type event struct{ id, kind, data string }

// eventReader reads an event stream.
type eventReader struct {
	t      *testing.T
	cancel context.CancelFunc
	resp   *http.Response
	lines  *bufio.Scanner
}

func follow(t *testing.T, addr, after string) *eventReader {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	if after != "" {
		req.Header.Set("Last-Event-ID", after)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	l := &eventReader{t, cancel, resp, bufio.NewScanner(resp.Body)}
	t.Cleanup(l.close)
	return l
}

func (l *eventReader) close() {
	l.cancel()
	l.resp.Body.Close()
}

// next returns the next event other than a heartbeat. over reports whether the stream has ended.
func (l *eventReader) next() (e event, over bool) {
	l.t.Helper()
	for l.lines.Scan() {
		key, value, _ := strings.Cut(l.lines.Text(), ": ")
		switch key {
		case "id":
			e.id = value
		case "event":
			e.kind = value
		case "data":
			e.data = value
		case "":
			if e.kind != "" && e.kind != eventHeartbeat {
				return e, false
			}
			e = event{}
		}
	}
	return e, true
}

func (l *eventReader) expect(kind, data string) event {
	l.t.Helper()
	e, over := l.next()
	if over || e.kind != kind || !strings.Contains(e.data, data) || e.id == "" {
		l.t.Fatalf("%+v (over: %v), want %s with %s", e, over, kind, data)
	}
	return e
}

func streaming(feed *status.Feed) *api {
	return newAPI(optionsOf(Group{View: leader, Feed: feed}))
}

func TestEventsBeginWithTheView(t *testing.T) {
	feed := status.NewFeed()
	feed.Add("x", "long ago")
	addr := listening(t, streaming(feed).handler(), 8)
	l := follow(t, addr, "")
	if got := l.resp.Header.Get("Content-Type"); l.resp.StatusCode != 200 || got != "text/event-stream" {
		t.Fatalf("%d %s", l.resp.StatusCode, got)
	}
	l.expect(status.EventDaemon, `"state":"leading"`)
	feed.Add(status.EventState, "one")
	first := l.expect(status.EventState, "one")
	feed.Add(status.EventState, "two")
	l.expect(status.EventState, "two")
	l.close()

	// A client that reconnects misses nothing.
	feed.Add(status.EventState, "three")
	l = follow(t, addr, first.id)
	l.expect(status.EventState, "two")
	last := l.expect(status.EventState, "three")
	l.close()

	// After a restart of the daemon it gets the whole view.
	again := status.NewFeed()
	again.Add(status.EventState, "four")
	l = follow(t, listening(t, streaming(again).handler(), 8), last.id)
	l.expect(status.EventDaemon, `"node":"a"`)
	again.Add(status.EventState, "five")
	l.expect(status.EventState, "five")
}

// Heartbeats report that the loop is stuck: a stuck loop adds no events.
func TestHeartbeats(t *testing.T) {
	a := newAPI(optionsOf(Group{View: stuck, Feed: status.NewFeed()}))
	a.heartbeat = time.Millisecond
	l := follow(t, listening(t, a.handler(), 8), "")
	for range 100 {
		if !l.lines.Scan() {
			t.Fatal(l.lines.Err())
		}
		if l.lines.Text() == "event: "+eventHeartbeat {
			l.lines.Scan()
			if want := `data: {"node":"a","group":"c","term":7,"state":"stuck","age":"1h0m0s"}`; l.lines.Text() != want {
				t.Errorf("%s, want %s", l.lines.Text(), want)
			}
			return
		}
	}
	t.Error("no heartbeat")
}

func TestStreamsAreLimited(t *testing.T) {
	a := streaming(status.NewFeed())
	a.streamQuota = newQuota(1, 1)
	addr := listening(t, a.handler(), 8)
	l := follow(t, addr, "")
	l.expect(status.EventDaemon, "")
	second := follow(t, addr, "")
	if second.resp.StatusCode != http.StatusServiceUnavailable || second.resp.Header.Get("Retry-After") == "" {
		t.Errorf("a second one: %d", second.resp.StatusCode)
	}
	if code, _ := fetch(t, newHTTPClient(), "http://"+addr+"/leader"); code != 200 {
		t.Errorf("/leader in the meantime: %d", code)
	}
	l.close()
	eventually(t, "the stream is released once the server has noticed", func() bool {
		a.streamQuota.mu.Lock()
		defer a.streamQuota.mu.Unlock()
		return a.streamQuota.used == 0 && len(a.streamQuota.usedBy) == 0
	})
	follow(t, addr, "").expect(status.EventDaemon, "")
}

// The server's timeouts for requests must not end a stream; the end of the daemon must.
func TestStreamOutlivesTimeoutsAndEndsWithTheDaemon(t *testing.T) {
	feed := status.NewFeed()
	server := httptest.NewUnstartedServer(streaming(feed).handler())
	server.Config.ReadTimeout, server.Config.WriteTimeout = 50*time.Millisecond, 50*time.Millisecond
	base, cancel := context.WithCancel(context.Background())
	server.Config.BaseContext = baseContext(base)
	server.Start()
	defer server.Close()
	l := follow(t, server.Listener.Addr().String(), "")
	l.expect(status.EventDaemon, "")
	late := time.NewTimer(200 * time.Millisecond)
	<-late.C
	feed.Add(status.EventState, "late")
	l.expect(status.EventState, "late")
	cancel()
	if e, over := l.next(); !over {
		t.Errorf("after the end: %+v", e)
	}
}
