package transition

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/transition/failsafe"
)

// written returns the fence that a transaction writes.
func written(t *testing.T, tx Send) cluster.Fence {
	t.Helper()
	read := cluster.ReadFence("/c/leader", tx.Ops[cluster.ResultFence].Data, cluster.Stat{Version: 1}, true)
	if !read.Readable() {
		t.Fatalf("%s: %v", tx.Tx, read.Err)
	}
	return read.Record
}

// saysNothing reports whether a step neither asks for promises nor changes who must promise nor extends the lease.
func saysNothing(actions []Action) bool {
	for _, a := range actions {
		switch a := a.(type) {
		case SendRound:
			return false
		case Lease:
			return a.Deadline == 0
		case Send:
			if a.Tx == TxSetMembers {
				return false
			}
		}
	}
	return true
}

func TestARequestSaysWhatThePromiseIsFor(t *testing.T) {
	s := leadingFailsafe(t)
	asked := s.round()
	want := failsafe.Request{
		Group: "/c/leader", Term: 7, Holder: "me", Member: "a", Round: 1, Start: 5, Wait: cluster.Duration(s.b.LeaseWait),
	}
	if len(asked) != 1 || asked[0].Request != want {
		t.Errorf("asks %+v, want %+v", asked, want)
	}
}

// A member that could be elected but does not promise would end the extension of a lease; one that can't be elected is no help.
func TestWhoMustPromise(t *testing.T) {
	const limit = cluster.Duration(time.Hour)
	for name, c := range map[string]struct {
		change func(*cluster.Snapshot)
		want   string // empty: no SETM; "nobody": an empty set
	}{
		"all members":               {func(*cluster.Snapshot) {}, "a b"},
		"in the order of their ids": {func(s *cluster.Snapshot) { s.Members[0], s.Members[1] = s.Members[1], s.Members[0] }, "a b"},
		"a superseded incarnation":  {func(s *cluster.Snapshot) { s.Members[0].Superseded = true }, "b"},
		"a damaged node":            {func(s *cluster.Snapshot) { s.Members[0].Node.Err = fmt.Errorf("damaged") }, "b"},
		"a member that leaves":      {func(s *cluster.Snapshot) { s.Members[0].Node.Record.Leaving = "stopped" }, "b"},
		"a member that can't lead":  {func(s *cluster.Snapshot) { s.Members[0].Node.Record.Ineligible = "observer" }, "b"},
		"nobody else can lead": {func(s *cluster.Snapshot) {
			s.Members[0].Node.Record.Ineligible, s.Members[1].Node.Record.Ineligible = "observer", "observer"
		}, "a b"},
		"a shorter session timeout":  {func(s *cluster.Snapshot) { s.Members[0].Node.Record.SessionTimeout = cluster.Duration(5 * time.Second) }, "b"},
		"nobody is left":             {func(s *cluster.Snapshot) { s.Members = s.Members[2:] }, "nobody"},
		"the policy has no failsafe": {func(s *cluster.Snapshot) { s.Policy.Record.Failsafe.Enabled = false }, "nobody"},
		"the members are not known":  {func(s *cluster.Snapshot) { s.MembersRead = false }, ""},
		"the policy is not known":    {func(s *cluster.Snapshot) { s.Policy.Exists = false }, ""},
		"the policy is damaged":      {func(s *cluster.Snapshot) { s.Policy.Err = fmt.Errorf("damaged") }, ""},
	} {
		s := newFailsafe(t)
		s.leadWith("a", "x")
		s.after(s.b.Renew)
		ids, limited := "", func(snap *cluster.Snapshot) { snap.Policy.Record.Failsafe.Max = limit }
		for _, tx := range those[Send](s.m.Step(s.now, s.saw(append(s.mine(), members("a", "b"), limited, c.change)...))) {
			fs := written(t, tx).Failsafe
			if ids = "nobody"; fs == nil {
				continue
			}
			ids = ""
			for _, x := range fs.Members {
				ids += " " + x.ID
				if x.Incarnation != x.ID || x.Key != "key of "+x.ID {
					t.Errorf("%s: %+v", name, x)
				}
			}
			if fs.Key != "key of me" || fs.Max != limit {
				t.Errorf("%s: %+v", name, fs)
			}
		}
		if got := strings.TrimSpace(ids); got != c.want {
			t.Errorf("%s: %q must promise, want %q", name, got, c.want)
		}
	}
}

// Until READY the fence must not say READY, and nobody has promised anything.
func TestNobodyMustPromiseBeforeREADY(t *testing.T) {
	s := newFailsafe(t)
	s.start()
	s.on(s.saw(fence("me", 7, cluster.FenceHeld), current("me", session), members("a")))
}

