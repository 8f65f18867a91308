package transition

import (
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// idleOf returns how long no leader's work has run by the fence that is written last among actions: "-" for none.
func (s *script) idleOf(actions []Action) string {
	s.t.Helper()
	f := lastFence(s.t, s.m.opt.Paths, sent(s.t, actions).Ops)
	if f.Record.Idle == nil {
		return "-"
	}
	return f.Record.Idle.Rounded()
}

func (s *script) idle(actions []Action, want string) {
	s.t.Helper()
	if got := s.idleOf(actions); got != want {
		s.t.Errorf("without a leader's work for %s, want %s", got, want)
	}
}

// leftBy is a fence that another leader has left behind.
func leftBy(state cluster.FenceState, idle *cluster.Gap) func(*cluster.Snapshot) {
	return func(s *cluster.Snapshot) {
		fence("old", 6, state)(s)
		s.Fence.Record.Idle, s.Fence.Record.LeaseWait = idle, 0
	}
}

func exactly(d time.Duration) *cluster.Gap { return &cluster.Gap{For: cluster.Duration(d)} }

// watches makes the script go on from a snapshot with the term before, so that the next one shows changes.
func (s *script) watches() {
	s.m.vacancy.holderRead, s.m.vacancy.decision = true, 6
}

// What the fence or the decision says counts on from when it was read first, until READY.
func TestTheGapIsAddedUpToReady(t *testing.T) {
	for name, c := range map[string]struct {
		fence   *cluster.Gap
		state   cluster.FenceState
		elected *cluster.Gap
		want    [2]string // in HELD and READY
	}{
		"released, having been replaced":    {exactly(2 * time.Second), cluster.FenceReleased, nil, [2]string{"2.01s", "2.31s"}},
		"released, then elected":            {exactly(2 * time.Second), cluster.FenceReleased, exactly(5 * time.Second), [2]string{"5.01s", "5.31s"}},
		"gone without a word":               {exactly(time.Minute), cluster.FenceReady, cluster.AtLeast(5 * time.Second), [2]string{"at least 5.01s", "at least 5.31s"}},
		"gone after its successor's choice": {exactly(time.Minute), cluster.FenceReady, nil, [2]string{"at least 0s", "at least 300ms"}},
		"taken from":                        {cluster.AtMost(4 * time.Second), cluster.FenceSilent, cluster.AtMost(4 * time.Second), [2]string{"at most 4.01s", "at most 4.31s"}},
		"there was no leader":               {nil, cluster.FenceReleased, nil, [2]string{"-", "-"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			s.watches()
			elected := func(snap *cluster.Snapshot) { snap.Elected.Record.Leaderless = c.elected }
			s.on(s.saw(leftBy(c.state, c.fence), elected, current("old", 1)))
			s.after(10 * time.Millisecond)
			s.m.opt.Budget.LeaseWait = 0
			s.idle(s.on(s.saw(leftBy(c.state, c.fence), elected), "ACQUIRE"), c.want[0])
			s.on(done(TxAcquire), "Lease", "RunPreStart")
			s.startChild()
			s.after(300 * time.Millisecond)
			s.idle(s.on(ChildReady{}, "READY"), c.want[1])
		})
	}
}

// Nobody knows how old a record is that a member did not see appear: all daemons may have been stopped for an hour.
func TestWhatIsReadAtFirstBoundsTheGap(t *testing.T) {
	old, now := leftBy(cluster.FenceReleased, exactly(60*time.Millisecond)), func(d time.Duration) func(*cluster.Snapshot) {
		return func(s *cluster.Snapshot) { s.Elected.Record.Leaderless = exactly(d) }
	}
	unread := func(s *cluster.Snapshot) {
		s.HolderRead, s.Elected.Record.Term, s.Elected.Record.Incarnation = false, 6, "old"
	}
	read := func(s *cluster.Snapshot) { s.HolderRead = true }
	unreadable := func(s *cluster.Snapshot) { s.Fence.Err = cluster.ErrNoAuth }
	for name, c := range map[string]struct {
		saw  []func(*cluster.Snapshot) // first
		then []func(*cluster.Snapshot)
		want string
	}{
		"the fence":                          {then: []func(*cluster.Snapshot){old}, want: "at least 60ms"},
		"the decision":                       {then: []func(*cluster.Snapshot){old, now(time.Second)}, want: "at least 1s"},
		"an upper bound":                     {then: []func(*cluster.Snapshot){leftBy(cluster.FenceSilent, cluster.AtMost(time.Second))}, want: "at least 0s"},
		"the fence, after another's term":    {[]func(*cluster.Snapshot){unread}, []func(*cluster.Snapshot){old}, "at least 60ms"},
		"a fence that was unreadable":        {[]func(*cluster.Snapshot){unread, read, unreadable}, []func(*cluster.Snapshot){old}, "at least 60ms"},
		"a fence that it has seen change":    {[]func(*cluster.Snapshot){unread, read, fence("old", 6, cluster.FenceReady), current("old", 1)}, []func(*cluster.Snapshot){old}, "60ms"},
		"a decision that it has seen happen": {[]func(*cluster.Snapshot){unread}, []func(*cluster.Snapshot){old, now(time.Second)}, "1s"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			s.m.opt.Budget.LeaseWait = 0
			if c.saw != nil {
				s.on(s.saw(c.saw...))
			}
			s.idle(s.on(s.saw(c.then...), "ACQUIRE"), c.want)
		})
	}
}

