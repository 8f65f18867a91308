package web

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/request"
	"zkelectd/internal/operator/status"
)

// severalGroups returns the options of node a with several groups, each of which it leads.
func severalGroups(names ...string) Options {
	var all []*Group
	for _, name := range names {
		g := *only(optionsWithGroup())
		g.Name, g.Submit = name, accept
		all = append(all, &g)
	}
	return Options{Node: "a", Groups: func() []*Group { return all }, Totals: someTotals, Version: "v1"}
}

func responseOf(t *testing.T, handler http.Handler, method, path string) (code int, body map[string]any) {
	t.Helper()
	rec := serveRequest(handler, method, path)
	if err := json.Unmarshal(rec.Body.Bytes(), &body); err != nil {
		t.Fatalf("%s %s: %d %s: %v", method, path, rec.Code, rec.Body, err)
	}
	return rec.Code, body
}

func TestEachGroupHasItsOwnPaths(t *testing.T) {
	opt := severalGroups("billing", "db")
	all := opt.Groups()
	all[1].View = func() status.Daemon { return standby() }
	handler := New(opt)
	for path, want := range map[string]int{
		"/v1/groups/billing/leader": 200, "/v1/groups/db/leader": 503, "/v1/groups/db/replica": 200, "/v1/groups/billing/status": 200,
		"/v1/groups/db/history": 200, "/v1/groups/db/explain": 200, "/v1/groups/db/livez": 200, "/v1/groups/db/readyz": 200, "/v1/groups/db/health": 200,
	} {
		code, body := responseOf(t, handler, "GET", path)
		if group := strings.Split(path, "/")[3]; code != want || body["group"] != group || body["node"] != "a" || body["term"] != 7.0 {
			t.Errorf("%s: %d %v, want %d", path, code, body, want)
		}
	}
	// A daemon with one group serves it at both paths.
	for _, path := range []string{"/leader", "/v1/groups/c/leader"} {
		if code, body := responseOf(t, New(optionsWithGroup()), "GET", path); code != 200 || body["group"] != "c" || body["root"] != leader().Root {
			t.Errorf("%s: %d %v", path, code, body)
		}
	}
}

// A request about one of several groups must name it, and is never served from another one.
func TestSeveralGroupsNeedAName(t *testing.T) {
	handler := New(severalGroups("billing", "db"))
	for _, path := range []string{"/leader", "/heir", "/replica", "/health", "/v1/status", "/v1/history", "/v1/explain", "/v1/events"} {
		code, body := responseOf(t, handler, "GET", path)
		short := strings.TrimPrefix(strings.TrimPrefix(path, "/v1"), "/")
		if text, _ := body["error"].(string); code != 400 || !strings.Contains(text, "2 groups: use /v1/groups/{group}/"+short+",") || body["term"] != nil || body["answer"] != nil {
			t.Errorf("%s: %d %v", path, code, body)
		}
	}
	long := strings.Repeat("x", 4000)
	for _, name := range []string{"nothing", "BILLING", "billing%2Fleader", "%2e%2e", long, "%3Cscript%3E"} {
		for _, path := range []string{"leader", "livez", "status", "events"} {
			rec := serveRequest(handler, "GET", "/v1/groups/"+name+"/"+path)
			if rec.Code != 404 || rec.Body.Len() > 300 || strings.Contains(rec.Body.String(), "script") || strings.Contains(rec.Body.String(), "nothing") {
				t.Errorf("%.20s %s: %d, %d bytes: %s", name, path, rec.Code, rec.Body.Len(), rec.Body)
			}
		}
	}
	for _, path := range []string{"/v1/groups/", "/v1/groups/billing", "/v1/groups/billing/", "/v1/groups/billing/nothing", "/v1/groups/billing/metrics", "/v1/groups/billing/v1/status"} {
		if code, body := responseOf(t, handler, "GET", path); code != 404 {
			t.Errorf("%s: %d %v", path, code, body)
		}
	}
}

