package request

import (
	"errors"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
)

func TestForget(t *testing.T) {
	q := group(t).q
	q.Snapshot.Roster = cluster.Stored[cluster.Roster]{Exists: true, Record: cluster.Roster{Nodes: []cluster.RosterNode{
		{ID: "a1"}, {ID: "b1"}, {ID: "n3"}, {ID: "n4", Left: &cluster.Left{How: cluster.LeftStopped}}, {ID: "n5", Left: &cluster.Left{How: cluster.LeftLost}},
	}}}
	ids := func(p Plan) string {
		var all []string
		for _, n := range p.Roster.Nodes {
			all = append(all, n.ID)
		}
		return strings.Join(all, " ")
	}
	for _, c := range []struct {
		r    Request
		left string
		said string
	}{
		{Request{Node: "n4"}, "a1 b1 n3 n5", "forgotten: n4"},
		{Request{All: true}, "a1 b1 n4", "forgotten: n3"},
	} {
		c.r.Kind, c.r.Options = KindForget, Options{By: "ann@host", Reason: "scrapped"}
		p, err := c.r.Plan(q)
		if err != nil || ids(p) != c.left || !strings.Contains(p.Messages[0], c.said) {
			t.Errorf("%+v: %v %+v", c.r, err, p)
			continue
		}
		if done, ok := p.Control.Ended(p.ID); !ok || !strings.Contains(done.Outcome, "by ann@host: scrapped") {
			t.Errorf("%+v: who has requested it is not recorded: %+v", c.r, done)
		}
	}
	for name, want := range map[string]string{"a1": "a1 is a member", "n55": `no node "n55" has left the group; did you mean n5?`} {
		_, err := Request{Kind: KindForget, Node: name}.Plan(q)
		var none *NotAffectedError
		if err == nil || !strings.Contains(err.Error(), want) || errors.As(err, &none) == (name == "a1") || none != nil && none.Done {
			t.Errorf("%s: %v", name, err)
		}
	}
	q.Snapshot.Roster.Record.Nodes = nil
	var none *NotAffectedError
	if _, err := (Request{Kind: KindForget, All: true}).Plan(q); !errors.As(err, &none) || !none.Done {
		t.Error(err)
	}
	q.Snapshot.Roster.Err = errors.New("damaged")
	if _, err := (Request{Kind: KindForget, All: true}).Plan(q); err == nil || errors.As(err, new(*NotAffectedError)) {
		t.Error(err)
	}
}
