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
	if given, err := h.gives(move(bob(), "", "dc2")); err == nil {
		t.Errorf("given: %q", given.Messages)
	}
}

func TestNobodyLeadsOnASite(t *testing.T) {
	given, err := group(t).gives(move(bob(), "", "dc2"))
	if err != nil || !slices.Equal(given.Messages, []string{"nobody leads: b1 is to"}) {
		t.Errorf("move: %v, %q", err, given.Messages)
	}
	given, err = group(t).gives(cordon(bob(), "", "dc1", false))
	if err != nil || !slices.Equal(given.Messages, []string{"site dc1 is not chosen any more"}) {
		t.Errorf("cordon: %v, %q", err, given.Messages)
	}
	given, err = unfit(group(t), "a1", "a2", "b1", "b2").gives(cordon(bob(), "", "dc1", true))
	if err != nil || !slices.Equal(given.Messages, []string{"site dc1 is not chosen any more; nobody there leads"}) {
		t.Errorf("drain: %v, %q", err, given.Messages)
	}
}

// The end of a cordon is not waited for: the elector ends a move at once whose target may not lead.
func TestAMoveDoesNotOutwaitACordon(t *testing.T) {
	h := group(t)
	h.q.Snapshot.Elected = exists(cluster.Elected{Term: 7, Node: "gone", Site: "dc1", Incarnation: "gone-n_0000000000", Cause: cluster.CauseFirst})
	for _, id := range []string{"a1", "a2", "b1", "b2"} {
		c := h.orders()
		o := ann(0)
		o.For = cluster.Duration(10 * time.Minute)
		c.Cordons = append(c.Cordons, cluster.Cordon{Order: c.Next(o), Node: id})
	}
	if given, err := h.gives(move(bob(), "b1", "")); err == nil {
		t.Errorf("given: %q", given.Messages)
	} else if !strings.Contains(err.Error(), "b1 may not lead: b1: cordoned by ann@host") {
		t.Error(err)
	}
}

// Whatever is refused, the reason is there.
func TestAMoveBesideAnElection(t *testing.T) {
	h := group(t).leads("b1")
	o := ann(1)
	h.orders().Reelect, h.orders().Last = &o, 1
	given, err := h.gives(move(bob(), "b2", ""))
	if err != nil && strings.HasSuffix(err.Error(), "may not lead: ") {
		t.Errorf("refused without a reason: %v", err)
	}
	if err == nil && h.after(given).Leader.ID != "b2" {
		t.Errorf("given, but %q leads", h.after(given).Leader.ID)
	}
}

func TestTheLastOrderNamesWhatIsUncordoned(t *testing.T) {
	h := group(t).leads("a1")
	h.orders().Cordons = []cluster.Cordon{{Order: ann(1), Site: "dc2"}}
	given, err := h.gives(uncordon(bob(), "", "", true))
	if err != nil || given.Control.LastOrder != "uncordon of all by bob@host" {
		t.Errorf("all: %v, %q", err, given.Control.LastOrder)
	}
	given, err = h.gives(uncordon(bob(), "", "dc2", false))
	if err != nil || given.Control.LastOrder != "uncordon of site dc2 by bob@host" {
		t.Errorf("a site: %v, %q", err, given.Control.LastOrder)
	}
}

func TestAStepDownEndsNoCordon(t *testing.T) {
	h := group(t).leads("a1")
	h.orders().Cordons = []cluster.Cordon{{Order: ann(1), Node: "a1"}}
	short := bob()
	short.For = time.Minute
	given, err := h.gives(stepDown(short))
	if err != nil || len(given.Control.Cordons) != 2 {
		t.Fatalf("%v, %+v", err, given.Control.Cordons)
	}
	given, err = h.gives(cordon(bob(), "a1", "", false))
	if err != nil || given.Messages[0] != "replaces: cordoned by ann@host: new kernel" || len(given.Control.Cordons) != 1 {
		t.Errorf("%v, %q, %+v", err, given.Messages, given.Control.Cordons)
	}
}
