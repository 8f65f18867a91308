package elector

import (
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// approval is a group of two sites in which a person decides between them. Its leader a is lost, and c is at the other site.
func approval(t *testing.T, after string) *scenario {
	rules := cluster.Rules{
		Type: "priority", Sites: map[string]int{"dc1": 200, "dc2": 100}, Failback: cluster.FailbackImmediate,
		Confirm: "member.site != previous.site", ConfirmAfter: after,
	}
	h := newGroup("a", "c", "d").sites("dc1", "dc2", "dc2").scenario(t, rules)
	h.settle() // the first election needs no approval
	if got := h.in.Snapshot.Elected.Record.Node; got != "a" {
		t.Fatalf("%s leads", got)
	}
	h.gone("a")
	return h
}

// gone ends the sessions of members.
func (h *scenario) gone(ids ...string) {
	h.in.Snapshot = h.in.Snapshot.Without(func(m cluster.Member) bool {
		for _, id := range ids {
			if m.ID == id {
				return true
			}
		}
		return false
	})
	h.in.Snapshot.Elector, h.in.Snapshot.HolderRead = true, true
	h.in.Snapshot.Self = h.in.Snapshot.Members[0].Incarnation
}

// proposes writes decisions until one waits for approval, and returns the proposal.
func (h *scenario) proposes() cluster.Proposal {
	h.t.Helper()
	for range 5 {
		d := h.decide()
		if d.Elect != nil {
			h.t.Fatalf("elects %s", d.Elect.Node)
		}
		if !d.AwaitsApproval {
			h.t.Fatalf("does not wait for approval: %q, %q", d.Note, d.Blocked)
		}
		if !h.write(d) {
			break
		}
	}
	p := h.requests().Proposals
	if len(p) != 1 {
		h.t.Fatalf("proposals %+v", p)
	}
	return p[0]
}

// respond answers the proposal, as 'zkelectd approve' does.
func (h *scenario) respond(a cluster.ProposalAnswer) {
	c := h.requests().Clone()
	c.Proposals[0].SetAnswer(a, "ann")
	h.control(c)
}

// The end of a silent leader is written before anybody approves its successor, which then has nothing to wait for. A
// deputy does that, too.
func TestASilentLeaderEndsBeforeTheApproval(t *testing.T) {
	h := newGroup("a", "c", "d").sites("dc1", "dc2", "dc2").leads("a", 7).scenario(t, cluster.Rules{Type: "priority", Confirm: "member.site != previous.site"}).watched().silent("a")
	h.in.Snapshot.Acting = true
	d := h.decide()
	if d.Elect != nil || d.Revoke == nil || !d.Take || d.Revoke.State != cluster.FenceSilent || !d.AwaitsApproval {
		t.Fatalf("%+v", d)
	}
	s := &h.in.Snapshot
	s.Fence.Record, s.Current.Exists, s.Acting, h.in.Silent = *d.Revoke, false, false, nil
	s.Fence.Stat.Version++
	if !s.DeclaredSilent(s.Elected.Record.Incarnation) {
		t.Error("it need not register again")
	}
	h.e = newElector() // another elector goes on
	if p := h.proposes(); p.Node != "c" {
		t.Errorf("%+v", p)
	}
	h.respond(cluster.ProposalApproved)
	if d := h.decide(); d.Elect == nil || d.Elect.Node != "c" || d.Fence != nil || d.Take {
		t.Fatalf("%+v", d)
	}
	if wait, why := s.Owed(time.Second); wait != 0 {
		t.Errorf("it waits %s: %s", wait, why)
	}
}

func TestAnElectionWaitsForApproval(t *testing.T) {
	h := approval(t, "")
	if d := h.decide(); d.Control == nil || d.Proposal != nil {
		t.Errorf("announces a proposal before it is written: %+v", d)
	}
	p := h.proposes()
	if d := h.decide(); d.Proposal == nil || d.Proposal.ID != p.ID {
		t.Errorf("announces %+v", d.Proposal)
	}
	if p.Node != "c" || p.Site != "dc2" || p.Term != h.in.Snapshot.Elected.Record.Term || p.Cause != cluster.CauseFailure || p.For != 0 {
		t.Errorf("%+v", p)
	}
	if d := h.decide(); d.Control != nil || !strings.Contains(d.Note, "c (dc2) waits for approval: a is gone; 'zkelectd approve' elects it") {
		t.Errorf("%+v, %q", d.Control, d.Note)
	}
	h.pass(100 * time.Hour)
	h.proposes()
	h.respond(cluster.ProposalApproved)
	d := h.decide()
	if d.Elect == nil || d.Elect.Node != "c" || d.Elect.RequestedBy != "ann" || d.Elect.Request != p.ID || d.Elect.Reason != "a is gone; approved by ann" {
		t.Fatalf("%+v", d)
	}
	h.write(d)
	h.settle()
	done, ended := h.requests().Ended(p.ID)
	if !ended || done.What != "proposal to elect c (dc2)" || done.Outcome != "approved by ann; c was elected" || len(h.requests().Proposals) > 0 {
		t.Errorf("%+v, %+v", done, h.requests())
	}
	// The next failure within the site needs none.
	h.gone("c")
	if d := h.decide(); d.Elect == nil || d.Elect.Node != "d" {
		t.Errorf("%+v", d)
	}
}

func TestARejectedElectionIsNotHeld(t *testing.T) {
	h := approval(t, "10m")
	h.proposes()
	h.respond(cluster.ProposalRejected)
	h.pass(time.Hour)
	h.proposes()
	if d := h.decide(); !strings.Contains(d.Note, "c (dc2) is not elected: rejected by ann: a is gone; 'zkelectd approve' elects it all the same") {
		t.Error(d.Note)
	}
	h.respond(cluster.ProposalApproved)
	if d := h.decide(); d.Elect == nil {
		t.Errorf("%+v", d)
	}
}

// Nobody answers, and what was promised happens, also under another elector.
func TestAnElectionIsHeldWithoutAnAnswer(t *testing.T) {
	h := approval(t, "10m")
	if p := h.proposes(); p.For != cluster.Duration(10*time.Minute) {
		t.Fatalf("%+v", p)
	}
	if d := h.decide(); !strings.Contains(d.Note, "without an answer it is elected 10m0s after this was proposed") || d.Wake == 0 {
		t.Errorf("%q, wakes at %s", d.Note, d.Wake)
	}
	for range 9 {
		h.pass(time.Minute)
		h.proposes()
	}
	h.e = newElector()
	h.pass(30 * time.Second)
	h.proposes()
	h.pass(90 * time.Second)
	d := h.decide()
	if d.Elect == nil || d.Elect.Node != "c" || d.Elect.RequestedBy != "policy.confirm_after" {
		t.Fatalf("%+v", d)
	}
}

func TestWhatNeedsNoApproval(t *testing.T) {
	h := approval(t, "")
	h.proposes()
	h.control(cluster.Control{Last: 5, Move: &cluster.Move{Request: cluster.Request{ID: 5, By: "ann"}, Node: "d"}})
	if d := h.decide(); d.Elect == nil || d.Elect.Node != "d" {
		t.Errorf("a move: %+v", d)
	}
	// A deputy writes no proposal, and elects nobody.
	h = approval(t, "")
	h.in.Snapshot.Acting = true
	if d := h.decide(); d.Elect != nil || d.Control != nil || !strings.Contains(d.Note, "a person must approve that c (dc2) is elected") {
		t.Errorf("a deputy: %+v", d)
	}
	h.in.Snapshot.Acting = false
	h.proposes()
	h.respond(cluster.ProposalApproved)
	h.in.Snapshot.Acting = true
	if d := h.decide(); d.Elect == nil {
		t.Errorf("a deputy after the approval: %+v", d)
	}
	// Requests that cannot be read are not overwritten.
	h = approval(t, "")
	h.in.Snapshot.Control = cluster.ReadStored[cluster.Control]("/c/control", []byte("{"), cluster.Stat{}, true)
	if d := h.decide(); d.Elect != nil || d.Control != nil {
		t.Errorf("unreadable requests: %+v", d)
	}
}

// A leader whose site is preferred does not come back without a person, and a leader that leads on needs no proposal.
func TestApprovalOfAPreemption(t *testing.T) {
	h := approval(t, "")
	h.proposes()
	h.respond(cluster.ProposalApproved)
	h.settle()
	back := newGroup("c", "d", "a").sites("dc2", "dc2", "dc1")
	h.in.Snapshot.Members = back.Members
	h.pass(time.Hour)
	d := h.decide()
	if d.Elect != nil || !strings.Contains(d.Blocked.Reason, "policy.confirm demands that a person decides") || d.Blocked.Remedy != "'zkelectd move a' moves leadership" {
		t.Errorf("%+v", d)
	}
	if len(h.requests().Proposals) != 0 {
		t.Error("a preemption is proposed")
	}
	// It keeps back none that needs no person.
	h.group().node("d").Priority = 200
	if rec := h.leader("d", cluster.CausePreempt); rec.Reason != "d is better than c: priority 200 against priority 100; a is better, but a person would have to approve it" {
		t.Error(rec.Reason)
	}
}

// The members are not asked for answers to a roll call for an election that is not held.
func TestAWithheldPreemptionCallsNoRoll(t *testing.T) {
	for name, change := range map[string]func(*cluster.Rules){
		"approval": func(r *cluster.Rules) { r.Confirm = "member.site != previous.site" },
		"observe":  func(r *cluster.Rules) { r.Observe = true },
	} {
		rules := fresh
		change(&rules)
		h := newGroup("a", "b").sites("dc1", "dc2").published(map[string]float64{"a": 1, "b": 9}).leads("a", 7).scenario(t, rules)
		if d := h.settle(); d.CallRoll || d.AwaitsAnswers || d.Blocked.Reason == "" {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

func TestAProposalEndsWhenTheLeaderLeadsOn(t *testing.T) {
	h := approval(t, "")
	h = newGroup("a", "c").sites("dc1", "dc2").leads("a", 7).scenario(t, h.in.Policy.Rules)
	h.group().node("a").Unhealthy = "sick"
	if p := h.proposes(); p.Node != "c" || p.Cause != cluster.CauseUnhealthy {
		t.Fatalf("%+v", p)
	}
	if d := h.decide(); d.Note != "" || !strings.Contains(d.Blocked.Reason, "c (dc2) waits for approval") {
		t.Errorf("note %q, blocked %q", d.Note, d.Blocked)
	}
	h.group().node("a").Unhealthy = ""
	h.settle()
	if c := h.requests(); len(c.Proposals) != 0 || len(c.Done) != 1 || c.Done[0].Outcome != "a leads again" {
		t.Errorf("%+v", c)
	}
}

func TestObserveElectsNobody(t *testing.T) {
	h := newGroup("a", "c").leads("a", 7).scenario(t, cluster.Rules{Type: "priority", Observe: true})
	h.gone("a")
	if d := h.decide(); d.Elect != nil || d.Control != nil || d.Note != "policy.observe is set: c would be elected: a is gone" {
		t.Errorf("%+v", d)
	}
}

// Within a site leadership moves by itself, also if a member of another site would be better.
func TestAMemberThatNeedsNoApprovalIsElected(t *testing.T) {
	h := approval(t, "")
	h.proposes()
	h.respond(cluster.ProposalApproved)
	h.leader("c", cluster.CauseFailure)
	h.in.Snapshot.Members = newGroup("c", "d", "a").sites("dc2", "dc2", "dc1").Members
	h.gone("c")
	d := h.decide()
	if d.Elect == nil || d.Elect.Node != "d" || d.Elect.Reason != "c is gone; a is better, but a person would have to approve it" {
		t.Errorf("%+v, %q", d.Elect, d.Note)
	}
	// An ineligible leader is not elected again for that reason.
	h = newGroup("a", "c").sites("dc1", "dc2").leads("a", 7).scenario(t, cluster.Rules{
		Type: "priority", Sites: map[string]int{"dc2": 9}, Filter: []string{"cause != 'first' || member.site != 'dc1'"}, Confirm: "member.site != previous.site",
	})
	h.in.Snapshot.Elected.Record.Circumstances = cluster.Circumstances{Cause: cluster.CauseFirst}
	if p := h.proposes(); p.Node != "c" || p.Cause != cluster.CauseIneligible {
		t.Errorf("%+v", p)
	}
}

func TestARejectionHoldsForAnotherMember(t *testing.T) {
	h := approval(t, "10m")
	h.proposes()
	h.respond(cluster.ProposalRejected)
	h.group().node("c").Unhealthy = "sick"
	if p := h.proposes(); p.Node != "d" || p.Answer != cluster.ProposalRejected || p.AnsweredBy != "ann" {
		t.Errorf("%+v", p)
	}
	h.pass(time.Hour)
	h.proposes()
}

// Who rejects that a leader which works is replaced has not said that nobody shall lead.
func TestARejectionEndsWithTheLeader(t *testing.T) {
	rules := cluster.Rules{Type: "priority", Confirm: "member.site != previous.site", ConfirmAfter: "10m"}
	h := newGroup("a", "c", "d").sites("dc1", "dc2", "dc2").leads("a", 7).scenario(t, rules)
	h.group().node("a").Unhealthy = "sick"
	before := h.proposes()
	h.respond(cluster.ProposalRejected)
	h.group().node("a").Unhealthy = "worse"
	if p := h.proposes(); p.ID != before.ID || p.Answer != cluster.ProposalRejected {
		t.Fatalf("it still leads: %+v", p)
	}
	h.gone("a")
	p := h.proposes()
	if p.Node != "c" || p.ID == before.ID || p.Answer != "" || p.Reason != "a is gone" {
		t.Errorf("%+v", p)
	}
	if d := h.decide(); d.Proposal == nil || d.Proposal.ID != p.ID {
		t.Errorf("announces %+v", d.Proposal)
	}
	h.ended(before.ID, "replaced: a is gone")
	h.group().node("c").Unhealthy = "sick"
	if p := h.proposes(); p.Node != "d" || p.Answer != "" {
		t.Errorf("%+v", p)
	}
	h.pass(10 * time.Minute)
	h.elects("d")
	// An approval holds.
	h = newGroup("a", "c").sites("dc1", "dc2").leads("a", 7).scenario(t, rules)
	h.group().node("a").Unhealthy = "sick"
	h.proposes()
	h.respond(cluster.ProposalApproved)
	h.gone("a")
	h.elects("c")
}

func TestAnotherTimeForAnAnswerCountsAtOnce(t *testing.T) {
	h := approval(t, "10m")
	h.proposes()
	for _, after := range []string{cluster.ConfirmNever, "1m"} {
		rules := h.in.Policy.Rules
		rules.ConfirmAfter = after
		h.in.Policy = newGroup("a").input(t, rules).Policy
		h.proposes()
		h.pass(50 * time.Second)
		h.proposes()
		if after == cluster.ConfirmNever {
			h.pass(time.Hour)
			h.proposes()
		}
	}
	h.pass(10 * time.Second)
	if d := h.decide(); d.Elect == nil {
		t.Errorf("%+v", d)
	}
}

// Members that take turns in being the best do not make it last for ever, and a member that has been approved is
// elected.
func TestMembersThatTakeTurnsInBeingProposed(t *testing.T) {
	h := approval(t, "10m")
	turn := func(i int) {
		h.group().node("c").Priority, h.group().node("d").Priority = 100+i%2, 100+(i+1)%2
	}
	for i := range 40 {
		turn(i)
		h.proposes()
		h.pass(15*time.Second - time.Millisecond)
	}
	h.respond(cluster.ProposalApproved)
	approved := h.requests().Proposals[0].Node
	turn(40)
	if d := h.decide(); d.Elect == nil || d.Elect.Node != approved || d.Elect.RequestedBy != "ann" {
		t.Errorf("%+v", d)
	}
	h = approval(t, "10m")
	for i := range 40 {
		turn(i)
		h.proposes()
		h.pass(14 * time.Second)
	}
	h.pass(time.Minute)
	if d := h.decide(); d.Elect == nil || d.Elect.RequestedBy != "policy.confirm_after" {
		t.Errorf("%+v", d)
	}
}

// Nothing but a leader that leads on ends a proposal, and a proposal keeps nothing else from being done.
func TestAProposalWhileTheLeaderIsThere(t *testing.T) {
	rules := cluster.Rules{Type: "priority", Confirm: "member.site != previous.site"}
	h := newGroup("a", "b", "c").sites("dc1", "dc1", "dc2").leads("a", 7).scenario(t, rules)
	h.group().node("a").Unhealthy = "sick"
	h.write(h.decide()) // b is elected, and a does not let go
	h.group().node("b").Unhealthy = "sick"
	p := h.proposes()
	c := h.requests().Clone()
	c.Pause = &cluster.Pause{Request: by(9), Hard: true}
	h.control(c)
	if d := h.decide(); d.Control != nil || h.requests().Proposals[0].ID != p.ID {
		t.Errorf("a pause ends it: %+v", d.Control)
	}
	h.control(cluster.Control{Proposals: c.Proposals})
	h.in.Revoke = "it does not let go"
	if d := h.decide(); d.Revoke == nil || !d.AwaitsApproval {
		t.Errorf("%+v", d)
	}
	h.in.Revoke = ""
	h.group().node("b").Leaving = "asked to stop"
	if d := h.decide(); !d.NoSuccessor || !d.AwaitsApproval {
		t.Errorf("it waits for a successor: %+v", d)
	}
}

// An approved member needs no second approval when the holder before it falls silent. Silent members are ill, as
// elsewhere.
func TestApprovalAndSilence(t *testing.T) {
	h := newGroup("a", "c").sites("dc1", "dc2").leads("a", 7).scenario(t, cluster.Rules{Type: "priority", Confirm: "member.site != previous.site"})
	h.group().node("a").Unhealthy = "sick"
	h.proposes()
	h.respond(cluster.ProposalApproved)
	h.write(h.decide())
	h.watched().silent("a")
	if d := h.decide(); d.Elect == nil || d.Elect.Node != "c" || !d.Take {
		t.Errorf("%+v", d)
	}
	h = newGroup("a", "b").leads("a", 7).scenario(t, cluster.Rules{Type: "priority", Confirm: "site.healthy < 1"}).watched().silent("a")
	if p := h.proposes(); p.Node != "b" {
		t.Errorf("%+v", p)
	}
}

// The members are not asked again and again for an answer to a roll call while a person is, but once before the
// election.
func TestAProposalCallsTheRollOnce(t *testing.T) {
	rules := fresh
	rules.Confirm = "member.site != previous.site"
	h := newGroup("a", "b", "c").sites("dc1", "dc2", "dc2").published(map[string]float64{"a": 9, "b": 5, "c": 1}).leads("a", 7).scenario(t, rules)
	h.decide()
	h.group().node("a").Unhealthy = "sick"
	called := func(n uint64) {
		h.calls()
		h.call(n)
		h.answer("b", 5)
		h.answer("c", 1)
	}
	called(1)
	for range 100 {
		h.proposes()
		h.pass(time.Minute)
	}
	if c := h.requests(); c.Last != 1 || len(c.Done) > 0 {
		t.Errorf("%+v", c)
	}
	h.respond(cluster.ProposalApproved)
	called(2)
	h.elects("b")
}
