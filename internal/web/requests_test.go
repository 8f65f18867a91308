package web

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/request"
	"zkelectd/internal/operator/status"
)

const annsToken = "0123456789abcdef"

// authenticatorOf returns an authenticator with the tokens in lines.
func authenticatorOf(t testing.TB, lines ...string) *Authenticator {
	t.Helper()
	var tokens Tokens
	for _, line := range lines {
		if err := tokens.add(line); err != nil {
			t.Fatal(err)
		}
	}
	g := NewAuthenticator(Config{}, slog.New(slog.DiscardHandler))
	g.SetTokens(tokens)
	return g
}

// optionsWithSubmit returns the options of a daemon that accepts operator requests from ann.
func optionsWithSubmit(t testing.TB, give func(context.Context, request.Request) (request.Plan, error)) Options {
	opt := optionsWithGroup()
	opt.Authenticator, only(opt).Submit = authenticatorOf(t, "ann:"+annsToken), give
	return opt
}

func accept(context.Context, request.Request) (request.Plan, error) {
	return request.Plan{ID: 7, Messages: []string{"done"}}, nil
}

func failing(err error) func(context.Context, request.Request) (request.Plan, error) {
	return func(context.Context, request.Request) (request.Plan, error) { return request.Plan{}, err }
}

// sendRequest sends an operator request, with changed headers.
func sendRequest(handler http.Handler, kind request.Kind, body string, headers ...string) *httptest.ResponseRecorder {
	return sendRequestTo(handler, "/v1/"+string(kind), body, headers...)
}

func sendRequestTo(handler http.Handler, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+annsToken)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	rec := httptest.NewRecorder()
	handler.ServeHTTP(rec, r)
	return rec
}

// shortestBody returns the shortest valid body of a kind.
func shortestBody(kind request.Kind) string {
	if kind.Takes(request.FieldNode) {
		return `{"node":"b"}`
	}
	return "{}"
}

// allSubmitResponses returns every response to an operator request.
func allSubmitResponses(t *testing.T) map[string]*http.Response {
	t.Helper()
	got := make(map[string]*http.Response)
	late := optionsWithSubmit(t, accept)
	only(late).View = stuck
	full := newAPI(optionsWithSubmit(t, accept))
	full.submissions = newQuota(0, 0)
	handlers := map[string]http.Handler{
		"given":   New(optionsWithSubmit(t, accept)),
		"refused": New(optionsWithSubmit(t, failing(&request.RefusedError{Err: errors.New("b may not lead")}))),
		"down":    New(optionsWithSubmit(t, failing(errDown))),
		"unknown": New(optionsWithSubmit(t, failing(cluster.ErrUnknown))),
		"stuck":   New(late),
		"full":    full.handler(),
		"nobody":  New(optionsWithGroup()),
	}
	several := optionsWithSubmit(t, accept)
	several.Groups = severalGroups("x", "y").Groups
	handlers["several"] = New(several)
	for _, kind := range request.Kinds() {
		paths := []string{"/v1/" + string(kind), groupPath("/v1/" + string(kind))}
		if slices.Contains(kindsOfHosts, kind) {
			paths = append(paths, groupsPath+"/"+string(kind))
		}
		for _, path := range paths {
			add := func(name string, handler http.Handler, body string, headers ...string) {
				rec := sendRequestTo(handler, strings.Replace(path, "{group}", "c", 1), body, headers...)
				got[fmt.Sprintf("POST %s %d %s", path, rec.Code, name)] = rec.Result()
			}
			for name, handler := range handlers {
				add(name, handler, shortestBody(kind))
			}
			for name, headers := range map[string][]string{
				"wrong token": {"Authorization", "Bearer wrong-wrong-wrong"}, "no token": {"Authorization", ""},
				"cross origin": {"Sec-Fetch-Site", "cross-site"}, "no JSON": {"Content-Type", "text/plain"},
			} {
				add(name, New(optionsWithSubmit(t, accept)), shortestBody(kind), headers...)
			}
			add("slip", handlers["given"], "{")
			add("large", handlers["given"], `{"reason":"`+strings.Repeat("x", maxBody)+`"}`)
		}
	}
	return got
}

