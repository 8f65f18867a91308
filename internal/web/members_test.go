package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"zkelectd/internal/operator/status"
)

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