// A leadership that is about to end is not extended: whoever waits for its end would wait for longer.
func TestALeadershipThatEndsIsNotExtended(t *testing.T) {
	for name, begin := range map[string]func(*script){
		"the work failed":       func(s *script) { s.on(ChildFailed{Err: fmt.Errorf("failed")}, "StopTask") },
		"the session ended":     func(s *script) { s.on(SessionEnded{Reason: "expired"}, "KillTask") },
		"a successor may come":  func(s *script) { s.on(Quit{Reason: "stopped"}, "PublishLeaving") },
		"replaced":              func(s *script) { s.on(Replaced{Term: 8, Node: "b"}, "StopTask") },
		"the lease must be cut": func(s *script) { s.on(LeaseCut{Deadline: s.now + s.b.Lease, Reason: "shorter"}, "StopTask") },
	} {
		s := newFailsafe(t)
		s.m.opt.Budget.Handover = 30 * time.Second
		s.leadWith("a")
		s.after(s.b.Renew)
		asked := s.round()
		begin(s)
		if got := s.m.Step(s.now, granted(asked[0])); !saysNothing(got) {
			t.Errorf("%s, then a promise: %+v", name, got)
		}
		s.after(failsafe.Patience(s.b.Lease))
		if got := s.m.Step(s.now, Tick{}); !saysNothing(got) {
			t.Errorf("%s, then a round is due: %+v", name, got)
		}
		s.m.term.failsafe.failing = false
		if got := s.m.Step(s.now, s.saw(append(s.mine(), members("a", "b"))...)); !saysNothing(got) {
			t.Errorf("%s, then another member: %+v", name, got)
		}
	}
}

// joined reports that b has joined.
func (s *script) joined() Saw { return s.saw(append(s.mine(), members("a", "b"))...) }

func TestWhenTheMembersAreNotChanged(t *testing.T) {
	lead := func() *script {
		s := leadingFailsafe(t)
		return s
	}
	s := lead() // while ZooKeeper does not answer
	s.round()
	s.m.retryAt = s.now
	s.on(s.joined())
	s.renewed(s.now, nil, "Lease", "SETM")

	s = lead() // not from a snapshot that was read before the last transaction ended
	s.on(s.joined(), "SETM")
	s.on(s.saw(append(s.mine(), members("a", "c"))...)) // nor while one is under way
	s.on(done(TxSetMembers), "Lease")
	s.after(s.b.Renew)
	s.on(Tick{})
	s.on(s.saw(append(s.mine(), members("a", "c"))...), "SETM")
}

// Members that come and go delay no RENEW.
func TestTheMembersAreNotChangedTooOften(t *testing.T) {
	s := newFailsafe(t)
	s.leadWith("a")
	first := s.now
	s.after(1)
	s.on(s.joined())
	if got := s.m.Wake(); got != first+s.b.Renew/2 {
		t.Errorf("wakes %s after the first SETM", got-first)
	}
	s.now = first + s.b.Renew/2
	s.on(s.joined(), "SETM")
	s.on(refused(TxSetMembers, 2, cluster.ErrBadVersion))

	s = newFailsafe(t)
	s.lead()
	s.m.retryAt = s.now + time.Second
	s.on(s.joined())
	s.after(time.Second)
	s.on(s.joined(), "SETM")

	s = newFailsafe(t)
	s.leadWith("a")
	s.m.retryAt = s.now + s.b.Renew
	s.after(s.b.Renew - 1)
	s.on(s.joined())
	s.after(1)
	s.on(s.joined(), "SETM")
}

// Addresses of members that can't be read any more are kept.
func TestAddressesAreKept(t *testing.T) {
	for name, change := range map[string]func(*cluster.Member){
		"damaged":    func(x *cluster.Member) { x.Node.Err, x.Node.Record = fmt.Errorf("damaged"), cluster.Node{} },
		"no address": func(x *cluster.Member) { x.Node.Record.Failsafe.Address = "" },
	} {
		s := leadingFailsafe(t)
		changed := func(snap *cluster.Snapshot) { change(&snap.Members[0]) }
		s.on(s.saw(append(s.mine(), members("a", "b"), changed)...), "SETM")
		asked := one[SendRound](t, s.m.Step(s.now, TxDone{Tx: TxSetMembers, Err: cluster.ErrUnknown})).Messages
		if len(asked) != 2 || asked[0].Address != "a:7" || asked[1].Address != "b:7" || len(s.m.term.failsafe.addresses) != 2 {
			t.Errorf("%s: asks %+v", name, asked)
		}
	}
}

