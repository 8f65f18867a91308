package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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
		v.Elector, v.Note, v.Holder = true, "policy.observe is set: c would be elected: a is gone", &status.Holder{Node: "b", State: "READY", Term: 7}
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
	if g := body.Groups[1]; g.Leads || !g.Elector || g.Holder.Node != "b" || !slices.Equal(g.Problems, []string{"policy.observe is set: c would be elected: a is gone"}) {
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

// A slot has its own paths. Requests that concern all slots name the group alone.
func TestEachSlotHasItsOwnPaths(t *testing.T) {
	handler := New(severalGroups("billing", "ingest/0", "ingest/1", "ingest/10"))
	for path, want := range map[string]string{
		"/v1/groups/ingest/1/leader": "ingest/1", "/v1/groups/ingest%2F1/leader": "ingest/1", "/v1/groups/ingest/10/status": "ingest/10",
		"/v1/groups/ingest/0/explain": "ingest/0", "/v1/groups/ingest/0/readyz": "ingest/0", "/v1/groups/billing/status": "billing",
	} {
		if code, body := responseOf(t, handler, "GET", path); code != 200 || body["group"] != want {
			t.Errorf("%s: %d %v", path, code, body)
		}
	}
	for path, want := range map[string]int{
		"/v1/groups/ingest/2/leader": 404, "/v1/groups/ingest/01/leader": 404, "/v1/groups/billing/0/leader": 404, "/v1/groups/ingest/0/1/leader": 404,
		"/v1/groups/ingest/status": 400, "/v1/groups/ingest/leader": 400, "/v1/groups/ingest/0": 404, "/v1/groups/inges/status": 404,
	} {
		code, body := responseOf(t, handler, "GET", path)
		if text, _ := body["error"].(string); code != want || code == 400 && !strings.Contains(text, "name one, as in /v1/groups/ingest/0;") {
			t.Errorf("%s: %d %v, want %d", path, code, body, want)
		}
	}
}

// Each kind of request is accepted either for a slot or for the whole group.
func TestRequestsOfSlotsAndGroups(t *testing.T) {
	for _, kind := range request.Kinds() {
		for path, ofSlot := range map[string]bool{"/v1/groups/ingest/1/": true, "/v1/groups/ingest%2F1/": true, "/v1/groups/ingest/": false} {
			opt := severalGroups("ingest/0", "ingest/1")
			opt.Authenticator = authenticatorOf(t, "ann:"+annsToken+" ingest")
			rec := sendRequestTo(New(opt), path+string(kind), shortestBody(kind))
			want := http.StatusBadRequest
			if kind.OfSlot() == ofSlot {
				want = http.StatusOK
			}
			name := `"group":"ingest"`
			if ofSlot {
				name = `"group":"ingest/1"`
			}
			if rec.Code != want || want == http.StatusOK && !strings.Contains(rec.Body.String(), name) {
				t.Errorf("%s%s: %d %s, want %d", path, kind, rec.Code, rec.Body, want)
			}
		}
	}
}

func membersOf(t *testing.T, handler http.Handler) map[string]groupReading {
	t.Helper()
	rec := serveRequest(handler, "GET", "/v1/groups?members=1")
	var body groupsResponse
	if err := json.Unmarshal(rec.Body.Bytes(), &body); err != nil || rec.Code != 200 {
		t.Fatalf("%d %s: %v", rec.Code, rec.Body, err)
	}
	all := make(map[string]groupReading)
	for _, g := range body.Groups {
		if g.Read != nil {
			all[g.Group] = *g.Read
		}
	}
	return all
}

func TestMembersAreListed(t *testing.T) {
	opt := severalGroups("billing", "db")
	all := opt.Groups()
	all[0].Group = func(context.Context) (status.Group, error) {
		return status.Group{Leader: "n2", State: "READY", Problems: []string{"drift"}, Members: []status.Member{
			{Node: "n2", Site: "dc2", Roles: []string{"leader"}, Eligible: "yes"}, {Node: "n1", Site: "dc1", Roles: []string{"elector"}, Eligible: "excluded"},
		}}, nil
	}
	all[1].Group = func(context.Context) (status.Group, error) { return status.Group{}, errDown }
	rec := serveRequest(New(opt), "GET", "/v1/groups?members=1")
	var body groupsResponse
	if err := json.Unmarshal(rec.Body.Bytes(), &body); err != nil || len(body.Groups) != 2 {
		t.Fatalf("%d %s: %v", rec.Code, rec.Body, err)
	}
	if got := fmt.Sprint(body.Hosts); got != "[{n1 dc1} {n2 dc2}]" {
		t.Errorf("hosts: %s", got)
	}
	r := body.Groups[0].Read
	if r.Leader != "n2" || r.State != "READY" || len(r.Problems) != 1 || r.Error != "" || fmt.Sprint(r.Members) != "[{n1 [elector] excluded } {n2 [leader]  }]" {
		t.Errorf("%+v", r)
	}
	if r := body.Groups[1].Read; r.Error != errDown.Error() || r.Members == nil {
		t.Errorf("%+v", r)
	}
	if len(membersOf(t, New(severalGroups("x")))) != 1 {
		t.Error("a daemon with one group does not list its members")
	}
	if rec := serveRequest(New(opt), "GET", "/v1/groups"); json.Unmarshal(rec.Body.Bytes(), &body) != nil || body.Groups[0].Read != nil && rec.Body.Len() > 2000 {
		t.Errorf("without the parameter: %s", rec.Body)
	}
}

// However many clients ask, each group is read at most once in an interval, and only a few at a time.
func TestReadsOfMembersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads, active, most atomic.Int64
		names := make([]string, 200)
		for i := range names {
			names[i] = fmt.Sprint(i)
		}
		opt := severalGroups(names...)
		for _, g := range opt.Groups() {
			g.Group = func(context.Context) (status.Group, error) {
				n := active.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				reads.Add(1)
				<-time.After(time.Millisecond)
				active.Add(-1)
				return status.Group{State: "READY"}, nil
			}
		}
		cache := newMemberCache()
		ask := func() {
			var clients sync.WaitGroup
			for range 8 {
				clients.Go(func() {
					if got := cache.read(t.Context(), opt.Groups()); len(got) != len(names) {
						t.Errorf("%d groups", len(got))
					}
				})
			}
			clients.Wait()
		}
		began := time.Now()
		for time.Since(began) < 3500*time.Millisecond {
			ask()
			<-time.After(100 * time.Millisecond)
		}
		if reads.Load() != int64(len(names)) || most.Load() > maxMemberReads {
			t.Errorf("%d reads within an interval, %d at a time", reads.Load(), most.Load())
		}
		<-time.After(membersInterval(len(names)))
		ask()
		if reads.Load() != int64(2*len(names)) {
			t.Errorf("%d reads after the interval", reads.Load())
		}
		opt.Groups()[0].Name = "renamed"
		if got := cache.read(t.Context(), opt.Groups()); len(got) != len(names) || got["0"].State != "" {
			t.Errorf("%d groups after one was removed", len(got))
		}
	})
}

