package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/work/applease"
)

// lender is a group that answers requests for leases.
type lender struct {
	answer applease.Answer
	err    error
	asked  applease.Request
}

func (l *lender) options(names ...string) Options {
	opt := optionsWithGroup()
	if len(names) > 0 {
		opt = severalGroups(names...)
	}
	for _, g := range opt.Groups() {
		g.ApplicationLease = func(_ context.Context, r applease.Request) (applease.Answer, error) {
			l.asked = r
			return l.answer, l.err
		}
		g.ReturnApplicationLease = func(id string, _ applease.Process) bool { return id == "known" }
	}
	return opt
}

// overUnix sends a request as from a unix socket.
func overUnix(handler http.Handler, method, path string) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	r := httptest.NewRequest(method, path, nil)
	conn := &limitedConn{limiter: &connLimiter{}, peer: &unix.Ucred{Pid: 77}}
	handler.ServeHTTP(rec, r.WithContext(context.WithValue(r.Context(), connKey{}, conn)))
	return rec
}

// leaseResponses returns every response that the path of leases can give.
func leaseResponses() map[string]*http.Response {
	full := newAPI(new(lender).options())
	full.leaseQuota = newQuota(0, 0)
	late := new(lender).options()
	only(late).View = stuck
	got := make(map[string]*http.Response)
	for name, handler := range map[string]http.Handler{
		"leading":  New((&lender{answer: applease.Answer{ID: "x", Term: 7, Value: "v", End: boottime.Now() + time.Hour}}).options()),
		"standby":  New(new(lender).options()),
		"too many": New((&lender{err: applease.ErrTooMany}).options()),
		"several":  New(new(lender).options("x", "y")),
		"full":     full.handler(),
		"stuck":    New(late),
	} {
		for _, method := range leaseMethods {
			for _, query := range []string{"", "?lease=known", "?lease=x", "?group=nothing", "?wait=1h", "?bound=1", "?wait=1s&wait=2s", "?%zz"} {
				rec := overUnix(handler, method, leasePath+query)
				got[fmt.Sprintf("%s %s %d %s%s", method, leasePath, rec.Code, name, query)] = rec.Result()
			}
		}
	}
	return got
}

func TestLeaseRequests(t *testing.T) {
	end := boottime.Now() + time.Hour
	l := &lender{answer: applease.Answer{ID: "x", Term: 8, Value: "v", End: end, Stop: true}}
	handler := New(l.options())
	rec := overUnix(handler, "GET", leasePath+"?lease=y&wait=1m&bound=true")
	var r leaseResponse
	if err := json.Unmarshal(rec.Body.Bytes(), &r); err != nil || rec.Code != 200 {
		t.Fatal(rec.Code, rec.Body, err)
	}
	if !r.Leading || !r.Stop || r.Lease != "x" || r.Token != 8 || r.Value != "v" || r.LeaseEnd != int64(end) || r.LeaseEnd-r.Boottime != r.LeaseLeft || r.Node != "a" {
		t.Errorf("%s", rec.Body)
	}
	if q := l.asked; q.ID != "y" || q.Wait != time.Minute || !q.Bound || q.Process.Pid != 77 {
		t.Errorf("asked %+v", q)
	}
	l.answer = applease.Answer{ID: "x", Term: 8, End: boottime.Now() - time.Second, Stop: true}
	if rec := overUnix(handler, "GET", leasePath); json.Unmarshal(rec.Body.Bytes(), &r) != nil || r.Leading || r.LeaseLeft != 0 {
		t.Errorf("without time left: %s", rec.Body)
	}
	several := New(new(lender).options("db", "ingest/0", "ingest/1"))
	for query, want := range map[string]int{
		"": 400, "?group=db": 200, "?group=ingest/1": 200, "?group=ingest": 400, "?group=ingest/2": 404, "?group=db&wait=61s": 400, "?group=db&wait=-1s": 400,
	} {
		if rec := overUnix(several, "GET", leasePath+query); rec.Code != want {
			t.Errorf("%s: %d %s, want %d", query, rec.Code, rec.Body, want)
		}
	}
	for id, want := range map[string]int{"known": 200, "other": 404} {
		if rec := overUnix(handler, "DELETE", leasePath+"?lease="+id); rec.Code != want {
			t.Errorf("return of %s: %d %s", id, rec.Code, rec.Body)
		}
	}
	// Another host measures time with another clock, and nothing is known of its processes.
	for _, method := range leaseMethods {
		if rec := serveRequest(handler, method, leasePath); rec.Code != 403 {
			t.Errorf("%s over TCP: %d %s", method, rec.Code, rec.Body)
		}
	}
	for method, want := range map[string]int{"HEAD": 405, "POST": 405} {
		if rec := overUnix(handler, method, leasePath); rec.Code != want {
			t.Errorf("%s: %d", method, rec.Code)
		}
	}
}

// Requests that wait have a quota of their own, which clients of the port cannot use up; returning a lease does not
// wait for it.
func TestWaitingRequestsKeepNobodyOut(t *testing.T) {
	a := newAPI(new(lender).options())
	a.leaseQuota = newQuota(0, 0)
	if rec := overUnix(a.handler(), "GET", leasePath); rec.Code != 503 || rec.Header().Get("Retry-After") == "" {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	for _, r := range []struct{ method, path string }{{"DELETE", leasePath + "?lease=known"}, {"GET", "/v1/status"}} {
		if rec := overUnix(a.handler(), r.method, r.path); rec.Code != 200 {
			t.Errorf("%s %s: %d", r.method, r.path, rec.Code)
		}
	}
	if rec := serveRequest(a.handler(), "GET", leasePath); rec.Code != 403 {
		t.Errorf("over TCP: %d", rec.Code)
	}
}

// A request over a real socket waits for longer than others may take, and names the process at the other end.
func TestALeaseRequestMayTakeLong(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	opt := optionsWithGroup()
	only(opt).ApplicationLease = func(ctx context.Context, r applease.Request) (applease.Answer, error) {
		fd, err := r.Process.Open()
		if err != nil || r.Process.Pid != os.Getpid() {
			return applease.Answer{}, fmt.Errorf("process %d: %w", r.Process.Pid, err)
		}
		defer unix.Close(fd)
		select {
		case <-ctx.Done():
			return applease.Answer{}, errors.New("the client is gone")
		case <-time.After(r.Wait):
			return applease.Answer{ID: "x", Term: 7, End: boottime.Now() + time.Hour}, nil
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- serveAt(ctx, "unix:"+path, New(opt)) }()
	defer func() {
		cancel()
		<-done
	}()
	fetch(t, overSocket(path), "http://x/leader")
	resp, err := overSocket(path).Get("http://x" + leasePath + "?wait=11s")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 200 {
		t.Errorf("%d %s, %v", resp.StatusCode, body, err)
	}
}
