package transition

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/transition/failsafe"
)

// vetoes returns a member that would veto for x in its next step.
func vetoes(t *testing.T) *script {
	t.Helper()
	s := newFailsafe(t)
	s.m.snap, s.m.fresh = s.saw(left("me"), replacedBy("x", 7)).Snapshot, true
	s.m.succession = succession{gone: 6, since: s.now, remembered: 6}
	s.m.now = s.now
	return s
}

// vetoed returns what the member does in order to veto.
func (s *script) vetoed() []Action {
	s.m.veto()
	out := s.m.out
	s.m.out = nil
	return out
}

// Whoever vetoes says that none of its own work is left, and that its promise has lapsed (S1). The rest is for liveness.
func TestWhoDoesNotVeto(t *testing.T) {
	s := vetoes(t)
	if tx := sent(t, s.vetoed()); tx.Tx != TxVeto || tx.Deadline != s.now+s.b.Lease {
		t.Fatalf("%+v", tx)
	}
	for name, change := range map[string]func(*Machine){
		"it takes no part":            func(m *Machine) { m.opt.Failsafe = nil },
		"it holds a term":             func(m *Machine) { m.term.held = true },
		"it gives a term up":          func(m *Machine) { m.term.stop = &Stop{} },
		"it undoes its work":          func(m *Machine) { m.term.task = taskClean },
		"its work runs":               func(m *Machine) { m.term.running = true },
		"it fences":                   func(m *Machine) { m.term.fencing.node = "x" },
		"its membership is over":      func(m *Machine) { m.ended = "expired" },
		"a transaction is under way":  func(m *Machine) { m.tx.pending = TxVeto },
		"its snapshot is old":         func(m *Machine) { m.fresh = false },
		"the fence was not read":      func(m *Machine) { m.snap.HolderRead = false },
		"current exists":              func(m *Machine) { m.snap.Current.Exists = true },
		"there is no fence":           func(m *Machine) { m.snap.Fence.Exists = false },
		"the fence is damaged":        func(m *Machine) { m.snap.Fence.Err = errors.New("damaged") },
		"the fence has no promises":   func(m *Machine) { m.snap.Fence.Record.Failsafe = nil },
		"a record of a newer version": func(m *Machine) { m.snap.Slots.Err = &cluster.NewerVersionError{} },
		"it saw another term's end":   func(m *Machine) { m.succession.gone = 5 },
		"nobody is elected":           func(m *Machine) { m.snap.Elected.Exists = false },
		"nobody is elected anew":      func(m *Machine) { m.snap.Elected.Record.Term = 6 },
		"it is elected itself":        func(m *Machine) { m.snap.Elected.Record.Incarnation = "me" },
		"it was refused lately":       func(m *Machine) { m.retryAt = m.now + 1 },
		"it has another directory":    func(m *Machine) { m.opt.Failsafe.Key = "another" },
		"it is another host":          func(m *Machine) { m.opt.Self.ID = "y" },
	} {
		s := vetoes(t)
		change(s.m)
		if got := s.vetoed(); len(got) != 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	s = vetoes(t)
	s.m.succession.remembered = 5
	if got := s.vetoed(); len(got) != 1 || got[0] != (Remember{Term: 6}) {
		t.Errorf("it may still promise something: %+v", got)
	}
	s = vetoes(t) // and will not acquire
	s.m.snap.Elected.Record.Incarnation, s.m.quit = "me", &Stop{}
	if got := s.vetoed(); sent(t, got).Tx != TxVeto {
		t.Errorf("%+v", got)
	}
}

// A fence that was lost may have had promises. Whoever can have promised something makes sure that it promises nothing any more.
func TestALostFenceMayHaveHadPromises(t *testing.T) {
	revoked := fence("old", 6, cluster.FenceRevoked)
	s := newFailsafe(t)
	got := s.on(s.saw(revoked), "Remember")
	if got[0] != (Remember{Term: 6}) {
		t.Errorf("%+v", got[0])
	}
	s.on(Remembered{Term: 6}, "ACQUIRE")

	s = newScript(t) // it can't have promised anything
	s.on(s.saw(revoked), "ACQUIRE")
	for name, change := range map[string]func(*cluster.Snapshot){
		"not lost": fence("old", 6, cluster.FenceReady),
		"vetoed": func(s *cluster.Snapshot) {
			left("me")(s)
			s.Fence.Record.State, s.Fence.Record.Failsafe.Veto = cluster.FenceRevoked, "me"
		},
	} {
		s := newFailsafe(t)
		if tx := sent(t, s.m.Step(s.now, s.saw(change))); tx.Tx != TxAcquire {
			t.Errorf("%s: does not acquire", name)
		}
	}
}

// The limit counts from the end of this term, and of no other.
func TestTheLimitOfAnotherTermIsNotOver(t *testing.T) {
	s := newFailsafe(t)
	limited := func(term int64) func(*cluster.Snapshot) {
		return func(snap *cluster.Snapshot) {
			left("a")(snap)
			snap.Fence.Record.Term, snap.Fence.Record.Failsafe.Max = term, cluster.Duration(time.Minute)
		}
	}
	s.on(s.saw(limited(9), replacedBy("x", 10)), "CurrentGone")
	s.after(time.Hour)
	s.on(s.saw(limited(6)))
	if got := s.m.Wake(); got != 0 {
		t.Errorf("wakes after %s", got-s.now)
	}
}

func TestWhatCannotBeRememberedIsTriedAgain(t *testing.T) {
	s := newFailsafe(t)
	s.on(s.saw(left("me"), replacedBy("x", 7)), "CurrentGone", "Remember")
	s.on(Remembered{Term: 5})
	if said := notes(s.on(Remembered{Term: 6, Err: errors.New("the disk is full")})); !strings.Contains(fmt.Sprint(said), "the disk is full") {
		t.Errorf("says %q", said)
	}
	if got := s.m.Wake(); got != s.now+s.b.Renew {
		t.Errorf("wakes after %s", got-s.now)
	}
	s.after(s.b.Renew - 1)
	s.on(Tick{})
	s.after(1)
	s.on(Tick{}, "Remember")
	s.on(Remembered{Term: 6}, "VETO")

	s = newFailsafe(t) // a candidate does not try all the time either
	s.on(s.saw(left("me")), "CurrentGone", "Remember")
	s.on(Remembered{Term: 6, Err: errors.New("the disk is full")})
	s.after(s.b.Renew - 1)
	s.on(Tick{})
	s.after(1)
	s.on(Tick{}, "Remember")
}

func TestAVetoNamesTheMember(t *testing.T) {
	s := leadingFailsafe(t)
	asked := s.round()
	foreign := asked[0].Request
	foreign.Start++
	s.on(RoundReply{Reply: failsafe.Reply{Request: foreign, Reason: failsafe.ReasonVetoed}})
	s.on(RoundReply{Reply: failsafe.Reply{Request: asked[0].Request, Reason: failsafe.ReasonContact}})
	s.on(RoundReply{Reply: failsafe.Reply{Request: asked[0].Request, Reason: failsafe.ReasonVetoed}}, "StopTask")
	if got := s.m.term.stop.Reason; got != "a has allowed another member to take over" {
		t.Error(got)
	}
}

// A member that may promise soon is asked again then, but not all the time.
func TestWhenAMemberIsAskedAgain(t *testing.T) {
	newRound := func() (*script, failsafe.Message) {
		s := leadingFailsafe(t)
		return s, s.round()[0]
	}
	s, _ := newRound()
	patience := failsafe.Patience(s.b.Lease)
	for retry, want := range map[time.Duration]time.Duration{
		0: patience, 1: patience / 8, patience / 8: patience / 8, patience / 2: patience / 2, 2 * patience: patience,
	} {
		s, asked := newRound()
		s.on(RoundReply{Reply: failsafe.Reply{Request: asked.Request, Reason: failsafe.ReasonProbing, Retry: cluster.Duration(retry)}})
		if got := s.m.roundAt() - s.now; got != want {
			t.Errorf("after %s: %s, want %s", retry, got, want)
		}
		s.m.retryAt, s.m.term.failsafe.setAt = 0, 1
		if got := s.m.Wake() - s.now; got != want {
			t.Errorf("after %s: wakes after %s, want %s", retry, got, want)
		}
		s.after(want - 1)
		s.on(Tick{})
		s.after(1)
		s.on(Tick{}, "SendRound")
	}
}

// While members may promise, the work is asked to stop later.
func TestTheGraceBeforeTheEndOfTheLease(t *testing.T) {
	s := newFailsafe(t)
	s.lead()
	if got := s.m.grace(); got != s.b.Grace || len(s.m.Promisers()) != 0 {
		t.Errorf("nobody has to promise: %s", got)
	}
	s = newFailsafe(t)
	s.leadWith("a")
	if got, want := s.m.grace(), cluster.FailsafeGrace(s.b.Lease); got != want || got != s.b.Lease/3 || want >= s.b.Grace {
		t.Errorf("%s, want %s", got, want)
	}
	s.m.opt.Budget.Grace = time.Millisecond
	if got := s.m.grace(); got != time.Millisecond {
		t.Errorf("a shorter one: %s", got)
	}
	s = newScript(t) // takes no part
	s.lead()
	if s.m.grace() != s.b.Grace || s.m.Promisers() != nil {
		t.Errorf("%s, %v", s.m.grace(), s.m.Promisers())
	}
}

// Without a SETM of unknown outcome a refusal has one meaning. With one, the fence says which.
func TestARefusedRENEWInFailsafeMode(t *testing.T) {
	s := newFailsafe(t)
	s.leadWith("a")
	s.renewed(s.now, errRefused, "StopTask")

	unknown := func() *script {
		s := leadingFailsafe(t)
		s.on(s.joined(), "SETM")
		s.m.Step(s.now, TxDone{Tx: TxSetMembers, Err: cluster.ErrUnknown})
		s.m.retryAt = s.now + s.b.Lease
		s.m.term.failsafe.due = s.now + s.b.Lease
		return s
	}
	s = unknown() // nothing was changed: RENEW is posted again
	s.withdrawn()
	s.on(s.saw(append(s.mine(), func(snap *cluster.Snapshot) { snap.Fence.Stat.Version = 11 })...))
	if got := s.posted(); len(got.Ops) == 0 || got.Held.Fence != 11 {
		t.Errorf("%+v", got)
	}
	s.renewed(s.now, errRefused)
	s.withdrawn()
	s.on(s.saw(append(s.mine(), func(snap *cluster.Snapshot) { snap.Fence.Stat.Version = 11 })...), "StopTask")
	if got := s.m.term.stop.Reason; !strings.Contains(got, "RENEW was refused") {
		t.Error(got)
	}
	s.withdrawn()

	s = unknown() // it took effect, so that was the reason
	s.on(s.saw(append(s.mine(), func(snap *cluster.Snapshot) { snap.Fence.Stat.Version = 11 })...))
	s.renewed(s.now, errRefused)
	both := s.m.record(s.m.term.failsafe.sending)
	s.on(s.saw(append(s.mine(), func(snap *cluster.Snapshot) { snap.Fence.Stat.Version, snap.Fence.Record.Failsafe = 12, both })...))
	if got := s.posted(); len(got.Ops) == 0 || got.Held.Fence != 12 {
		t.Errorf("%+v", got)
	}
}

func TestWhenAMemberWakesForASuccession(t *testing.T) {
	barred := func(m *Machine) {
		m.snap.Elected.Record.Incarnation = "me"
		m.snap.Fence.Record.Failsafe.Members, m.snap.Fence.Record.Failsafe.Max = []cluster.FailsafeMember{{ID: "x"}}, 1
	}
	for name, c := range map[string]struct {
		change func(*Machine)
		want   time.Duration // counted from the end of current; 0 for never
	}{
		"a candidate of the fence": {func(*Machine) {}, 3},
		"no end was seen":          {func(m *Machine) { m.succession.gone = 0 }, 0},
		"the end of another term":  {func(m *Machine) { m.succession.gone = 5 }, 0},
		"the fence is damaged":     {func(m *Machine) { m.snap.Fence.Err = fmt.Errorf("damaged") }, 0},
		"it takes no part":         {func(m *Machine) { m.opt.Failsafe = nil }, 0},
		"nobody is elected anew":   {func(m *Machine) { m.snap.Elected.Record.Term = 6 }, 0},
		"the limit":                {barred, -1},
		"the limit, takes no part": {func(m *Machine) { barred(m); m.opt.Failsafe = nil }, -1},
		"another term's limit":     {func(m *Machine) { barred(m); m.succession.gone = 5 }, 0},
	} {
		s := newFailsafe(t)
		s.m.snap, s.m.fresh = s.saw(left("me", "x"), replacedBy("x", 7)).Snapshot, true
		s.m.succession = succession{gone: 6, since: s.now}
		c.change(s.m)
		s.on(Tick{})
		want := s.now + c.want*s.b.LeaseWait
		switch c.want {
		case 0:
			want = 0
		case -1:
			want = s.now + s.m.snap.Fence.Record.CapWait()
		}
		if got := s.m.Wake(); got != want {
			t.Errorf("%s: wakes at %s, want %s", name, got, want)
		}
	}
}

// A deputy that has to refuse promises before it takes over does so at once; if it can't, again after a while if the holder is still silent.
func TestADeputyRefusesPromisesAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		failed func(*script) Remembered
		pause  func(*script) time.Duration
	}{
		"the disk is full": {
			func(*script) Remembered { return Remembered{Term: 6, Err: errors.New("the disk is full")} },
			func(s *script) time.Duration { return s.b.Renew },
		},
		"it is bound": {
			func(s *script) Remembered { return Remembered{Term: 6, Bound: s.now + s.b.LeaseWait} },
			func(s *script) time.Duration { return s.b.LeaseWait },
		},
	} {
		t.Run(name, func(t *testing.T) { refusesAtOnce(t, c.failed, c.pause) })
	}
}