// Groups that do not answer keep no others from being read, and their old members are kept.
func TestSlowGroupsDoNotDelayOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names := make([]string, 3*maxMemberReads)
		for i := range names {
			names[i] = fmt.Sprint(i)
		}
		opt := severalGroups(names...)
		var hang atomic.Bool
		for i, g := range opt.Groups() {
			g.Group = func(ctx context.Context) (status.Group, error) {
				if i < maxMemberReads && hang.Load() {
					<-ctx.Done()
					return status.Group{}, ctx.Err()
				}
				return status.Group{State: fmt.Sprint(hang.Load())}, nil
			}
		}
		cache := newMemberCache()
		cache.read(t.Context(), opt.Groups())
		hang.Store(true)
		for range 3 {
			<-time.After(membersInterval(len(names)))
			cache.read(t.Context(), opt.Groups())
		}
		for i, name := range names {
			r := cache.readings[name]
			if hung := i < maxMemberReads; hung != (r.Error != "") || hung != (r.State == "false") {
				t.Errorf("%s: %+v", name, r)
			}
		}
		// A client that has gone says nothing about the groups.
		gone, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("gone"))
		<-time.After(membersInterval(len(names)))
		if r := cache.read(gone, opt.Groups())[names[5]]; r.Error != "" {
			t.Errorf("%+v", r)
		}
	})
}

// While groups do not answer, one request waits for them. The others get what was read before, and use up no quota.
func TestOneRequestWaitsForSlowGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opt := severalGroups("a", "b")
		var hang atomic.Bool
		for _, g := range opt.Groups() {
			g.Group = func(ctx context.Context) (status.Group, error) {
				if hang.Load() {
					<-ctx.Done()
				}
				return status.Group{State: "READY"}, ctx.Err()
			}
		}
		handler := New(opt)
		get := func() int { return serveRequest(handler, "GET", groupsPath+"?members=1").Code }
		get()
		hang.Store(true)
		<-time.After(membersInterval(2))
		first := make(chan int)
		go func() { first <- get() }()
		synctest.Wait()
		for n := range 2 * maxClientGroupReads {
			if began := time.Now(); get() != http.StatusOK || time.Since(began) != 0 {
				t.Errorf("request %d after the first one waits for %s", n, time.Since(began))
			}
		}
		<-first
	})
}
