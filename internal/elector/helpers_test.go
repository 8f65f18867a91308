package elector

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"zkelectd/internal/cluster"
)

// house is a group with an elector, whose decisions are written and come true.
type house struct {
	t  rapid.TB
	e  *Elector
	in Input
	// terms are the decisions so far.
	terms []cluster.Elected
}

func (g *group) house(t rapid.TB, rules ...cluster.Rules) *house {
	return &house{t: t, e: newElector(), in: g.input(t, rules...)}
}

func (h *house) group() *group { return &group{h.in.Snapshot} }

// control replaces the requests.
func (h *house) control(c cluster.Control) {
	h.in.Snapshot.Control = cluster.Slot[cluster.Control]{Exists: true, Record: c}
}

func (h *house) requests() cluster.Control { return h.in.Snapshot.Control.Record }

// decide judges, and checks what holds of every decision.
func (h *house) decide() Decision {
	h.t.Helper()
	before := h.requests().Clone()
	d := h.e.Decide(h.in)
	if d.Elect != nil && d.Revoke != nil || d.Control != nil && (d.Elect != nil || d.Revoke != nil) {
		h.t.Fatalf("more than one thing to write: %+v", d)
	}
	if d.Wake != 0 && d.Wake <= h.in.Now {
		h.t.Fatalf("wakes at %s, which is over at %s", d.Wake, h.in.Now)
	}
	if d.Control != nil && reflect.DeepEqual(*d.Control, before) {
		h.t.Fatalf("writes the requests as they were: %+v", before)
	}
	if !reflect.DeepEqual(before, h.requests().Clone()) {
		h.t.Fatalf("changed what it was given: %+v, was %+v", h.requests(), before)
	}
	return d
}

// write makes a decision come true, and tells whether there was anything to write.
func (h *house) write(d Decision) bool {
	s := &h.in.Snapshot
	switch {
	case d.Elect != nil:
		s.Elected = cluster.Slot[cluster.Elected]{Exists: true, Record: *d.Elect, Stat: cluster.Stat{Modified: d.Elect.Term}}
		h.exclude(d.Elect.Exclusions)
		if d.Fence != nil {
			if d.Fence.Term >= d.Elect.Term {
				h.t.Fatalf("term %d is elected over a fence of term %d", d.Elect.Term, d.Fence.Term)
			}
			if !s.Fence.Readable() && d.Fence.State != cluster.FenceRevoked {
				h.t.Fatalf("a fence that could not be read is written anew as %s", d.Fence.State)
			}
			s.Fence = cluster.Slot[cluster.Fence]{Exists: true, Record: *d.Fence}
		} else if !s.Fence.Readable() {
			h.t.Fatalf("an election leaves a fence that cannot be read: %v", s.Fence.Err)
		}
		h.in.Overdue = ""
		h.terms = append(h.terms, *d.Elect)
	case d.Revoke != nil:
		s.Fence.Record, s.Fence.Err, s.Fence.Exists = *d.Revoke, nil, true
		s.Current, h.in.Revoke = cluster.Slot[cluster.Current]{}, ""
	case d.Control != nil:
		h.control(*d.Control)
	default:
		return false
	}
	return true
}

// exclude takes over the exclusions of a decision, with the ages of those that were known.
func (h *house) exclude(list []cluster.Exclusion) {
	ages := make([]time.Duration, len(list))
	for i, x := range list {
		for j, old := range h.in.Exclusions {
			if j < len(h.in.Age) && old.Node == x.Node && old.Strikes == x.Strikes && old.Term == x.Term {
				ages[i] = h.in.Age[j]
			}
		}
	}
	h.in.Exclusions, h.in.Age = slices.Clone(list), ages
}

// pass lets time go by, also for the exclusions.
func (h *house) pass(d time.Duration) {
	h.in.Now += d
	for i := range h.in.Age {
		h.in.Age[i] += d
		x := &h.in.Exclusions[i]
		x.Served = x.Served || h.in.Age[i] >= time.Duration(x.For)
	}
}

// lead has the elected take over.
func (h *house) lead() {
	rec := h.in.Snapshot.Elected.Record
	g := h.group().fence(rec.Node, rec.Term, cluster.FenceReady).current(rec.Node)
	h.in.Snapshot = g.Snapshot
}

// settle goes on until there is nothing to write, with each of the elected taking over, and returns the last judgement.
func (h *house) settle() Decision {
	h.t.Helper()
	for range 10 {
		d := h.decide()
		if !h.write(d) {
			return d
		}
		if d.Elect != nil {
			h.lead()
		}
	}
	h.t.Fatalf("does not come to rest: %d terms, requests %+v", len(h.terms), h.requests())
	return Decision{}
}

// leader settles, and checks who leads and by what cause it got there; "" for no new term.
func (h *house) leader(id string, cause cluster.Cause) cluster.Elected {
	h.t.Helper()
	n := len(h.terms)
	d := h.settle()
	rec := h.in.Snapshot.Elected.Record
	var got cluster.Cause
	if len(h.terms) > n {
		got = rec.Cause
	}
	if rec.Node != id || got != cause || len(h.terms) > n+1 {
		h.t.Fatalf("%s leads by %q after %d new terms (%s; held: %q, note: %q), want %s by %q", rec.Node, got, len(h.terms)-n, rec.Reason, d.Blocked, d.Note, id, cause)
	}
	requested := slices.Contains([]cluster.Cause{cluster.CauseMove, cluster.CauseDrain, cluster.CauseStepDown, cluster.CauseReelect}, cause)
	if len(h.terms) > n && (rec.RequestedBy == "ann@host") != requested {
		h.t.Errorf("elected by %q, requested by %q", cause, rec.RequestedBy)
	}
	return rec
}

// remove takes a member away.
func (h *house) remove(id string) {
	var rest []cluster.Member
	for _, m := range h.in.Snapshot.Members {
		if m.ID != id {
			rest = append(rest, m)
		}
	}
	h.in.Snapshot.Members = rest
}

// ended checks how a request has ended.
func (h *house) ended(id int64, outcome string) {
	h.t.Helper()
	if got, ok := h.requests().Ended(id); !ok || got.Outcome != outcome || got.What == "" || !got.Time.Equal(wall) {
		h.t.Errorf("request %d ended by %+v, want %q", id, got, outcome)
	}
}

func by(id int64, lasts ...time.Duration) cluster.Request {
	o := cluster.Request{ID: id, By: "ann@host", Reason: "new kernel"}
	for _, d := range lasts {
		o.For, o.Remaining = cluster.Duration(d), cluster.Duration(d)
	}
	return o
}

func TestTheHouseComesToRest(t *testing.T) {
	h := newGroup("a", "b").house(t)
	h.leader("a", cluster.CauseFirst)
	h.remove("a")
	h.leader("b", cluster.CauseFailure)
}
