package elector

import (
	"reflect"
	"slices"
	"time"

	"pgregory.net/rapid"

	"zkelectd/internal/cluster"
)

// scenario is a group with an elector, whose decisions take effect.
type scenario struct {
	t  rapid.TB
	e  *Elector
	in Input
	// terms are the decisions so far.
	terms []cluster.Elected
	// ages are how long the exclusions have been known.
	ages []time.Duration
}

func (g *group) scenario(t rapid.TB, rules ...cluster.Rules) *scenario {
	return &scenario{t: t, e: newElector(), in: g.input(t, rules...)}
}

func (h *scenario) group() *group { return &group{h.in.Snapshot} }

// control replaces the requests.
func (h *scenario) control(c cluster.Control) {
	h.in.Snapshot.Control = cluster.Stored[cluster.Control]{Exists: true, Record: c}
}

func (h *scenario) requests() cluster.Control { return h.in.Snapshot.Control.Record }

// decide returns the next decision, and checks what must hold for every decision.
func (h *scenario) decide() Decision {
	h.t.Helper()
	before := h.requests().Clone()
	d := h.e.Decide(h.in)
	if d.Elect != nil && d.Revoke != nil || d.Control != nil && (d.Elect != nil || d.Revoke != nil) {
		h.t.Fatalf("more than one thing to write: %+v", d)
	}
	if d.Wake != 0 && d.Wake <= h.in.Now {
		h.t.Fatalf("wakes at %s, which is past at %s", d.Wake, h.in.Now)
	}
	if d.Control != nil && reflect.DeepEqual(*d.Control, before) {
		h.t.Fatalf("writes unchanged requests: %+v", before)
	}
	if !reflect.DeepEqual(before, h.requests().Clone()) {
		h.t.Fatalf("changed its input: %+v, was %+v", h.requests(), before)
	}
	return d
}

// write makes a decision take effect, and reports whether there was anything to write.
func (h *scenario) write(d Decision) bool {
	s := &h.in.Snapshot
	switch {
	case d.Elect != nil:
		s.Elected = cluster.Stored[cluster.Elected]{Exists: true, Record: *d.Elect, Stat: cluster.Stat{Modified: d.Elect.Term}}
		h.exclude(d.Elect.Exclusions)
		if d.Fence != nil {
			if d.Fence.Term >= d.Elect.Term {
				h.t.Fatalf("term %d is elected over a fence of term %d", d.Elect.Term, d.Fence.Term)
			}
			if !s.Fence.Readable() && d.Fence.State != cluster.FenceRevoked {
				h.t.Fatalf("an unreadable fence is rewritten as %s", d.Fence.State)
			}
			s.Fence = cluster.Stored[cluster.Fence]{Exists: true, Record: *d.Fence}
		} else if !s.Fence.Readable() {
			h.t.Fatalf("an election leaves an unreadable fence: %v", s.Fence.Err)
		}
		h.in.Overdue = ""
		h.terms = append(h.terms, *d.Elect)
	case d.Revoke != nil:
		s.Fence.Record, s.Fence.Err, s.Fence.Exists = *d.Revoke, nil, true
		s.Current, h.in.Revoke = cluster.Stored[cluster.Current]{}, ""
	case d.Control != nil:
		h.control(*d.Control)
	default:
		return false
	}
	return true
}

// exclude applies the exclusions of a decision, with the ages of those that were known.
func (h *scenario) exclude(list []cluster.Exclusion) {
	ages := make([]time.Duration, len(list))
	for i, x := range list {
		for j, old := range h.in.Exclusions {
			if j < len(h.ages) && old.Node == x.Node && old.Strikes == x.Strikes && old.Term == x.Term {
				ages[i] = h.ages[j]
			}
		}
	}
	h.in.Exclusions, h.ages = slices.Clone(list), ages
}

// pass lets time pass, also for the exclusions.
func (h *scenario) pass(d time.Duration) {
	h.in.Now += d
	for i := range h.ages {
		h.ages[i] += d
		if x := &h.in.Exclusions[i]; h.ages[i] >= time.Duration(x.For) {
			x.Expired, x.Suspended = true, false
		}
	}
}

// lead makes the elected member take over.
func (h *scenario) lead() {
	rec := h.in.Snapshot.Elected.Record
	g := h.group().fence(rec.Node, rec.Term, cluster.FenceReady).current(rec.Node)
	h.in.Snapshot = g.Snapshot
}

// settle continues until there is nothing to write, with each elected member taking over, and returns the last decision.
func (h *scenario) settle() Decision {
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
	h.t.Fatalf("does not settle: %d terms, requests %+v", len(h.terms), h.requests())
	return Decision{}
}

// leader settles, and checks who leads and by which cause; "" for no new term.
func (h *scenario) leader(id string, cause cluster.Cause) cluster.Elected {
	h.t.Helper()
	n := len(h.terms)
	d := h.settle()
	rec := h.in.Snapshot.Elected.Record
	var got cluster.Cause
	if len(h.terms) > n {
		got = rec.Cause
	}
	if rec.Node != id || got != cause || len(h.terms) > n+1 {
		h.t.Fatalf("%s leads by %q after %d new terms (%s; blocked: %q, note: %q), want %s by %q", rec.Node, got, len(h.terms)-n, rec.Reason, d.Blocked, d.Note, id, cause)
	}
	requested := slices.Contains([]cluster.Cause{cluster.CauseMove, cluster.CauseDrain, cluster.CauseReelect}, cause)
	if len(h.terms) > n && (rec.RequestedBy == "ann@host") != requested {
		h.t.Errorf("elected by %q, requested by %q", cause, rec.RequestedBy)
	}
	return rec
}

// remove removes a member.
func (h *scenario) remove(id string) {
	var rest []cluster.Member
	for _, m := range h.in.Snapshot.Members {
		if m.ID != id {
			rest = append(rest, m)
		}
	}
	h.in.Snapshot.Members = rest
}

// ended checks the outcome of a request.
func (h *scenario) ended(id int64, outcome string) {
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
