package request

import (
	"slices"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

func unfit(h *house, ids ...string) *house {
	for _, id := range ids {
		h.node(id).Unhealthy = "no disk"
	}
	return h
}

func TestAMoveToASiteWhereNobodyMayLeadIsRefused(t *testing.T) {
	h := unfit(group(t), "a1", "a2", "b1", "b2")
	if plan, err := h.gives(move(bob(), "", "dc2")); err == nil {
		t.Errorf("given: %q", plan.Messages)
	}
}

func TestNobodyLeadsOnASite(t *testing.T) {
	plan, err := group(t).gives(move(bob(), "", "dc2"))
	if err != nil || !slices.Equal(plan.Messages, []string{"nobody leads: b1 is to"}) {
		t.Errorf("move: %v, %q", err, plan.Messages)
	}
	plan, err = group(t).gives(cordon(bob(), "", "dc1", false))
	if err != nil || !slices.Equal(plan.Messages, []string{"site dc1 is not chosen any more"}) {
		t.Errorf("cordon: %v, %q", err, plan.Messages)
	}
	plan, err = unfit(group(t), "a1", "a2", "b1", "b2").gives(cordon(bob(), "", "dc1", true))
	if err != nil || !slices.Equal(plan.Messages, []string{"site dc1 is not chosen any more; nobody there leads"}) {
		t.Errorf("drain: %v, %q", err, plan.Messages)
	}
}

// The end of a cordon is not waited for: the elector ends a move at once whose target may not lead.
func TestAMoveDoesNotOutwaitACordon(t *testing.T) {
	h := group(t)
	h.q.Snapshot.Elected = exists(cluster.Elected{Term: 7, Node: "gone", Site: "dc1", Incarnation: "gone-n_0000000000", Cause: cluster.CauseFirst})
	for _, id := range []string{"a1", "a2", "b1", "b2"} {
		c := h.control()
		o := ann(0)
		o.For = cluster.Duration(10 * time.Minute)
		c.Cordons = append(c.Cordons, cluster.Cordon{Request: c.Next(o), Node: id})
	}
	if plan, err := h.gives(move(bob(), "b1", "")); err == nil {
		t.Errorf("given: %q", plan.Messages)
	} else if !strings.Contains(err.Error(), "b1 may not lead: b1: cordoned by ann@host") {
		t.Error(err)
	}
}

// Whatever is refused, the reason is there.
func TestAMoveBesideAnElection(t *testing.T) {
	h := group(t).leads("b1")
	o := ann(1)
	h.control().Reelect, h.control().Last = &o, 1
	plan, err := h.gives(move(bob(), "b2", ""))
	if err != nil && strings.HasSuffix(err.Error(), "may not lead: ") {
		t.Errorf("refused without a reason: %v", err)
	}
	if err == nil && h.after(plan).Leader.ID != "b2" {
		t.Errorf("given, but %q leads", h.after(plan).Leader.ID)
	}
}

func TestTheLastRequestNamesWhatIsUncordoned(t *testing.T) {
	h := group(t).leads("a1")
	h.control().Cordons = []cluster.Cordon{{Request: ann(1), Site: "dc2"}}
	plan, err := h.gives(uncordon(bob(), "", "", true))
	if err != nil || plan.Control.LastRequest != "uncordon of all by bob@host" {
		t.Errorf("all: %v, %q", err, plan.Control.LastRequest)
	}
	plan, err = h.gives(uncordon(bob(), "", "dc2", false))
	if err != nil || plan.Control.LastRequest != "uncordon of site dc2 by bob@host" {
		t.Errorf("a site: %v, %q", err, plan.Control.LastRequest)
	}
}

func TestAStepDownEndsNoCordon(t *testing.T) {
	h := group(t).leads("a1")
	h.control().Cordons = []cluster.Cordon{{Request: ann(1), Node: "a1"}}
	short := bob()
	short.For = time.Minute
	plan, err := h.gives(stepDown(short))
	if err != nil || len(plan.Control.Cordons) != 2 {
		t.Fatalf("%v, %+v", err, plan.Control.Cordons)
	}
	plan, err = h.gives(cordon(bob(), "a1", "", false))
	if err != nil || plan.Messages[0] != "replaces: cordoned by ann@host: new kernel" || len(plan.Control.Cordons) != 1 {
		t.Errorf("%v, %q, %+v", err, plan.Messages, plan.Control.Cordons)
	}
}
