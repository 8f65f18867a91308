package failsafe

import (
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

const (
	group   = "/g/leader"
	session = 6 * time.Second
)

func budget(t *testing.T) cluster.Budget {
	t.Helper()
	b, err := cluster.NewBudget(session, 0, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// newMember returns a daemon that is a member since its start at 0, and has promised nothing before.
func newMember(t *testing.T) *Promises {
	t.Helper()
	p := NewPromises(Options{State: State{Key: "k"}})
	if next, changed := p.WithWait(budget(t).LeaseWait); !changed || time.Duration(next.Wait) != budget(t).LeaseWait {
		t.Fatalf("%+v", next)
	}
	p.SetBudget(budget(t))
	p.Register(group, "n1-n_1")
	return p
}

func ask(t *testing.T, term int64) Request {
	t.Helper()
	return Request{Group: group, Term: term, Holder: "n0-n_0", Member: "n1-n_1", Round: 1, Start: 7, Wait: cluster.Duration(budget(t).LeaseWait)}
}

// lose makes the daemon find out that the quorum is unreachable. It returns the time by then.
func lose(t *testing.T, p *Promises, now time.Duration) time.Duration {
	t.Helper()
	p.Suspect()
	if !p.Probe(now) {
		t.Fatal("no probe")
	}
	now += Patience(budget(t).Lease)
	p.ProbeDone(now, cluster.ErrUnknown)
	return now
}

func TestAPromiseBinds(t *testing.T) {
	p := newMember(t)
	now := lose(t, p, time.Minute)
	if rep := p.Grant(now, ask(t, 5)); !rep.OK || rep.Request != ask(t, 5) {
		t.Fatalf("%+v", rep)
	}
	until := now + budget(t).LeaseWait
	if bound := p.Veto(until-1, group, 5); bound != until {
		t.Errorf("bound until %s, want %s", bound, until)
	}
	if rep := p.Grant(until-1, ask(t, 5)); !rep.OK {
		t.Errorf("a veto that was refused counts: %+v", rep)
	}
	until += budget(t).LeaseWait - 1
	bound, next := p.Veto(until, group, 5), p.State()
	if bound != 0 || next.Vetoed[group] != 5 {
		t.Fatalf("%+v, bound until %s", next, bound)
	}
	for term, want := range map[int64]Reason{4: ReasonVetoed, 5: ReasonVetoed, 6: ""} {
		if rep := p.Grant(until, ask(t, term)); rep.Reason != want {
			t.Errorf("term %d: %+v", term, rep)
		}
	}
	restarted := NewPromises(Options{State: next, Start: until})
	restarted.Register(group, "n1-n_1")
	if rep := restarted.Grant(until, ask(t, 5)); rep.Reason != ReasonVetoed {
		t.Errorf("the veto is forgotten by a restart: %+v", rep)
	}
}

// What an earlier process has promised is not known, but it is over after the longest promise.
func TestADaemonIsBoundAfterItsStart(t *testing.T) {
	p := NewPromises(Options{State: State{Key: "k", Wait: cluster.Duration(4 * time.Second)}, Start: time.Minute})
	p.SetBudget(budget(t))
	if at := p.Bound(group); at != time.Minute+4*time.Second {
		t.Errorf("bound until %s", at)
	}
}

func TestGrantRefuses(t *testing.T) {
	p := newMember(t)
	now := lose(t, p, time.Minute)
	for reason, change := range map[Reason]func(*Request){
		ReasonIncarnation: func(r *Request) { r.Member = "n1-n_2" },
		ReasonWait:        func(r *Request) { r.Wait++ },
		ReasonGone:        func(r *Request) { r.Term = 3 },
	} {
		p.Gone(group, 3)
		r := ask(t, 5)
		change(&r)
		if rep := p.Grant(now, r); rep.OK || rep.Reason != reason || rep.Request != r {
			t.Errorf("%s: %+v", reason, rep)
		}
	}
	other := ask(t, 5)
	other.Group, other.Member = "/h/leader", ""
	if rep := p.Grant(now, other); rep.OK {
		t.Errorf("a group that the daemon is no member of: %+v", rep)
	}
	p.Register(group, "")
	if rep := p.Grant(now, ask(t, 5)); rep.OK {
		t.Errorf("after the end of the membership: %+v", rep)
	}
}

func TestADryRunBindsNobody(t *testing.T) {
	p := newMember(t)
	r := ask(t, 5)
	r.Dry = true
	if rep := p.Grant(time.Minute, r); !rep.OK {
		t.Errorf("%+v", rep)
	}
	if at := p.Bound(group); at > time.Minute {
		t.Errorf("bound until %s", at)
	}
}

// A member that ZooKeeper answers does not keep a leader in office that alone is cut off.
func TestOnlyAnOutageMakesAMemberPromise(t *testing.T) {
	p, now, patience := newMember(t), time.Minute, Patience(budget(t).Lease)
	if rep := p.Grant(now, ask(t, 5)); rep.Reason != ReasonProbing || time.Duration(rep.Retry) != patience {
		t.Fatalf("%+v", rep)
	}
	if !p.Probe(now) || p.Probe(now) {
		t.Fatal("not exactly one probe")
	}
	if rep := p.Grant(now+patience/2, ask(t, 5)); rep.OK || time.Duration(rep.Retry) != patience/2 {
		t.Errorf("before it knows: %+v", rep)
	}
	p.ProbeDone(now+patience/2, nil)
	if rep := p.Grant(now+patience/2, ask(t, 5)); rep.Reason != ReasonContact {
		t.Errorf("while ZooKeeper answers: %+v", rep)
	}
	now = lose(t, p, now+time.Minute)
	if rep := p.Grant(now, ask(t, 5)); !rep.OK {
		t.Errorf("in the outage: %+v", rep)
	}
	now += time.Minute
	if !p.Probe(now) {
		t.Fatal("does not notice the end of the outage")
	}
	p.ProbeDone(now, nil)
	if rep := p.Grant(now+session-1, ask(t, 5)); !rep.OK {
		t.Errorf("the first one to reconnect ends a healthy leader: %+v", rep)
	}
	if rep := p.Grant(now+session, ask(t, 5)); rep.OK {
		t.Errorf("long after the outage: %+v", rep)
	}
}

func TestState(t *testing.T) {
	s := State{Key: "k", Wait: cluster.Duration(time.Second), Vetoed: map[string]int64{group: 4}}
	got, err := DecodeState(s.Encode())
	if err != nil || got.Key != "k" || got.Wait != s.Wait || got.Vetoed[group] != 4 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, text := range []string{``, `{}`, `{"v":2,"key":"k"}`, `{"v":1}`, `{"v":1,"key":"k","wait":"24h"}`, `null`} {
		if s, err := DecodeState([]byte(text)); err == nil {
			t.Errorf("%s: %+v", text, s)
		}
	}
}