// Only current that is gone while the fence can be read, and has promises, ends what was promised for its term.
func TestWhatShowsThatCurrentIsGone(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*cluster.Snapshot)
		gone   bool
	}{
		"gone":                {func(*cluster.Snapshot) {}, true},
		"current exists":      {current("old", 4), false},
		"it was not read":     {func(s *cluster.Snapshot) { s.HolderRead = false }, false},
		"no fence":            {func(s *cluster.Snapshot) { s.Fence.Exists = false }, false},
		"a damaged fence":     {func(s *cluster.Snapshot) { s.Fence.Err = fmt.Errorf("damaged") }, false},
		"nobody has promised": {func(s *cluster.Snapshot) { s.Fence.Record.Failsafe = nil }, false},
		"term 0":              {func(s *cluster.Snapshot) { s.Fence.Record.Term = 0 }, false},
	} {
		s := newFailsafe(t)
		gone := slices.Contains(s.m.Step(s.now, s.saw(left("a"), c.change)), Action(CurrentGone{Term: 6}))
		if gone != c.gone {
			t.Errorf("%s: gone: %t, want %t", name, gone, c.gone)
		}
	}
	s := newFailsafe(t) // once
	s.on(s.saw(left("a")), "CurrentGone")
	s.on(s.saw(left("a")))
}

// No second SETM follows one whose outcome is not known yet: its set would be forgotten (S1).
func TestOneSetMembersAtATime(t *testing.T) {
	s := leadingFailsafe(t)
	s.on(s.joined(), "SETM")
	s.after(s.b.Renew / 2)
	s.on(s.saw(append(s.mine(), members("a", "c"))...), "SendRound")
	s.m.Step(s.now, TxDone{Tx: TxSetMembers, Err: cluster.ErrUnknown})
	s.m.term.failsafe.failing, s.m.fresh, s.m.retryAt = false, true, 0
	s.after(s.b.Renew / 2)
	if s.m.now = s.now; !s.m.leadsFailsafe() || s.m.now < s.m.term.failsafe.setAt+s.b.Renew/2 {
		t.Fatal("nothing is due")
	}
	if s.m.setMembers(); s.m.tx.pending != TxNone {
		t.Error("another one is sent before the outcome of the first was read back")
	}
}

// A set that may be in force is replaced even by the one before it: else those who have left must promise as well.
func TestAnUnknownSetIsSettled(t *testing.T) {
	s := leadingFailsafe(t)
	s.on(s.joined(), "SETM")
	s.m.Step(s.now, TxDone{Tx: TxSetMembers, Err: cluster.ErrUnknown})
	s.after(s.b.Renew)
	s.m.term.failsafe.failing, s.m.term.failsafe.due = false, s.now+s.b.Lease
	unchanged := func(snap *cluster.Snapshot) { snap.Fence.Stat.Version = 11 }
	s.on(s.saw(append(s.mine(), members("a"), unchanged)...), "SETM")
}

// Versions of a fence that somebody else has written are not taken over: RELEASE would overwrite it.
func TestAForeignFenceIsNotReleased(t *testing.T) {
	s := leadingFailsafe(t)
	s.on(s.joined(), "SETM")
	s.m.Step(s.now, TxDone{Tx: TxSetMembers, Err: cluster.ErrUnknown})
	s.m.retryAt, s.m.term.failsafe.due = 0, s.now+s.b.Lease
	s.on(s.saw(append(s.mine(), members("x"), func(snap *cluster.Snapshot) { snap.Fence.Stat.Version = 12 })...), "StopTask")
	s.on(ChildDead{}, "RunPostStop")
	if tx := sent(t, s.on(HookDone{}, "RELEASE")); tx.Ops[1].Version != 11 {
		t.Errorf("RELEASE over version %d", tx.Ops[1].Version)
	}
}

// A RENEW is posted again when its time is over although the lease was extended since.
func TestARenewIsPostedAgainDuringAnExtension(t *testing.T) {
	s := leadingFailsafe(t)
	asked := s.round()
	s.m.retryAt, s.m.term.failsafe.setAt = 0, 1
	until := s.posted().Deadline
	s.on(granted(asked[0]), "Lease")
	f := &s.m.term.failsafe
	f.due, f.extended, s.m.term.lease.deadline = until+1, until+s.b.Lease, until+s.b.Lease // by further rounds
	s.on(Tick{})
	if got := s.m.Wake(); got != until {
		t.Errorf("wakes %s after the first deadline", got-until)
	}
	n := len(s.posts)
	s.now = until
	s.on(Tick{})
	if len(s.posts) != n+1 || s.posted().Deadline != s.m.Deadline() || s.m.Deadline() <= until {
		t.Errorf("%+v", s.posted())
	}
}