func TestRequestsReachTheirGroup(t *testing.T) {
	opt := severalGroups("billing", "db")
	opt.Authenticator = authenticatorOf(t, "ann:"+annsToken)
	handler := New(opt)
	for path, want := range map[string]int{"/v1/groups/db/reelect": 200, "/v1/reelect": 400, "/v1/groups/other/reelect": 404} {
		rec := sendRequestTo(handler, path, "{}")
		if rec.Code != want {
			t.Errorf("%s: %d %s, want %d", path, rec.Code, rec.Body, want)
		}
		if want != 200 && rec.Header().Get("Connection") != "close" {
			t.Errorf("%s: the connection stays open with the body unread", path)
		}
	}
	if rec := sendRequestTo(handler, "/v1/groups/db/status", "{}"); rec.Code != 400 {
		t.Errorf("a body that no handler reads: %d %s", rec.Code, rec.Body)
	}
	opt.Groups()[0].Submit = failing(&request.RefusedError{Err: errDown})
	if rec := sendRequestTo(handler, "/v1/groups/billing/reelect", "{}"); rec.Code != 409 || !strings.Contains(rec.Body.String(), `"group":"billing"`) {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
}

func TestGroupsAreListed(t *testing.T) {
	opt := severalGroups("billing", "db", "ingest")
	opt.Groups()[1].View = func() status.Daemon {
		v := standby()
		v.Elector, v.Note, v.Holder = true, "all are excluded", &status.Holder{Node: "b", State: "READY", Term: 7}
		return v
	}
	opt.Groups()[2].View = func() status.Daemon {
		return status.Daemon{Node: "a", Root: "/i", Session: true, Membership: status.MembershipRefused, MembershipReason: "two hosts disagree"}
	}
	rec := serveRequest(New(opt), "GET", "/v1/groups")
	var body groupsResponse
	if err := json.Unmarshal(rec.Body.Bytes(), &body); err != nil || rec.Code != 200 || len(body.Groups) != 3 || body.State != "running" || body.Node != "a" {
		t.Fatalf("%d %s (%v)", rec.Code, rec.Body, err)
	}
	if g := body.Groups[0]; g.Group != "billing" || !g.Leads || g.State != "leading" || g.Elected != "a" || g.Term != 7 || len(g.Problems) > 0 {
		t.Errorf("%+v", g)
	}
	if g := body.Groups[1]; g.Leads || !g.Elector || g.Holder.Node != "b" || !slices.Equal(g.Problems, []string{"no member is eligible: all are excluded"}) {
		t.Errorf("%+v", g)
	}
	if g := body.Groups[2]; g.State != "refused" || !slices.Equal(g.Problems, []string{"this host is not a member of the group, but refused: two hosts disagree"}) {
		t.Errorf("%+v", g)
	}
	if _, body := responseOf(t, New(Options{Node: "a", Groups: func() []*Group { return nil }}), "GET", "/v1/groups"); body["node"] != "a" || body["groups"] == nil {
		t.Errorf("without groups: %v", body)
	}
}

// A restart would harm the groups that work, so /livez is yes while any does. /readyz is yes only if all are ready, and names the
// others.
func TestHostProbes(t *testing.T) {
	refused := func() status.Daemon {
		return status.Daemon{Node: "a", Membership: status.MembershipRefused, MembershipReason: "its root is taken"}
	}
	fine := func() status.Daemon { return standby() }
	names := []string{"g1", "g2", "g3", "g4", "g5", "g6", "g7"}
	for name, c := range map[string]struct {
		views       []func() status.Daemon
		live, ready int
		why         string
		notReady    []any
	}{
		"all are fine":     {[]func() status.Daemon{leader, fine}, 200, 200, "", nil},
		"one is stuck":     {[]func() status.Daemon{stuck, fine, fine}, 200, 503, "not ready in 1 of 3 groups: g1: the event loop has been stuck", []any{"g1"}},
		"all are stuck":    {[]func() status.Daemon{stuck, stuck}, 503, 503, "not ready in 2 of 2 groups", []any{"g1", "g2"}},
		"one is refused":   {[]func() status.Daemon{fine, refused}, 200, 503, "g2: this host is not a member of the group, but refused: its root is taken", []any{"g2"}},
		"many are refused": {slices.Repeat([]func() status.Daemon{refused}, 7), 200, 503, "; and 2 more", []any{"g1", "g2", "g3", "g4", "g5", "g6", "g7"}},
	} {
		opt := severalGroups(names[:len(c.views)]...)
		for i, view := range c.views {
			opt.Groups()[i].View = view
		}
		handler := New(opt)
		if code, body := responseOf(t, handler, "GET", "/livez"); code != c.live || body["answer"] != (c.live == 200) {
			t.Errorf("%s: /livez: %d %v", name, code, body)
		}
		code, body := responseOf(t, handler, "GET", "/readyz")
		why, _ := body["reason"].(string)
		names, _ := body["not_ready"].([]any)
		if code != c.ready || body["answer"] != (c.ready == 200) || !strings.Contains(why, c.why) || !slices.Equal(names, c.notReady) {
			t.Errorf("%s: /readyz: %d %v", name, code, body)
		}
	}
}

// The state of a host with several groups is that of none of them.
func TestHostStamp(t *testing.T) {
	connecting := func() status.Daemon { return status.Daemon{Age: cluster.Duration(5)} }
	for want, view := range map[string]func() status.Daemon{"running": leader, "connecting": connecting, "stuck": stuck} {
		opt := severalGroups("x", "y")
		for _, g := range opt.Groups() {
			g.View = view
		}
		if _, body := responseOf(t, New(opt), "GET", "/v1/whoami"); body["state"] != want || body["term"] != nil || body["group"] != nil || body["node"] != "a" {
			t.Errorf("%s: %v", want, body)
		}
	}
}

// A token that is limited to groups permits requests about these only, at both paths of a group.
func TestTokensAreLimitedToGroups(t *testing.T) {
	auth := authenticatorOf(t, "ann:"+annsToken+" billing,x", "bob:"+strings.Repeat("b", minTokenLen))
	opt := severalGroups("billing", "db", "bill")
	opt.Authenticator = auth
	handler := New(opt)
	for group, want := range map[string]int{"billing": 200, "db": 403, "bill": 403} {
		rec := sendRequestTo(handler, "/v1/groups/"+group+"/reelect", "{}")
		if rec.Code != want || want == 403 && !strings.Contains(rec.Body.String(), "this token only permits requests about the groups billing, x") {
			t.Errorf("%s: %d %s, want %d", group, rec.Code, rec.Body, want)
		}
		if rec := sendRequestTo(handler, "/v1/groups/"+group+"/reelect", "{}", "Authorization", "Bearer "+strings.Repeat("b", minTokenLen)); rec.Code != 200 {
			t.Errorf("%s by bob: %d %s", group, rec.Code, rec.Body)
		}
	}
	alone := optionsWithSubmit(t, accept) // its group is c
	alone.Authenticator = auth
	if rec := sendRequestTo(New(alone), "/v1/reelect", "{}"); rec.Code != 403 {
		t.Errorf("the only group: %d %s", rec.Code, rec.Body)
	}
	r := httptest.NewRequest("GET", "/v1/whoami", nil)
	r.Header.Set("Authorization", "Bearer "+annsToken)
	rec := httptest.NewRecorder()
	handler.ServeHTTP(rec, r)
	if !strings.Contains(rec.Body.String(), `"can_operate":true,"groups":["billing","x"]`) {
		t.Errorf("whoami: %s", rec.Body)
	}
}
