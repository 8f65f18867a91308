package transition

import (
	"fmt"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// publishing takes the machine to READY, and lets a second pass in which the lease is renewed.
func publishing(t *testing.T) *script {
	t.Helper()
	s := newScript(t)
	s.lead()
	s.pass(time.Second)
	return s
}

// pass lets time pass, with renewals.
func (s *script) pass(d time.Duration) {
	s.t.Helper()
	for end := s.now + d; s.now < end; {
		s.now = min(end, s.now+s.b.Renew)
		s.renewed(s.now, nil, "Lease")
	}
}

// says is what the work of the term publishes.
func says(text string) ValueGiven { return ValueGiven{Term: 7, Value: text} }

// valueDone is the reply to a VALUE that has left a version of current.
func valueDone(version int32) TxDone {
	return TxDone{Tx: TxValue, Results: []cluster.Result{{}, {}, {}, {Version: version}}}
}

// written returns the value in a VALUE, which writes current at a version and checks the rest as RENEW does.
func (s *script) written(a []Action, version int32) string {
	s.t.Helper()
	tx := sent(s.t, a)
	last := tx.Ops[len(tx.Ops)-1]
	c := cluster.ReadStored[cluster.Current](last.Path, last.Data, cluster.Stat{}, true)
	held := s.m.term.holding
	want := s.m.opt.Paths.ValueTx(held, c.Record)
	if fmt.Sprint(tx.Ops) != fmt.Sprint(want) || held.Current != version || c.Record.State != cluster.CurrentReady || c.Record.Node != "me" || tx.Deadline != s.m.Deadline() {
		s.t.Errorf("VALUE is %+v, want %+v, at version %d", tx, want, version)
	}
	return c.Record.Value
}

// readsCurrent is a snapshot in which me holds current with a value, in a version.
func (s *script) readsCurrent(version int32, value string) Saw {
	return s.saw(append(s.mine(), func(snap *cluster.Snapshot) {
		snap.Fence.Stat.Version, snap.Current.Stat.Version = 11, version
		snap.Current.Record.Node, snap.Current.Record.State, snap.Current.Record.Value = "me", cluster.CurrentReady, value
	})...)
}

// Of values that change often the last one is written, once a second, and the lease is renewed meanwhile.
func TestTheLastValueIsWrittenOnceASecond(t *testing.T) {
	s := publishing(t)
	if got := s.written(s.on(says("a"), "VALUE"), 1); got != "a" {
		t.Errorf("published %q", got)
	}
	s.on(says("b"))
	s.withdrawn()
	deadline := s.m.Deadline()
	s.after(10 * time.Millisecond)
	s.on(valueDone(2))
	if s.m.Deadline() != deadline {
		t.Error("VALUE extends the lease, although it does not advance the lease znode")
	}
	if l := s.m.Lending(); l.Value != "a" {
		t.Errorf("lends %+v", l)
	}
	s.on(says("c"))
	if wake := s.m.Wake(); wake > s.now+time.Second {
		t.Errorf("wakes at %s", wake)
	}
	s.pass(time.Second - 1)
	s.on(Tick{})
	s.after(1)
	if got := s.written(s.on(Tick{}, "VALUE"), 2); got != "c" {
		t.Errorf("published %q", got)
	}
	s.on(valueDone(3))
	s.pass(2 * time.Second)
	s.on(says("c"))                          // no news
	s.on(ValueGiven{Term: 6, Value: "late"}) // from the work of another term
	if got := s.written(s.on(says(""), "VALUE"), 3); got != "" {
		t.Errorf("published %q", got)
	}
}

// A slow ZooKeeper must not cost the leadership of a leader whose value changes all the time.
func TestASlowRENEWIsMoreImportantThanAValue(t *testing.T) {
	s := publishing(t)
	s.on(says("v1"), "VALUE")
	s.on(valueDone(2))
	s.pass(time.Second)
	sent := s.now
	s.now += s.b.Lease * 2 / 5
	s.renewed(sent, nil, "Lease")
	s.on(says("v2"))
	s.now += s.b.Renew / 2
	s.renewed(s.now, nil, "Lease", "VALUE")
}

// READY has the value that came with it, or a newer one; one that came before is written with READY, too. A child
// that is started again keeps the value of the one before, until it publishes another one.
func TestTheValueOfREADY(t *testing.T) {
	for name, c := range map[string]struct {
		events []Event
		want   string
	}{
		"with it":     {[]Event{ChildStarted{}, ChildReady{"a"}}, "a"},
		"a newer one": {[]Event{ChildStarted{}, says("b"), ChildReady{"a"}}, "b"},
		"none":        {[]Event{ChildStarted{}, ChildReady{}}, ""},
	} {
		s := newScript(t)
		s.prepare()
		s.on(HookDone{}, "StartChild")
		last := len(c.events) - 1
		for _, e := range c.events[:last] {
			s.on(e)
		}
		tx := sent(t, s.on(c.events[last], "READY"))
		op := tx.Ops[cluster.ResultCurrent]
		if got := cluster.ReadStored[cluster.Current](op.Path, op.Data, cluster.Stat{}, true); got.Record.Value != c.want {
			t.Errorf("%s: %q", name, got.Record.Value)
		}
		s.on(done(TxReady))
		s.pass(time.Second)
		s.on(ChildDead{})
		s.on(says("between"))
		s.pass(time.Second - 1)
		s.after(1)
		s.on(Tick{}, "StartChild")
		s.on(ChildStarted{})
		if got := s.written(s.on(ChildReady{}, "VALUE"), 1); got != "between" {
			t.Errorf("%s: %q", name, got)
		}
		s.on(valueDone(2))
		s.on(ChildDead{})
		s.pass(time.Second - 1)
		s.after(1)
		s.on(Tick{}, "StartChild")
		s.on(ChildStarted{})
		if got := s.written(s.on(ChildReady{"again"}, "VALUE"), 2); got != "again" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// Nothing is published once the work ends, nor without a lease.
func TestNoValueWhenTheTermEnds(t *testing.T) {
	for name, end := range map[string]func(*script){
		"asked to stop": func(s *script) { s.on(Quit{Reason: "stop"}, "StopTask") },
		"replaced":      func(s *script) { s.on(s.saw(append(s.mine(), replacedBy("other", 8))...), "StopTask") },
		"no lease":      func(s *script) { s.now = s.m.Deadline(); s.on(Tick{}, "KillTask") },
		"no session":    func(s *script) { s.on(SessionEnded{Reason: "gone"}, "KillTask") },
	} {
		t.Run(name, func(t *testing.T) {
			s := publishing(t)
			end(s)
			if tx := those[Send](s.m.Step(s.now, says("a"))); len(tx) != 0 {
				t.Errorf("sent: %+v", tx)
			}
		})
	}
}

// A VALUE without a reply is read back, and may have taken effect late: then a refusal is no reason to give
// leadership up.
func TestAValueOfUnknownOutcome(t *testing.T) {
	lost := func() *script {
		s := publishing(t)
		s.on(says("a"), "VALUE")
		s.on(TxDone{Tx: TxValue, Err: cluster.ErrUnknown})
		s.withdrawn()
		return s
	}
	s := lost() // it has taken effect
	s.on(s.readsCurrent(2, "a"))
	s.pass(2 * time.Second)
	if got := s.written(s.on(says("b"), "VALUE"), 2); got != "b" {
		t.Errorf("%q", got)
	}

	s = lost() // it has not, and is repeated
	s.on(s.readsCurrent(1, ""))
	s.pass(time.Second - s.b.Renew)
	s.after(s.b.Renew)
	if got := s.written(s.renewed(s.now, nil, "Lease", "VALUE"), 1); got != "a" {
		t.Errorf("%q", got)
	}
	s.on(valueDone(2))
	s.pass(time.Second)

	s = lost() // it takes effect late
	s.on(s.readsCurrent(1, ""))
	s.after(s.b.Renew)
	s.renewed(s.now, &cluster.TxError{Index: 3, Err: cluster.ErrBadVersion})
	s.on(s.readsCurrent(2, "a"))
	s.pass(time.Second)

	s = lost() // the same, and the repetition is refused
	s.on(s.readsCurrent(1, ""))
	s.pass(time.Second - s.b.Renew)
	s.after(s.b.Renew)
	s.renewed(s.now, nil, "Lease", "VALUE")
	s.on(refused(TxValue, 3, cluster.ErrBadVersion))
	s.on(s.readsCurrent(2, "a"))
	s.pass(time.Second)

	stops := func(what string, e Event, then ...Event) {
		t.Helper()
		s := lost()
		s.on(s.readsCurrent(1, ""))
		s.after(s.b.Renew)
		got := fmt.Sprint(s.m.Step(s.now, e))
		for _, e := range then {
			got += fmt.Sprint(s.m.Step(s.now, e))
		}
		if s.m.term.stop == nil {
			t.Errorf("%s: leads on: %s", what, got)
		}
	}
	renewed := func(index int) Event {
		s := lost()
		s.on(s.readsCurrent(1, ""))
		p := s.posted()
		return RenewDone{Term: p.Term, Held: p.Held, Err: &cluster.TxError{Index: index, Err: cluster.ErrBadVersion}}
	}
	snap := lost()
	snap.after(snap.b.Renew)
	stops("the decision has changed", renewed(1))
	stops("the fence has changed", renewed(2))
	stops("current has not", renewed(3), snap.readsCurrent(1, ""))
	foreign := snap.readsCurrent(2, "x")
	foreign.Snapshot.Current.Record.Term = 8
	stops("somebody else has changed current", renewed(3), foreign)

	s = publishing(t) // refused at once
	s.on(says("a"), "VALUE")
	s.on(refused(TxValue, 1, cluster.ErrBadVersion), "StopTask")
}
