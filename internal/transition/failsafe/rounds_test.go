package failsafe

import (
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

var (
	n1 = cluster.FailsafeMember{ID: "n1", Incarnation: "n1-n_1", Key: "a"}
	n2 = cluster.FailsafeMember{ID: "n2", Incarnation: "n2-n_2", Key: "b"}
)

const lease = 2 * time.Second

func newRounds(members ...cluster.FailsafeMember) *Rounds {
	r := NewRounds(RoundsOptions{Group: group, Term: 5, Holder: "n0-n_0", Start: 7, Lease: lease, Wait: 4 * time.Second})
	if len(members) > 0 {
		r.Acknowledged(Set{Members: members})
	}
	return r
}

func grant(m Message) Reply { return Reply{Request: m.Request, OK: true} }

func TestARoundExtendsFromItsSending(t *testing.T) {
	r := newRounds(n1, n2)
	asked := r.Begin(time.Minute)
	if len(asked) != 2 || asked[0].To != n1 {
		t.Fatalf("%+v", asked)
	}
	if got := r.Reply(grant(asked[0])); got != 0 {
		t.Errorf("extended until %s by one of two", got)
	}
	if got := r.Reply(grant(asked[1])); got != time.Minute+lease {
		t.Errorf("extended until %s", got)
	}
}

// All must promise in the same round: what was promised in an earlier one may have lapsed.
func TestPromisesOfTwoRoundsDoNotAddUp(t *testing.T) {
	r := newRounds(n1, n2)
	first, second := r.Begin(time.Minute), r.Begin(time.Minute+time.Second)
	if r.Reply(grant(first[0])) != 0 || r.Reply(grant(second[1])) != 0 {
		t.Error("extended")
	}
	if got := r.Reply(grant(second[0])); got != time.Minute+time.Second+lease {
		t.Errorf("extended until %s", got)
	}
}

func TestForeignRepliesCountForNothing(t *testing.T) {
	for name, change := range map[string]func(*Reply){
		"refusal": func(r *Reply) { r.OK = false }, "group": func(r *Reply) { r.Request.Group = "/h" }, "term": func(r *Reply) { r.Request.Term-- },
		"holder": func(r *Reply) { r.Request.Holder = "n0-n_9" }, "member": func(r *Reply) { r.Request.Member = "n1-n_9" },
		"round": func(r *Reply) { r.Request.Round++ }, "process": func(r *Reply) { r.Request.Start++ }, "wait": func(r *Reply) { r.Request.Wait-- },
		"dry run": func(r *Reply) { r.Request.Dry = true },
	} {
		r := newRounds(n1)
		rep := grant(r.Begin(time.Minute)[0])
		change(&rep)
		if r.Reply(rep) != 0 {
			t.Errorf("%s: extended", name)
		}
	}
}

// While it is not known which set is in force, the members of all of them must promise.
func TestEverySetThatMayBeInForceCounts(t *testing.T) {
	r := newRounds()
	if r.Begin(time.Minute) != nil {
		t.Error("a round before anybody has to promise")
	}
	r.Sending(Set{Members: []cluster.FailsafeMember{n1}})
	if r.Begin(time.Minute) != nil {
		t.Error("a round while the empty set may be in force")
	}
	r.Acknowledged(Set{Members: []cluster.FailsafeMember{n1}})
	asked := r.Begin(time.Minute)
	r.Sending(Set{Members: []cluster.FailsafeMember{n2}, Max: time.Hour})
	if r.Reply(grant(asked[0])) != 0 {
		t.Error("extended, but the new set may be in force")
	}
	if asked = r.Begin(time.Minute); len(asked) != 2 || r.Settled() || r.Max() != time.Hour {
		t.Errorf("asked %+v", asked)
	}
	r.NotSent()
	if asked = r.Begin(time.Minute); len(asked) != 1 || !r.Settled() || r.Max() != 0 {
		t.Errorf("asked %+v", asked)
	}
	r.Sending(Set{})
	if r.Begin(time.Minute) != nil {
		t.Error("a round while the empty set may be in force")
	}
	if got := r.Reply(grant(asked[0])); got != 0 {
		t.Errorf("extended until %s by a round from before, while nobody has to promise", got)
	}
	r.Sending(Set{Members: []cluster.FailsafeMember{n2}})
	if r.NotSent(); r.Settled() || r.Members() != nil {
		t.Error("a SETM that was not sent makes an earlier one forgotten")
	}
	if !r.Possible(Set{Members: []cluster.FailsafeMember{n1}}) {
		t.Error("the acknowledged set cannot be in force")
	}
	for _, s := range []Set{{Members: []cluster.FailsafeMember{n2}}, {Members: []cluster.FailsafeMember{n1}, Max: time.Hour}} {
		if r.Possible(s) {
			t.Errorf("%+v was never sent, and may be in force", s)
		}
	}
}

func TestRoundsAreForgotten(t *testing.T) {
	r := newRounds(n1)
	first := r.Begin(time.Minute)[0]
	for range 2 * maxRounds {
		r.Begin(time.Minute + 1)
	}
	if len(r.rounds) > maxRounds {
		t.Errorf("%d rounds", len(r.rounds))
	}
	if r.Reply(grant(first)) != 0 {
		t.Error("the first one is still known")
	}
}
