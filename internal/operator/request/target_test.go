package request

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// A target without a kind is the node or the site that has the name.
func TestTargetIsANodeOrASite(t *testing.T) {
	for _, c := range []struct {
		kind   Kind
		target string
		want   string
	}{
		{KindMove, "b2", "moves leadership from a1 (dc1) to b2 (dc2)"},
		{KindMove, "dc2", "moves leadership from a1 (dc1) to b1 (dc2)"},
		{KindCordon, "b1", "b1 will not be elected"},
		{KindCordon, "dc2", "site dc2 will not be elected"},
		{KindDrain, "dc1", "site dc1 will not be elected, and leadership moves from a1 (dc1) to b1 (dc2)"},
		{KindUncordon, "gone", "ended: cordoned by ann@host: new kernel"},
		{KindUncordon, "dc3", "ended: site dc3 is cordoned by ann@host: new kernel"},
		{KindClearStrikes, "a2", "cleared: strike 2 of a2"},
		{KindMove, "b22", `no member has the node or site "b22"; there are the nodes a1, a2, b1, b2 and the sites dc1, dc2; did you mean b2?`},
		{KindCordon, "both", "both is a node and a site: write which one you mean, --node both or --site both"},
		{KindMove, "both", "both is a node and a site: write which one you mean, --to both or --site both"},
		{KindUncordon, "dc33", "there is no such cordon; there are cordons of gone, dc3; did you mean dc3?"},
		{KindClearStrikes, "a22", "a22 has no strikes; did you mean a2?"},
	} {
		h := group(t).leads("a1")
		if c.target == "both" {
			h.q.Snapshot.Members = append(h.q.Snapshot.Members, member("both", "dc1", 5, 1), member("c1", "both", 6, 1))
		}
		h.control().Cordons = []cluster.Cordon{{Request: ann(1), Node: "gone"}, {Request: ann(2), Site: "dc3"}}
		h.control().Last = 2
		h.q.Snapshot.Elected.Record.Exclusions = []cluster.Exclusion{{Node: "a2", Expired: true, Term: 3, Strikes: 2}}
		plan, err := Request{Kind: c.kind, Target: c.target, Options: bob()}.Plan(h.q)
		said := strings.Join(plan.Messages, "; ")
		if err != nil {
			said = err.Error()
		}
		if !strings.HasPrefix(said, c.want) {
			t.Errorf("%s %s: %s, want %s", c.kind, c.target, said, c.want)
		}
	}
}

// A request for what is already so is told from one that cannot be met.
func TestNothingToDo(t *testing.T) {
	for _, r := range []Request{
		{Kind: KindResume}, {Kind: KindUncordon, All: true}, {Kind: KindUncordon, Node: "a1"}, {Kind: KindUncordon, Target: "dc1"},
		{Kind: KindClearStrikes, All: true}, {Kind: KindClearStrikes, Node: "a1"}, {Kind: KindClearStrikes, Node: "lost"}, {Kind: KindUncordon, Node: "lost"},
	} {
		r.Options = bob()
		q := group(t).leads("a1").q
		q.Snapshot.Roster = exists(cluster.Roster{Nodes: []cluster.RosterNode{{ID: "lost", Site: "dc3"}}})
		_, err := r.Plan(q)
		var none *NotAffectedError
		if !errors.As(err, &none) || !none.Done {
			t.Errorf("%+v: %v", r, err)
		}
	}
	for _, kind := range Kinds() {
		if !kind.Takes(FieldNode) {
			continue
		}
		r := Request{Kind: kind, Target: "x", Options: bob()} // unknown: a typing error
		_, err := r.Plan(group(t).leads("a1").q)
		var none *NotAffectedError
		if !errors.As(err, &none) || none.Done {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

func TestUnknownTargetsAreAnsweredWithTheNearest(t *testing.T) {
	h := group(t).leads("a1")
	for i := range 30 {
		h.q.Snapshot.Members = append(h.q.Snapshot.Members, member(fmt.Sprint("host", 10+i), "dc3", int32(10+i), 1))
	}
	for _, c := range []struct{ node, site, want string }{
		{"host111", "", "and 14 more; did you mean host11?"},
		{"dc2", "", "; it is a site: use --site"},
		{"", "b1", "; it is a node"},
		{"", "d2", "there are dc1, dc2, dc3; did you mean dc2?"},
	} {
		_, err := move(bob(), c.node, c.site)(h.q)
		if err == nil || !strings.HasSuffix(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// --force ignores policy, cordons and health, but no exclusion: the refusal says what to do.
func TestForcedMoveToAnExcludedNode(t *testing.T) {
	const want = "; run 'zkelectd clear-strikes b1 -g ingest' first: a forced move does not ignore an exclusion"
	for _, force := range []bool{false, true} {
		h := group(t).leads("a1")
		h.q.Options.Group = "ingest/3" // strikes are cleared in the whole group
		h.q.Snapshot.Elected.Record.Exclusions = []cluster.Exclusion{{Node: "b1", Strikes: 1, For: cluster.Duration(time.Hour), Term: 3, Reason: "slow", Time: wall}}
		o := bob()
		o.Force = force
		_, err := move(o, "b1", "")(h.q)
		if err == nil || !strings.HasSuffix(err.Error(), want) || strings.Contains(err.Error(), "--force moves it anyway") {
			t.Errorf("force %t: %v", force, err)
		}
	}
	if names := sorted([]string{"b", "a", "b"}); !slices.Equal(names, []string{"a", "b"}) {
		t.Error(names)
	}
}