func TestOnlyOperatorsMaySubmitRequests(t *testing.T) {
	var asked []request.Request
	handler := New(optionsWithSubmit(t, func(_ context.Context, r request.Request) (request.Plan, error) {
		asked = append(asked, r)
		return accept(t.Context(), r)
	}))
	for _, kind := range request.Kinds() {
		asked = nil
		rec := sendRequest(handler, kind, shortestBody(kind))
		if rec.Code != 200 || !strings.Contains(rec.Body.String(), `"request":7,"messages":["done"],"by":"ann"}`) || len(asked) != 1 ||
			asked[0].Kind != kind || asked[0].Options.By != "ann" {
			t.Errorf("%s: %d %s, submitted %+v", kind, rec.Code, rec.Body, asked)
		}
	}
	asked = nil
	for name, c := range map[string]struct {
		headers []string
		code    int
	}{
		"no token":                {[]string{"Authorization", ""}, 401},
		"a wrong token":           {[]string{"Authorization", "Bearer " + annsToken + "0"}, 401},
		"a token's beginning":     {[]string{"Authorization", "Bearer " + annsToken[:15]}, 401},
		"an empty token":          {[]string{"Authorization", "Bearer "}, 401},
		"a name":                  {[]string{"Authorization", "Bearer ann"}, 401},
		"an unknown password":     {[]string{"Authorization", "Basic YW5uOmFubg=="}, 401},
		"another site's page":     {[]string{"Sec-Fetch-Site", "cross-site"}, 403},
		"another origin":          {[]string{"Origin", "https://evil.example"}, 403},
		"a form":                  {[]string{"Content-Type", "application/x-www-form-urlencoded"}, 415},
		"text":                    {[]string{"Content-Type", "text/plain; charset=application/json"}, 415},
		"no content type":         {[]string{"Content-Type", ""}, 415},
		"the daemon's own origin": {[]string{"Origin", "http://example.com", "Content-Type", "application/json; charset=utf-8"}, 200},
	} {
		rec := sendRequest(handler, request.KindReelect, "{}", c.headers...)
		if rec.Code != c.code || (c.code == 401) != strings.HasPrefix(rec.Header().Get("WWW-Authenticate"), "Bearer ") || strings.Contains(rec.Body.String(), annsToken) {
			t.Errorf("%s: %d %v %s", name, rec.Code, rec.Header(), rec.Body)
		}
	}
	if len(asked) != 1 {
		t.Errorf("%d requests reached the daemon", len(asked))
	}
}

// No part of a body is ignored: a misspelled field would change the meaning of the request.
func TestRequestBodies(t *testing.T) {
	for body, want := range map[string]string{
		``:                                 "the body is not a JSON object",
		`[]`:                               "the body is not a JSON object",
		`{"node"}`:                         "node: must be a string",
		`{"node":"b"`:                      "the body is not JSON",
		`{"node":"b"}{}`:                   "more text after the JSON object",
		`{"node":"b","Site":"x"}`:          `move has no field "Site"`,
		`{"node":"b","hard":true}`:         `move has no field "hard"`,
		`{"node":"b","node":"c"}`:          "node: appears twice",
		`{"node":"b","site":"dc1"}`:        "name exactly one of node and site",
		`{"node":"b","force":"yes"}`:       "force: must be true or false",
		`{"node":"b","for":7200}`:          "for: must be a duration",
		`{"node":"b","for":"0s"}`:          "for: must be more than 0s",
		`{"node":"b","for":"9999999999h"}`: "for: must be a duration",
		`{"node":"b","reason":["x"]}`:      "reason: must be a string",
		`{"node":"b","reason":"` + long(501) + `"}`:   "the reason has 501 bytes: at most 500",
		`{"node":` + strings.Repeat("[", 40000) + `}`: "node: must be a string",
	} {
		rec := sendRequest(New(optionsWithSubmit(t, accept)), request.KindMove, body)
		if rec.Code != 400 || !strings.Contains(rec.Body.String(), strings.ReplaceAll(want, `"`, `\"`)) {
			t.Errorf("%.60s: %d %s, want %s", body, rec.Code, rec.Body, want)
		}
	}
	for _, c := range []struct {
		kind request.Kind
		body string
		want request.Request
	}{
		{"move", `{"site":"dc2","for":"2h","reason":"` + long(500) + `","force":true}`, request.Request{Site: "dc2", Options: request.Options{Reason: long(500), For: 2 * 3600e9, Force: true}}},
		{"move", `{}`, request.Request{Best: true}},
		{"pause", ` {"hard":true} `, request.Request{Hard: true}},
		{"uncordon", `{"all":true}`, request.Request{All: true}},
		{"clear-strikes", `{"node":"b"}`, request.Request{Node: "b"}},
	} {
		c.want.Kind = c.kind
		if got, err := decodeRequest(c.kind, []byte(c.body)); err != nil || got != c.want {
			t.Errorf("%s %s: %+v %v", c.kind, c.body, got, err)
		}
	}
}

