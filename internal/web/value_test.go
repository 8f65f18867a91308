package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"zkelectd/internal/cluster"
)

// putValue sends a value as from a unix socket.
func putValue(handler http.Handler, path, value string) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	r := httptest.NewRequest("PUT", path, strings.NewReader(value))
	conn := &limitedConn{limiter: &connLimiter{}, peer: &unix.Ucred{Pid: 77}}
	handler.ServeHTTP(rec, r.WithContext(context.WithValue(r.Context(), connKey{}, conn)))
	return rec
}

// published is what a group was asked to publish.
type published struct {
	term  int64
	value string
}

// publishing returns the options of a daemon that leads in term 7.
func publishing(to *published, names ...string) Options {
	opt := optionsWithGroup()
	if len(names) > 0 {
		opt = severalGroups(names...)
	}
	for _, g := range opt.Groups() {
		g.PublishValue = func(term int64, value string) error {
			if term != 0 && term != 7 {
				return errors.New("not in that term")
			}
			*to = published{term, value}
			return nil
		}
	}
	return opt
}

// valueResponses returns every response that the paths of values can give.
func valueResponses() map[string]*http.Response {
	late := publishing(new(published))
	only(late).View = stuck
	full := newAPI(publishing(new(published)))
	full.requestQuota = newQuota(0, 0)
	got := make(map[string]*http.Response)
	for name, handler := range map[string]http.Handler{
		"leader": New(publishing(new(published))), "stuck": New(late), "several": New(publishing(new(published), "c", "x")), "full": full.handler(),
	} {
		for _, path := range []string{"/v1/value", groupPath("/v1/value")} {
			for i, value := range []string{"", "a", "a\n", strings.Repeat("a", cluster.MaxValue+1)} {
				for _, query := range []string{"", "?term=7", "?term=6", "?term=x"} {
					rec := putValue(handler, strings.Replace(path, "{group}", "c", 1)+query, value)
					got[fmt.Sprintf("PUT %s %d %s %d%s", path, rec.Code, name, i, query)] = rec.Result()
				}
			}
			rec := putValue(handler, strings.Replace(path, "{group}", "nothing", 1), "a")
			got[fmt.Sprintf("PUT %s %d %s nothing", path, rec.Code, name)] = rec.Result()
		}
	}
	return got
}

// Programs on the host publish what clients may know of the leader.
func TestValuesAreTakenFromTheHostOnly(t *testing.T) {
	var got published
	handler := New(publishing(&got))
	full := strings.Repeat("é", cluster.MaxValue/2)
	for _, c := range []struct {
		query, value string
		code         int
		want         published
	}{
		{"", "tcp://a:1?x=y", 202, published{0, "tcp://a:1?x=y"}},
		{"?term=7", full, 202, published{7, full}},
		{"", "", 202, published{}},
		{"?term=6", "a", 409, published{}},
		{"?term=-7", "a", 400, published{}},
		{"?term=", "a", 400, published{}},
		{"", full + "a", 413, published{}},
		{"", "a\x00", 400, published{}},
		{"", "\xff", 400, published{}},
	} {
		got = published{}
		rec := putValue(handler, "/v1/value"+c.query, c.value)
		if rec.Code != c.code || got != c.want {
			t.Errorf("%s %.20q: %d %s, published %.30v", c.query, c.value, rec.Code, rec.Body, got)
		}
	}
	if rec := putValue(New(publishing(&got, "db", "ingest/0")), groupsPath+"/ingest/0/value", "x"); rec.Code != 202 || got.value != "x" {
		t.Errorf("for a slot: %d %s", rec.Code, rec.Body)
	}
	got = published{}
	rec := httptest.NewRecorder()
	handler.ServeHTTP(rec, httptest.NewRequest("PUT", "/v1/value", strings.NewReader("a")))
	if rec.Code != 403 || got != (published{}) {
		t.Errorf("over TCP: %d %s", rec.Code, rec.Body)
	}
	if rec := putValue(handler, "/v1/lease", "a"); rec.Code != 400 {
		t.Errorf("PUT elsewhere: %d", rec.Code)
	}
}