// leads makes the member lead, after 1.5 s without a leader.
func (s *script) leads() {
	s.t.Helper()
	s.watches()
	s.on(s.saw(leftBy(cluster.FenceReleased, exactly(time.Second))), "ACQUIRE")
	s.on(done(TxAcquire), "Lease", "RunPreStart")
	s.startChild()
	s.after(500 * time.Millisecond)
	s.idle(s.on(ChildReady{}, "READY"), "1.5s")
	s.on(done(TxReady))
}

// FINAL is sent at a time that is not known.
func TestFinalBoundsTheGap(t *testing.T) {
	s := newScript(t)
	s.on(s.saw(leftBy(cluster.FenceReleased, exactly(time.Second))), "ACQUIRE")
	candidate, _ := entrusted(s.on(done(TxAcquire), "Lease", "RunPreStart"))
	s.startChild()
	s.on(ChildReady{}, "READY")
	leader, _ := entrusted(s.on(done(TxReady)))
	for want, ops := range map[string][]cluster.Op{"at least 1s": candidate, "at least 0s": leader} {
		if f := lastFence(t, s.m.opt.Paths, ops).Record; f.Idle == nil || f.Idle.Rounded() != want {
			t.Errorf("%+v, want %s", f.Idle, want)
		}
	}
}

// ZooKeeper is away: nobody knows when RELEASE arrives. But the host whose work that was knows when it ended, also after another session.
func TestAHostKnowsWhenItsOwnWorkEnded(t *testing.T) {
	s := newScript(t)
	s.leads()
	s.now = s.m.term.lease.deadline - s.b.Lease/3
	s.on(Tick{}, "StopTask")
	s.on(ChildDead{}, "RunPostStop")
	s.after(40 * time.Millisecond)
	s.idle(s.on(HookDone{}, "RELEASE"), "at least 40ms")
	s.after(3 * time.Second)
	s.on(done(TxRelease), "Lease")
	s.m.opt.Budget.LeaseWait = 0
	again := s.saw(fence("me", 7, cluster.FenceReleased), replacedBy("me", 8), func(snap *cluster.Snapshot) {
		snap.Fence.Record.Idle, snap.Fence.Record.LeaseWait = cluster.AtLeast(40*time.Millisecond), 0
	})
	s.idle(s.on(again, "ACQUIRE"), "3.04s")

	for name, change := range map[string]func(*LastWork){
		"3.04s": func(*LastWork) {},
		// Another one has led since.
		"at least 40ms": func(l *LastWork) { l.Term = 6 },
	} {
		next := newScript(t)
		next.now, next.m.opt.Budget.LeaseWait, next.m.last = s.now, 0, s.m.LastWork()
		change(&next.m.last)
		next.idle(next.on(again, "ACQUIRE"), name)
	}
}