func long(n int) string { return strings.Repeat("x", n) }

func FuzzRequestBody(f *testing.F) {
	for _, kind := range request.Kinds() {
		f.Add(string(kind), shortestBody(kind))
	}
	f.Add("move", `{"site":"dc2","for":"2h","reason":"why","force":true}`)
	f.Add("pause", `{"hard":true,"for":"1ns"}`)
	f.Fuzz(func(t *testing.T, kind, body string) {
		r, err := decodeRequest(request.Kind(kind), []byte(body))
		if err != nil {
			return
		}
		if r.Check() != nil || r.Options.For < 0 || r.Options.By != "" || len(r.Options.Reason) > request.MaxReason ||
			(r.Hard && !r.Kind.Takes(request.FieldHard)) || (r.Options.Force && !r.Kind.Takes(request.FieldForce)) {
			t.Errorf("%s %q: %+v", kind, body, r)
		}
	})
}

func TestWhoami(t *testing.T) {
	handler := New(optionsWithSubmit(t, accept))
	for authorization, want := range map[string]string{
		"Bearer " + annsToken: `"name":"ann","how":"token","can_operate":true}`,
		"bearer " + annsToken: `"name":"ann","how":"token","can_operate":true}`,
		"Bearer wrong":        `"name":"","how":"","can_operate":false,"reason":"this token is not in http.token_file"}`,
		"":                    `"name":"","how":"","can_operate":false,"reason":"operator requests need a token`,
	} {
		r := httptest.NewRequest("GET", "/v1/whoami", nil)
		r.Header.Set("Authorization", authorization)
		rec := httptest.NewRecorder()
		handler.ServeHTTP(rec, r)
		if rec.Code != 200 || !strings.Contains(rec.Body.String(), want) {
			t.Errorf("%q: %d %s", authorization, rec.Code, rec.Body)
		}
	}
}

// A stuck loop may have lost everything, so no request is accepted based on its last view.
func TestStuckDaemonAcceptsNoRequests(t *testing.T) {
	opt := optionsWithSubmit(t, func(context.Context, request.Request) (request.Plan, error) {
		t.Error("the request reached the daemon")
		return request.Plan{}, nil
	})
	only(opt).View = func() status.Daemon { return stuck() }
	if rec := sendRequest(New(opt), request.KindReelect, "{}"); rec.Code != 503 || !strings.Contains(rec.Body.String(), "the event loop has been stuck") {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
}

// A request for a host in all groups says what has become of it in each. Groups that it does not affect are no failure; those that a token does
// not permit are refused.
func TestRequestForAHostInAllGroups(t *testing.T) {
	opt := severalGroups("billing", "mail", "slots/0", "slots/1")
	all := opt.Groups()
	var asked atomic.Int32
	answer := func(i int, err error) {
		all[i].Submit = func(_ context.Context, r request.Request) (request.Plan, error) {
			asked.Add(1)
			if r.Kind != request.KindDrain || r.Node != "b" || r.Options.By != "ann" || r.Options.For != time.Hour {
				t.Errorf("submitted %+v", r)
			}
			return request.Plan{ID: int64(i), Messages: []string{"done"}}, err
		}
	}
	for i := range all {
		answer(i, nil)
	}
	answer(0, &request.RefusedError{Err: &request.NotAffectedError{Reason: "b is no member"}})
	send := func(line string) *httptest.ResponseRecorder {
		asked.Store(0)
		opt.Authenticator = authenticatorOf(t, line)
		return sendRequestTo(New(opt), "/v1/groups/drain", `{"node":"b","for":"1h"}`)
	}
	check := func(rec *httptest.ResponseRecorder, code int, want string, submitted int32) {
		t.Helper()
		if rec.Code != code || !strings.Contains(rec.Body.String(), want) || asked.Load() != submitted {
			t.Errorf("%d %s, %d submitted", rec.Code, rec.Body, asked.Load())
		}
	}
	const accepted = `"groups":[{"group":"billing","messages":["b is no member"]},`
	check(send("ann:"+annsToken), 200, accepted+`{"group":"mail","request":1,"messages":["done"]},{"group":"slots","request":2,"messages":["done"]}],"by":"ann"}`, 3)
	answer(1, &request.RefusedError{Err: errors.New("nobody else may lead")})
	check(send("ann:"+annsToken), 409, accepted+`{"group":"mail","error":"nobody else may lead"},{"group":"slots","request":2,"messages":["done"]}]`, 3)
	check(send("ann:"+annsToken+" slots"), 403, `{"group":"slots","request":2,"messages":["done"]}]`, 1)
}

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
