package transition

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// script drives a machine and checks its actions, one line per step.
type script struct {
	t   *testing.T
	m   *Machine
	now time.Duration
	b   cluster.Budget

	posts []Renew // all, in order
}

func newScript(t *testing.T) *script {
	b, err := cluster.NewBudget(6*time.Second, 0, 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	b.Handover = 0 // see leaving_test.go
	return &script{t: t, b: b, now: time.Hour, m: New(Options{
		Paths: cluster.Paths{Root: "/c"}, Self: cluster.Incarnation{Name: "me", ID: "me"}, Site: "dc1", Budget: b, Wall: time.Now,
		RestartMax: 2, RestartWindow: time.Minute, RestartBackoff: time.Second,
	})}
}

// on applies an event. want has the names of the actions, of transactions for Send; Reread, Announce, Note, Entrust and Renew
// are left out.
func (s *script) on(ev Event, want ...string) []Action {
	s.t.Helper()
	if e, is := ev.(RenewDone); is && e.Term == s.posted().Term && e.Held == s.posted().Held {
		s.posts = append(s.posts, Renew{}) // it is good for one renewal
	}
	actions := s.m.Step(s.now, ev)
	got := []string{}
	for _, a := range actions {
		switch a := a.(type) {
		case Reread, Announce, Note, Entrust:
		case Send:
			got = append(got, string(a.Tx))
		case Renew:
			s.posts = append(s.posts, a)
		default:
			got = append(got, reflect.TypeOf(a).Name())
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		s.t.Errorf("on %T%+v: %v, want %v (phase %s)", ev, ev, got, want, s.m.Phase())
	}
	return actions
}

func (s *script) after(d time.Duration) { s.now += d }

// posted returns the RENEW that was posted last; one without Ops is withdrawn.
func (s *script) posted() Renew {
	if len(s.posts) == 0 {
		return Renew{}
	}
	return s.posts[len(s.posts)-1]
}

// renewed reports the outcome of the RENEW that was posted last, sent at a time.
func (s *script) renewed(sent time.Duration, err error, want ...string) []Action {
	s.t.Helper()
	p := s.posted()
	if len(p.Ops) == 0 {
		s.t.Error("no RENEW is posted")
	}
	return s.on(RenewDone{Term: p.Term, Held: p.Held, Sent: sent, Err: err}, want...)
}

// withdrawn checks that no RENEW is posted.
func (s *script) withdrawn() {
	s.t.Helper()
	if p := s.posted(); len(p.Ops) != 0 {
		s.t.Errorf("posted: %+v", p)
	}
}

var errRefused = &cluster.TxError{Index: 1, Err: cluster.ErrBadVersion}

// those returns the actions of one type.
func those[A Action](actions []Action) (out []A) {
	for _, a := range actions {
		if a, is := a.(A); is {
			out = append(out, a)
		}
	}
	return out
}

// one returns the only action of one type.
func one[A Action](t *testing.T, actions []Action) A {
	t.Helper()
	found := those[A](actions)
	if len(found) != 1 {
		t.Fatalf("%d actions: %+v", len(found), found)
	}
	return found[0]
}

// sent returns the transaction among actions.
func sent(t *testing.T, actions []Action) Send {
	t.Helper()
	return one[Send](t, actions)
}

const session = 0xbeef

// saw returns a current snapshot in which me is elected in term 7.
func (s *script) saw(change ...func(*cluster.Snapshot)) Saw {
	snap := cluster.Snapshot{
		At: s.now, Self: s.m.opt.Self, Session: session, HolderRead: true,
		Elected: cluster.Stored[cluster.Elected]{Exists: true, Stat: cluster.Stat{Version: 3}, Record: cluster.Elected{Node: "me", Incarnation: "me", Term: 7}},
		Fence:   cluster.Stored[cluster.Fence]{Exists: true, Record: cluster.Fence{State: cluster.FenceReleased}},
	}
	for _, c := range change {
		c(&snap)
	}
	return Saw{Snapshot: snap}
}

func fence(id string, term int64, state cluster.FenceState) func(*cluster.Snapshot) {
	return func(s *cluster.Snapshot) {
		s.Fence = cluster.Stored[cluster.Fence]{Exists: true, Stat: cluster.Stat{Version: 10}, Record: cluster.Fence{
			Node: id, Incarnation: id, Term: term, State: state, LeaseWait: cluster.Duration(4 * time.Second)}}
	}
}

func current(id string, owner int64) func(*cluster.Snapshot) {
	return func(s *cluster.Snapshot) {
		s.Current = cluster.Stored[cluster.Current]{Exists: true, Stat: cluster.Stat{Owner: owner}, Record: cluster.Current{Incarnation: id, Term: 7}}
	}
}

func replacedBy(id string, term int64) func(*cluster.Snapshot) {
	return func(s *cluster.Snapshot) {
		s.Elected.Stat.Version++
		s.Elected.Record.Node, s.Elected.Record.Incarnation, s.Elected.Record.Term = id, id, term
	}
}

func done(tx Tx) TxDone {
	return TxDone{Tx: tx, Results: []cluster.Result{{}, {}, {Version: 11}, {Version: 1}}}
}

func refused(tx Tx, index int, err error) TxDone {
	return TxDone{Tx: tx, Err: &cluster.TxError{Index: index, Err: err}}
}

// prepare takes the machine to its pre_start hook, start from there to the start of its child, declare to the sending
// of READY, and lead to READY, without a lease wait.
func (s *script) prepare() {
	s.t.Helper()
	s.on(s.saw(), "ACQUIRE")
	s.on(done(TxAcquire), "Lease", "RunPreStart")
}

func (s *script) start() {
	s.t.Helper()
	s.prepare()
	s.startChild()
}

func (s *script) startChild() {
	s.t.Helper()
	s.on(HookDone{}, "StartChild")
	s.on(ChildStarted{})
}

func (s *script) declare() {
	s.t.Helper()
	s.start()
	s.on(ChildReady{}, "READY")
}

func (s *script) lead() {
	s.t.Helper()
	s.declare()
	s.on(done(TxReady))
	if s.m.Phase() != Leading {
		s.t.Fatalf("phase %s", s.m.Phase())
	}
}

// neverLapses makes the lease last, where it does not matter.
func (s *script) neverLapses() {
	s.m.term.lease.deadline = s.now + time.Hour
	s.m.term.lease.renewed = s.m.term.lease.deadline
}

// endWork ends the work of a leader that stops, up to its RELEASE.
func (s *script) endWork() {
	s.t.Helper()
	s.on(ChildDead{}, "RunPostStop")
	s.on(HookDone{}, "RELEASE")
}

func (s *script) mine() []func(*cluster.Snapshot) {
	return []func(*cluster.Snapshot){fence("me", 7, cluster.FenceReady), current("me", session)}
}

// If pre_start ends when the lease is about to end, the child is not started: its start would overlap with post_stop.
func TestNoStartWhenTheLeaseIsAboutToEnd(t *testing.T) {
	s := newScript(t)
	s.prepare()
	s.after(1400 * time.Millisecond) // of 2.7 s, half of which is for the stop
	s.on(HookDone{}, "RunPostStop")
	if s.m.Phase() != Releasing {
		t.Errorf("phase %s", s.m.Phase())
	}
}

// released decodes the fence that a transaction leaves behind.
func released(t *testing.T, tx Send) cluster.Fence {
	t.Helper()
	return lastFence(t, cluster.Paths{Root: "/c"}, tx.Ops).Record
}

// lastFence decodes the fence that operations leave behind.
func lastFence(t *testing.T, p cluster.Paths, ops []cluster.Op) cluster.Stored[cluster.Fence] {
	t.Helper()
	i := slices.IndexFunc(ops, func(op cluster.Op) bool { return op.Kind == cluster.OpSet && op.Path == p.Leader() })
	if i < 0 {
		t.Fatal("the fence is not written")
	}
	return cluster.ReadFence(p.Leader(), ops[i].Data, cluster.Stat{Version: ops[i].Version + 1, Time: time.Now()}, true)
}

func TestATermIsAcquiredOnce(t *testing.T) {
	s := newScript(t)
	s.on(s.saw(fence("me", 7, cluster.FenceReleased)))
	s.on(s.saw(fence("other", 9, cluster.FenceReleased)))
}

// After a wipe terms may begin below one that was held: an incarnation that cannot acquire is replaced by a new one.
func TestLowerTermsEndTheSession(t *testing.T) {
	s := newScript(t)
	s.lead()
	s.on(s.saw(replacedBy("me", 3)), "StopTask")
	s.on(ChildDead{}, "RunPostStop")
	s.on(HookDone{}, "Lease", "End")
	if s.m.Phase() != Ended {
		t.Errorf("phase %s", s.m.Phase())
	}
}

func TestLease(t *testing.T) {
	s := newScript(t)
	s.lead()
	if p := s.posted(); p.Term != 7 || p.Held != s.m.term.holding || len(p.Ops) != 4 || p.Due != s.now+s.b.Renew || p.Deadline != s.now+s.b.Lease {
		t.Errorf("posted: %+v", p)
	}
	s.after(s.b.Renew)
	sentAt := s.now
	s.after(100 * time.Millisecond)
	s.renewed(sentAt, nil, "Lease")
	if got, want := s.m.Deadline(), sentAt+s.b.Lease; got != want {
		t.Errorf("lease until %s, want D after the sending of RENEW, %s", got, want)
	}
	if p := s.posted(); p.Due != sentAt+s.b.Renew || p.Deadline != sentAt+s.b.Lease {
		t.Errorf("the next one is due at %s, and the lease ends at %s", p.Due, p.Deadline)
	}
	// From now on there is no reply: first a graceful stop, then the end of the lease.
	late := s.posted()
	s.now = s.m.Deadline() - s.b.Grace
	actions := s.on(Tick{}, "StopTask")
	if why, ok := actions[0].(Note); !ok || !strings.Contains(why.Text, "ZooKeeper does not answer") {
		t.Errorf("no reason to stop is logged: %v", actions)
	}
	if stop := actions[1].(StopTask); stop.Grace > s.b.Grace {
		t.Errorf("stop within %s, the lease lasts %s", stop.Grace, s.b.Grace)
	}
	s.now = s.m.Deadline()
	// A late reply does not revive the lease, even if it is the first event at its end.
	s.on(RenewDone{Term: late.Term, Held: late.Held, Sent: s.now - 1}, "KillTask")
	s.withdrawn()
	s.on(ChildDead{Status: "was killed"}, "RunPostStop")
	s.on(HookDone{}, "RELEASE")
	s.after(s.b.Renew)
	s.on(Tick{})
	s.withdrawn()
}

func TestAShortInterruptionChangesNothing(t *testing.T) {
	s := newScript(t)
	acquired := s.now
	s.lead()
	for _, err := range []error{cluster.ErrUnknown, cluster.ErrNotSent, cluster.ErrSessionEnded} {
		s.after(s.b.Renew / 2)
		s.renewed(s.now, err)
		if p := s.posted(); len(p.Ops) != 4 || p.Due != max(acquired+s.b.Renew, s.now+s.b.Renew/4) {
			t.Errorf("after %v: posted %+v", err, p)
		}
	}
	s.now = s.m.Deadline() - s.b.Grace - time.Millisecond
	s.on(Tick{})
	s.renewed(s.now, nil, "Lease")
	if s.m.Phase() != Leading {
		t.Errorf("phase %s", s.m.Phase())
	}
}

func TestLostReplies(t *testing.T) {
	t.Run("ACQUIRE was applied", func(t *testing.T) {
		s := newScript(t)
		s.on(s.saw(), "ACQUIRE")
		sentAt := s.now
		stale := s.saw()
		s.after(time.Second)
		s.on(TxDone{Tx: TxAcquire, Err: cluster.ErrUnknown})
		s.on(stale) // read before the transaction ended: ignored
		s.on(s.saw(fence("me", 7, cluster.FenceHeld), current("me", session)), "Lease", "RunPreStart")
		if s.m.Deadline() != sentAt+s.b.Lease || s.m.term.holding.Fence != 10 {
			t.Errorf("lease counts from %s, %+v", s.m.Deadline()-s.b.Lease, s.m.term.holding)
		}
	})
	t.Run("a second ACQUIRE was sent, as the first was not seen", func(t *testing.T) {
		for name, second := range map[string]TxDone{
			"refused": refused(TxAcquire, 2, cluster.ErrBadVersion), "unknown": {Tx: TxAcquire, Err: cluster.ErrUnknown},
		} {
			s := newScript(t)
			s.on(s.saw(), "ACQUIRE")
			sentAt := s.now
			s.on(TxDone{Tx: TxAcquire, Err: cluster.ErrUnknown})
			s.after(s.b.Renew)
			s.on(s.saw(), "ACQUIRE") // a server lagged
			s.on(second)
			s.on(s.saw(fence("me", 7, cluster.FenceHeld), current("me", session)), "Lease", "RunPreStart")
			if s.m.Deadline() != sentAt+s.b.Lease {
				t.Errorf("%s: the lease ends %s after the first was sent", name, s.m.Deadline()-sentAt)
			}
		}
	})
	t.Run("ACQUIRE took effect too late: released", func(t *testing.T) {
		s := newScript(t)
		s.on(s.saw(), "ACQUIRE")
		s.on(TxDone{Tx: TxAcquire, Err: cluster.ErrUnknown})
		s.after(s.b.Lease)
		release := sent(t, s.on(s.saw(fence("me", 7, cluster.FenceHeld), current("me", session)), "RELEASE"))
		if f := released(t, release); !f.Requested || f.Stopping != f.Incarnation {
			t.Errorf("it earns a strike, or is elected again before another member has been: %+v", f)
		}
		s.on(done(TxRelease), "Lease", "End")
	})
	t.Run("RELEASE was applied", func(t *testing.T) {
		s := newScript(t)
		s.lead()
		s.on(Quit{Reason: "stop"}, "StopTask")
		s.endWork()
		s.on(TxDone{Tx: TxRelease, Err: cluster.ErrUnknown})
		s.after(time.Millisecond)
		s.on(s.saw(fence("me", 7, cluster.FenceReleased)), "Lease", "End")
	})
	t.Run("RELEASE was not applied", func(t *testing.T) {
		s := newScript(t)
		s.lead()
		s.on(Quit{Reason: "stop"}, "StopTask")
		s.endWork()
		s.on(TxDone{Tx: TxRelease, Err: cluster.ErrUnknown})
		s.after(s.b.Renew)
		s.on(s.saw(s.mine()...), "RELEASE")
	})
}

// An ACQUIRE that was too early costs one round trip, but READY does not have to wait for its pause.
func TestARefusedAcquireDoesNotDelayReady(t *testing.T) {
	s := newScript(t)
	s.on(s.saw(), "ACQUIRE")
	s.on(refused(TxAcquire, 2, cluster.ErrBadVersion))
	s.on(s.saw(fence("other", 6, cluster.FenceReleased)), "ACQUIRE")
	s.on(done(TxAcquire), "Lease", "RunPreStart")
	s.startChild()
	s.on(ChildReady{}, "READY")
}

func TestChildThatExitsIsRestartedThenGivenUp(t *testing.T) {
	s := newScript(t)
	s.lead()
	for range 2 {
		s.on(ChildDead{Status: "exited with status 1"})
		s.after(time.Second)
		s.on(Tick{}, "StartChild")
		s.renewed(s.now, nil, "Lease")
		s.on(ChildStarted{})
		s.on(ChildReady{})
		if s.m.Phase() != Leading {
			t.Fatalf("phase %s", s.m.Phase())
		}
	}
	s.on(ChildDead{Status: "exited with status 1"}, "RunPostStop")
	release := sent(t, s.on(HookDone{}, "RELEASE"))
	if f := released(t, release); f.Requested || !strings.Contains(f.Reason, "status 1, 3 times") {
		t.Errorf("left behind: %+v", f)
	}
}

// The fence names the lease znode, or nobody could take over before the session has ended.
func TestACQUIRENamesTheLeaseZnode(t *testing.T) {
	s := newScript(t)
	s.m.opt.LeaseZnode = "/c/.leases/me-1"
	ops := sent(t, s.on(s.saw(), "ACQUIRE")).Ops
	f := cluster.ReadFence("/c/leader", ops[cluster.ResultFence].Data, cluster.Stat{Time: time.Now()}, true)
	if f.Record.LeaseZnode != s.m.opt.LeaseZnode {
		t.Errorf("the fence is %+v, %v", f.Record, f.Err)
	}
}

// A member that reads that it counts as silent ends, so that it can register again and be elected.
func TestASilentMemberEnds(t *testing.T) {
	s := newScript(t)
	saw := s.saw()
	saw.Snapshot.Elected.Record.Silent = []string{"x", "me"}
	s.on(saw, "End")
}

// What keeps RELEASE from being answered concerns the session, and so all of its groups. A refusal is an answer.
func TestASessionWithoutAnAnswerToRELEASEEnds(t *testing.T) {
	s := newScript(t)
	s.lead()
	s.on(Quit{Reason: "stop", Failed: true}, "StopTask")
	s.m.quit = nil // as after a failure of the work: the membership goes on
	s.on(ChildDead{Status: "ended"}, "RunPostStop")
	s.on(HookDone{}, "RELEASE")
	lost := func() Event { return TxDone{Tx: TxRelease, Err: cluster.ErrUnknown} }
	still := func() Event { return s.saw(fence("me", 7, cluster.FenceReady), current("me", session)) }
	s.now += s.b.Session / 2
	s.on(lost())
	s.now += s.b.Renew
	s.on(still(), "RELEASE")
	for _, answer := range []Event{refused(TxRelease, 1, cluster.ErrNoAuth), TxDone{Tx: TxRelease, Err: cluster.ErrNotSent}} {
		s.on(answer) // it counts from the next attempt
		s.now += s.b.Renew
		s.on(still(), "RELEASE")
	}
	s.now += 2*s.b.Session - 1
	s.on(lost())
	s.now++
	s.on(still(), "EndSession")
}