// A READY whose reply was lost has begun a leadership, whatever has become of it since: what was before is over.
func TestAReadyWithoutAReplyEndsTheGap(t *testing.T) {
	led := func(snap *cluster.Snapshot) { snap.Fence.Record.Idle = exactly(1500 * time.Millisecond) }
	for name, c := range map[string]struct {
		before func(*script) // the reply is lost
		then   []func(*cluster.Snapshot)
		want   []string
	}{
		"its work has ended":   {func(s *script) { s.on(ChildDead{Status: "exited"}, "RunPostStop") }, nil, nil},
		"it is being replaced": {func(*script) {}, []func(*cluster.Snapshot){replacedBy("other", 8)}, []string{"StopTask"}},
		"it was revoked as well": {func(*script) {}, []func(*cluster.Snapshot){replacedBy("other", 8), func(snap *cluster.Snapshot) {
			snap.Fence.Record.End(cluster.AtLeast(0))
			snap.Fence.Record.State = cluster.FenceRevoked
		}}, []string{"StopTask"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			s.watches()
			s.on(s.saw(leftBy(cluster.FenceReleased, exactly(time.Second))), "ACQUIRE")
			s.on(done(TxAcquire), "Lease", "RunPreStart")
			s.startChild()
			s.after(500 * time.Millisecond)
			s.on(ChildReady{}, "READY")
			c.before(s)
			ended := s.now
			s.after(100 * time.Millisecond)
			s.on(TxDone{Tx: TxReady, Err: cluster.ErrUnknown})
			s.after(100 * time.Millisecond)
			s.on(s.saw(append(append(s.mine(), led), c.then...)...), c.want...)
			if c.want != nil {
				ended = s.now
				s.on(ChildDead{}, "RunPostStop")
			}
			s.after(300 * time.Millisecond)
			release := s.on(HookDone{}, "RELEASE")
			s.idle(release, (&cluster.Gap{For: cluster.Duration(s.now - ended)}).Rounded())
			if f := released(t, sent(t, release)); !f.Led {
				t.Errorf("left behind: %+v", f)
			}
			if got, want := s.m.LastWork(), (LastWork{7, ended}); got != want {
				t.Errorf("last work %+v, want %+v", got, want)
			}
		})
	}
}

// Work that was to start again, and did not, has not worked since it ended.
func TestWorkThatDidNotStartAgainAddsToTheGap(t *testing.T) {
	for want, unused := range map[string]bool{"3.5s": true, "1s": false} {
		s := newScript(t)
		s.leads()
		s.neverLapses()
		s.on(ChildDead{Status: "exited"})
		s.after(time.Second)
		s.on(Tick{}, "StartChild")
		s.on(ChildStarted{})
		s.after(1500 * time.Millisecond)
		s.on(ChildFailed{Err: cluster.ErrUnknown}, "StopTask")
		s.on(ChildDead{Status: "was not promoted", Unused: unused}, "RunPostStop")
		s.after(time.Second)
		s.idle(s.on(HookDone{}, "RELEASE"), want)
	}
}

// While a host has no room for its work, a member only notes how long there is no leader.
func TestAMemberWithoutRoomTimesTheGap(t *testing.T) {
	s := newScript(t)
	s.m.opt.Budget.LeaseWait = 0
	s.watches()
	s.on(Waits{Snapshot: s.saw(leftBy(cluster.FenceReleased, exactly(time.Second))).Snapshot})
	s.after(2 * time.Second)
	s.idle(s.on(s.saw(leftBy(cluster.FenceReleased, exactly(time.Second))), "ACQUIRE"), "3s")
}

// What applications still do under their leases is work.
func TestApplicationLeasesThatAreLeftLeaveNoGap(t *testing.T) {
	s := lend(t)
	s.on(Quit{Reason: "stop"}, "StopTask")
	s.on(Quit{Reason: "stop"}, "KillTask")
	s.on(ChildDead{}, "RunPostStop")
	s.after(time.Second)
	s.idle(s.on(HookDone{}, "RELEASE"), "at least 0s")
	if s.m.LastWork() != (LastWork{}) {
		t.Errorf("last work %+v", s.m.LastWork())
	}
}

// When work has ended that was started again since, and may be used by applications by then, says nothing.
func TestApplicationLeasesAfterARestart(t *testing.T) {
	s := newScript(t)
	s.leads()
	s.neverLapses()
	s.on(ChildDead{Status: "exited"})
	s.after(time.Second)
	s.on(Tick{}, "StartChild")
	s.on(Lent{Term: 7})
	s.on(ChildStarted{})
	s.after(time.Second)
	s.on(Quit{Reason: "stop"}, "StopTask")
	s.on(ApplicationLeasesOver{Term: 7})
	s.on(ChildDead{Status: "was not promoted", Unused: true}, "RunPostStop")
	s.after(time.Second)
	s.idle(s.on(HookDone{}, "RELEASE"), "1s")
}

// The reply to READY may come after the end of the work.
func TestAReplyAfterTheEndTellsWhenTheWorkEnded(t *testing.T) {
	s := newScript(t)
	s.declare()
	s.on(ChildDead{Status: "exited"}, "RunPostStop")
	ended := s.now
	s.after(time.Second)
	s.on(done(TxReady))
	if got, want := s.m.LastWork(), (LastWork{7, ended}); got != want {
		t.Errorf("last work %+v, want %+v", got, want)
	}
}
