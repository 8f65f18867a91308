package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/operator/request"
	"zkelectd/internal/operator/status"
)

// optionsOf returns the options of node a with one group, c. What g does not have fails as without ZooKeeper.
func optionsOf(g Group) Options {
	g.Name = "c"
	if g.Feed == nil {
		g.Feed = status.NewFeed()
	}
	if g.Totals == nil {
		g.Totals = func() status.Totals { return status.Totals{} }
	}
	if g.Group == nil {
		g.Group = func(context.Context) (status.Group, error) { return status.Group{}, errDown }
		g.History = func(context.Context) ([]cluster.PastTerm, error) { return nil, errDown }
		g.Explain = func(context.Context) (whatif.Explanation, error) { return whatif.Explanation{}, errDown }
		g.DryRun = func(context.Context, request.Request) ([]string, error) { return nil, errDown }
	}
	all := []*Group{&g}
	return Options{Node: "a", Groups: func() []*Group { return all }, Totals: g.Totals, Version: "v1"}
}

// only returns the only group.
func only(opt Options) *Group { return opt.Groups()[0] }

// optionsWithGroup returns the options of a daemon that knows the group.
func optionsWithGroup() Options {
	return optionsOf(Group{
		View: leader,
		Group: func(context.Context) (status.Group, error) {
			return status.Group{Root: "/c", Leader: "a", State: "READY"}, nil
		},
		History: func(context.Context) ([]cluster.PastTerm, error) {
			var all []cluster.PastTerm
			for i := range 30 {
				all = append(all, cluster.PastTerm{Term: int64(i + 1), Node: "<img onerror>"})
			}
			return all, nil
		},
		Explain: func(context.Context) (whatif.Explanation, error) {
			return whatif.Explanation{Leader: "a", Changes: []string{"if a is lost, b leads"}}, nil
		},
		DryRun: dryRun,
	})
}

// dryRun says what the request is, and refuses moves that are not forced.
func dryRun(_ context.Context, r request.Request) ([]string, error) {
	if r.Kind == request.KindMove && !r.Options.Force {
		return nil, &request.RefusedError{Err: errors.New("b is cordoned")}
	}
	return []string{fmt.Sprintf("%s %s%s all %t hard %t for %s by %s", r.Kind, r.Node, r.Site, r.All, r.Hard, r.Options.For, r.Options.By)}, nil
}

var errDown = errors.New("no ZooKeeper server is connected")

// optionsWithoutZooKeeper returns the options of a daemon that has lost ZooKeeper.
func optionsWithoutZooKeeper() Options { return optionsOf(Group{View: leader}) }

func TestGroupResponses(t *testing.T) {
	late := optionsWithGroup()
	only(late).View = stuck
	empty := optionsWithGroup()
	only(empty).History = func(context.Context) ([]cluster.PastTerm, error) { return nil, nil }
	for _, c := range []struct {
		name, path string
		opt        Options
		code       int
		want       string
	}{
		{"status", "/v1/status", optionsWithGroup(), 200, `"group_status":{"root":"/c","state":"READY","leader":"a"`},
		{"status without ZooKeeper", "/v1/status", optionsWithoutZooKeeper(), 200, `"group_error":"no ZooKeeper server is connected"`},
		{"status of what is stuck", "/v1/status", late, 503, `"group_error":"the event loop has been stuck`},
		{"history", "/v1/history", optionsWithGroup(), 200, `"terms":[{"term":11,`},
		{"history, the last", "/v1/history?n=1", optionsWithGroup(), 200, `"terms":[{"term":30,`},
		{"history, none yet", "/v1/history", empty, 200, `"terms":[]`},
		{"history of no terms", "/v1/history?n=0", optionsWithGroup(), 400, "not a number of 1 or more"},
		{"history without ZooKeeper", "/v1/history", optionsWithoutZooKeeper(), 503, errDown.Error()},
		{"history of what is stuck", "/v1/history", late, 503, "has been stuck"},
		{"explain", "/v1/explain", optionsWithGroup(), 200, `"changes":["if a is lost, b leads"]`},
		{"explain a term", "/v1/explain?term=7", optionsWithGroup(), 200, `"past":{"term":7,`},
		{"explain a term that is forgotten", "/v1/explain?term=31", optionsWithGroup(), 404, "term 31 is not in the history"},
		{"explain nothing", "/v1/explain?term=x", optionsWithGroup(), 400, "not a number of 1 or more"},
		{"explain without ZooKeeper", "/v1/explain", optionsWithoutZooKeeper(), 503, errDown.Error()},
		{"whatif", "/v1/whatif?request=move&node=true&force=true&for=2h", optionsWithGroup(), 200, `"messages":["move true all false hard false for 2h0m0s by you"]`},
		{"whatif of what is refused", "/v1/whatif?request=move&site=dc1", optionsWithGroup(), 200, `"messages":[],"refused":"b is cordoned"`},
		{"whatif of nothing", "/v1/whatif", optionsWithGroup(), 400, "is not one of"},
		{"whatif of an unknown field", "/v1/whatif?request=resume&node=b", optionsWithGroup(), 400, "has no field"},
		{"whatif of no flag", "/v1/whatif?request=pause&hard=1", optionsWithGroup(), 400, "must be true or false"},
		{"whatif of two nodes", "/v1/whatif?request=cordon&node=a&node=b", optionsWithGroup(), 400, "appears twice"},
		{"whatif without ZooKeeper", "/v1/whatif?request=resume", optionsWithoutZooKeeper(), 503, errDown.Error()},
	} {
		rec := serveRequest(New(c.opt), "GET", c.path)
		var got map[string]any
		if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil || rec.Code != c.code || !strings.Contains(rec.Body.String(), c.want) {
			t.Errorf("%s: %d %s (%v), want %d with %s", c.name, rec.Code, rec.Body, err, c.code, c.want)
		}
		if got["node"] != "a" || got["term"] != 7.0 || got["state"] == nil || got["age"] == nil {
			t.Errorf("%s has no stamp: %v", c.name, got)
		}
		if strings.Contains(rec.Body.String(), "<img") {
			t.Errorf("%s contains markup: %s", c.name, rec.Body)
		}
	}
}