func refusesAtOnce(t *testing.T, failed func(*script) Remembered, pause func(*script) time.Duration) {
	t.Helper()
	s := newFailsafe(t)
	s.on(s.saw(left("me", "x"), replacedBy("x", 7)), "CurrentGone")
	if s.m.MaySucceed() {
		t.Fatal("it may still promise something")
	}
	if got := s.m.Wake(); got == 0 || got > s.now+time.Millisecond {
		t.Errorf("wakes at %s, and it is %s", got, s.now)
	}
	s.on(Tick{}, "Remember")
	if got := s.m.Wake(); got != 0 && got <= s.now+time.Millisecond {
		t.Errorf("wakes again at %s before it has an answer", got)
	}
	s.on(failed(s))
	if s.m.MaySucceed() {
		t.Error("it has recorded nothing, and may succeed")
	}
	s.on(Tick{})
	if got := s.m.Wake(); got != s.now+pause(s) {
		t.Errorf("tries again at %s, and it is %s", got, s.now)
	}
	s.after(pause(s) - 1)
	s.m.MaySucceed()
	s.on(Tick{})
	s.m.MaySucceed() // the last time: the holder renews
	s.after(1)
	s.on(Tick{})
	s.m.MaySucceed()
	s.on(Tick{}, "Remember")
	s.on(Remembered{Term: 6})
	if !s.m.MaySucceed() {
		t.Error("it refuses promises, and may not succeed")
	}
}
