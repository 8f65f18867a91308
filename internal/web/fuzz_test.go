package web

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"zkelectd/internal/operator/status"
)

// For any request, valid or not: a standby is never the leader, and each response is short and safe to display.
func FuzzRequest(f *testing.F) {
	for _, text := range []string{
		"GET /leader HTTP/1.1\r\nHost: a\r\n\r\n", "HEAD //leader/../leader HTTP/1.0\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /v1/events HTTP/1.1\r\nHost: a\r\nLast-Event-ID: 7-3\r\n\r\n", "GET /metrics?x=%zz HTTP/1.1\r\nHost: a\r\nAccept: text/plain\r\n\r\n",
		"POST /leader HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", "GET http://b/%2e%2e/health HTTP/1.1\r\nHost: a\r\n\r\n",
	} {
		f.Add(text)
	}
	handler := New(optionsOf(Group{View: standby, Feed: status.NewFeed()}))
	over, cancel := context.WithCancel(context.Background())
	cancel()
	f.Fuzz(func(t *testing.T, text string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
		if err != nil {
			return
		}
		rec := httptest.NewRecorder()
		handler.ServeHTTP(rec, r.WithContext(over)) // ends event streams at once
		if r.URL.Path == "/leader" && rec.Code == http.StatusOK {
			t.Errorf("%q: %s", text, rec.Body)
		}
		if rec.Code < 200 || rec.Code > 599 || rec.Body.Len() > 64<<10 {
			t.Errorf("%q: %d, %d bytes", text, rec.Code, rec.Body.Len())
		}
		if rec.Header().Get("X-Content-Type-Options") != "nosniff" || rec.Header().Get("Content-Security-Policy") == "" {
			t.Errorf("%q: %v", text, rec.Header())
		}
		if rec.Header().Get("Content-Type") == "application/json" && r.Method != http.MethodHead && !json.Valid(rec.Body.Bytes()) {
			t.Errorf("%q: %s", text, rec.Body)
		}
	})
}
