package transition

import (
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/transition/failsafe"
)

// members makes the holder know the members, and that the policy enables failsafe mode.
func members(ids ...string) func(*cluster.Snapshot) {
	return func(s *cluster.Snapshot) {
		s.MembersRead = true
		s.Policy.Exists, s.Policy.Record.Failsafe.Enabled = true, true
		for _, id := range append(ids, "me") {
			s.Members = append(s.Members, cluster.Member{
				Incarnation: cluster.Incarnation{ID: id, Name: id},
				Node: cluster.Stored[cluster.Node]{Exists: true, Record: cluster.Node{
					Failsafe: &cluster.FailsafeNode{Key: "key of " + id, Address: id + ":7"}, SessionTimeout: cluster.Duration(6 * time.Second),
				}},
			})
		}
	}
}

// newFailsafe returns a member that takes part in failsafe mode.
func newFailsafe(t *testing.T) *script {
	t.Helper()
	s := newScript(t)
	s.m.opt.Failsafe = &Failsafe{Key: "key of me", Start: 5}
	return s
}

// leadWith takes the machine to the acknowledgment of the SETM that names the members.
func (s *script) leadWith(ids ...string) {
	s.t.Helper()
	s.lead()
	tx := sent(s.t, s.on(s.saw(append(s.mine(), members(ids...))...), "SETM"))
	if text := string(tx.Ops[cluster.ResultFence].Data); !strings.Contains(text, `"inc":"a"`) || strings.Contains(text, `"inc":"me"`) || !strings.Contains(text, `"v":2`) {
		s.t.Errorf("SETM writes %s", text)
	}
	s.on(done(TxSetMembers), "Lease")
}

// leadingFailsafe returns a leader, whose RENEW is due, that a must promise to.
func leadingFailsafe(t *testing.T) *script {
	t.Helper()
	s := newFailsafe(t)
	s.leadWith("a")
	s.after(s.b.Renew)
	return s
}

// round returns the requests of a round that the failure of a RENEW begins.
func (s *script) round() []failsafe.Message {
	s.t.Helper()
	return one[SendRound](s.t, s.renewed(s.now, cluster.ErrNotSent, "SendRound")).Messages
}

func granted(m failsafe.Message) RoundReply {
	return RoundReply{Reply: failsafe.Reply{Request: m.Request, OK: true}}
}

func TestALeaseIsExtendedFromTheSendingOfARound(t *testing.T) {
	s := newFailsafe(t)
	s.leadWith("a", "b")
	s.after(s.b.Renew)
	asked, began := s.round(), s.now
	if len(asked) != 2 {
		t.Fatalf("asked %v", asked)
	}
	s.after(100 * time.Millisecond)
	s.on(granted(asked[0]))
	if at := one[Lease](t, s.on(granted(asked[1]), "Lease")).Deadline; at != began+s.b.Lease || s.m.Deadline() != at {
		t.Errorf("extended until %s after the sending", at-began)
	}
	s.on(granted(asked[1])) // once more
	s.after(s.b.Lease / 2)
	s.on(Tick{}, "SendRound")
	if s.m.Phase() != Leading || !s.m.Extended() || len(s.m.Promisers()) != 2 {
		t.Errorf("phase %s, extended: %t", s.m.Phase(), s.m.Extended())
	}
	s.renewed(s.now, nil, "Lease")
	if s.m.Extended() {
		t.Error("the lease is one by ZooKeeper again")
	}
}

// A member whose request is lost is asked again, while the work may go on.
func TestTheNextRoundDoesNotWaitForReplies(t *testing.T) {
	s := leadingFailsafe(t)
	s.round()
	for range 3 {
		next := s.now + failsafe.Patience(s.b.Lease)
		if got := s.m.Wake(); got != min(next, s.m.Deadline()-s.m.grace()) {
			t.Fatalf("wakes after %s", got-s.now)
		}
		s.now = next
		s.m.term.lease.deadline = next + s.b.Lease // by members that have answered
		s.on(Tick{}, "SendRound")
	}
}

func TestALateReplyRevivesNoLease(t *testing.T) {
	s := leadingFailsafe(t)
	asked := s.round()
	s.now = s.m.Deadline()
	s.on(granted(asked[0]), "KillTask")
	s.on(granted(asked[0]))
}

// A member must not be in the set before it can be asked: the first outage would stop a healthy leader.
func TestOnlyMembersThatCanBeAskedMustPromise(t *testing.T) {
	for name, change := range map[string]func(*cluster.Node){
		"no address":         func(n *cluster.Node) { n.Failsafe.Address = "" },
		"no state directory": func(n *cluster.Node) { n.Failsafe.Key = "" },
		"takes no part":      func(n *cluster.Node) { n.Failsafe = nil },
	} {
		s := leadingFailsafe(t)
		joined := func(snap *cluster.Snapshot) { change(&snap.Members[1].Node.Record) }
		if got := s.m.Step(s.now, s.saw(append(s.mine(), members("a", "b"), joined)...)); len(got) != 0 {
			t.Errorf("%s: %+v", name, got)
		}
		asked := s.round()
		if len(asked) != 1 || asked[0].To.ID != "a" || asked[0].Address != "a:7" {
			t.Errorf("%s: asks %+v", name, asked)
		}
	}
}

// The new members have promised nothing for an extension that is under way, but could veto.
func TestTheMembersAreNotChangedDuringAnExtension(t *testing.T) {
	s := leadingFailsafe(t)
	before, asked := s.now, s.round()
	s.after(s.b.Lease / 4)
	s.on(Tick{}, "SendRound")
	s.on(granted(asked[0]), "Lease")
	s.m.term.failsafe.extended, s.m.term.lease.deadline = s.now+s.b.Lease, s.now+s.b.Lease // by the second round
	s.renewed(before, nil, "Lease")
	s.on(s.saw(append(s.mine(), members("a", "b"))...))
	s.on(s.renewedAt(s.now), "Lease", "SETM")
}

// renewedAt returns the success of a RENEW that is posted, sent at a time.
func (s *script) renewedAt(at time.Duration) RenewDone {
	p := s.posted()
	return RenewDone{Term: p.Term, Held: p.Held, Sent: at}
}

func TestTheLimitEndsAnExtension(t *testing.T) {
	s := newFailsafe(t)
	s.leadWith("a")
	s.m.term.failsafe.rounds.Acknowledged(failsafe.Set{Members: s.m.term.failsafe.rounds.Acked().Members, Max: s.b.Lease + time.Second})
	renewed := s.now
	s.after(s.b.Lease / 2)
	asked := s.round()
	s.on(granted(asked[0]), "Lease")
	if got := s.m.Deadline() - renewed; got != s.b.Lease+time.Second {
		t.Errorf("extended until %s after the last write", got)
	}
}

// A refusal may only mean that a SETM has taken effect whose reply was lost.
func TestAnUnknownSetMembersIsReadBack(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*cluster.Snapshot)
		goesOn  bool
		unknown bool // which set is in force
	}{
		"it took effect": {func(s *cluster.Snapshot) { s.Fence.Stat.Version = 12 }, true, false},
		"it did not":     {func(s *cluster.Snapshot) { s.Fence.Stat.Version = 11 }, true, true},
		"another one's write": {func(s *cluster.Snapshot) {
			s.Fence.Stat.Version, s.Fence.Record.Failsafe = 12, &cluster.Failsafe{Members: []cluster.FailsafeMember{{ID: "x"}}}
		}, false, true},
		"revoked":              {func(s *cluster.Snapshot) { s.Fence.Stat.Version, s.Fence.Record.State = 12, cluster.FenceRevoked }, false, true},
		"held by another term": {func(s *cluster.Snapshot) { s.Fence.Stat.Version, s.Fence.Record.Term = 12, 8 }, false, true},
		"another incarnation":  {func(s *cluster.Snapshot) { s.Fence.Stat.Version, s.Fence.Record.Incarnation = 12, "other" }, false, true},
		"damaged":              {func(s *cluster.Snapshot) { s.Fence.Stat.Version, s.Fence.Err = 12, errFence }, false, true},
	} {
		s := leadingFailsafe(t)
		tx := sent(t, s.on(s.saw(append(s.mine(), members("a", "b"))...), "SETM"))
		written := cluster.ReadFence("/c/leader", tx.Ops[cluster.ResultFence].Data, cluster.Stat{Version: 1}, true).Record
		s.m.Step(s.now, TxDone{Tx: TxSetMembers, Err: cluster.ErrUnknown})
		s.m.retryAt = s.now + s.b.Lease
		s.m.Step(s.now, s.saw(append(s.mine(), func(snap *cluster.Snapshot) { snap.Fence.Record = written }, c.change)...))
		if got := s.m.Phase() == Leading; got != c.goesOn {
			t.Errorf("%s: goes on: %t (%+v)", name, got, s.m.term.stop)
		} else if !got && (s.m.term.stop.Reason != "the fence was changed by somebody else" || !s.m.term.replaced) {
			t.Errorf("%s: %+v", name, s.m.term.stop)
		}
		if got := !s.m.term.failsafe.rounds.Settled(); got != c.unknown {
			t.Errorf("%s: unknown: %t", name, got)
		}
	}
}

// Of two SETMs for the same members, the earlier one may be in force, with another limit: successors go by that one.
func TestTheLimitIsReadBackWithTheMembers(t *testing.T) {
	s := leadingFailsafe(t)
	const limit = time.Minute
	limited := func(snap *cluster.Snapshot) { snap.Policy.Record.Failsafe.Max = cluster.Duration(limit) }
	read := func(version int32, f *cluster.Failsafe, change ...func(*cluster.Snapshot)) Saw {
		written := func(snap *cluster.Snapshot) {
			snap.Fence.Stat.Version, snap.Fence.Record.Failsafe = version, f
		}
		return s.saw(append(append(s.mine(), members("a"), written), change...)...)
	}
	before := s.m.term.fence.Failsafe
	first := sent(t, s.on(read(11, before, limited), "SETM"))
	s.on(TxDone{Tx: TxSetMembers, Err: cluster.ErrUnknown}, "SendRound")
	s.after(s.b.Renew / 2)
	s.on(read(11, before))
	s.renewed(s.now, nil, "Lease", "SETM") // without the limit
	s.on(refused(TxSetMembers, cluster.ResultFence, cluster.ErrBadVersion))
	inForce := cluster.ReadFence("/c/leader", first.Ops[cluster.ResultFence].Data, cluster.Stat{}, true).Record.Failsafe
	s.m.Step(s.now, read(12, inForce))
	if got := s.m.term.failsafe.rounds.Max(); got != limit || s.m.Phase() != Leading {
		t.Errorf("the limit is %s, phase %s", got, s.m.Phase())
	}
}

// left is the fence of another leader, for which these must promise.
func left(ids ...string) func(*cluster.Snapshot) {
	return func(s *cluster.Snapshot) {
		fence("old", 6, cluster.FenceReady)(s)
		fs := &cluster.Failsafe{Key: "key of old"}
		for _, id := range ids {
			fs.Members = append(fs.Members, cluster.FailsafeMember{ID: id, Incarnation: id, Key: "key of " + id})
		}
		s.Fence.Record.Failsafe = fs
	}
}

func TestTheLimitLetsAnybodyAcquire(t *testing.T) {
	s := newFailsafe(t)
	limited := func(snap *cluster.Snapshot) { snap.Fence.Record.Failsafe.Max = cluster.Duration(time.Minute) }
	s.on(s.saw(left("a"), limited), "CurrentGone")
	wait := cluster.OnAnyClock(time.Minute)
	if got := s.m.Wake(); got != s.now+wait {
		t.Errorf("wakes after %s, want %s", got-s.now, wait)
	}
	s.after(wait - 1)
	s.on(s.saw(left("a"), limited))
	s.after(1)
	s.on(Tick{}, "ACQUIRE")
}

// A member that takes no part any more keeps what it has promised, and agrees to successors. As a leader it asks nobody.
func TestPassiveMember(t *testing.T) {
	passive := func() *script {
		s := newFailsafe(t)
		s.m.opt.Failsafe.Passive = true
		return s
	}
	s := passive()
	s.on(s.saw(left("me")), "CurrentGone", "Remember")
	s.on(Remembered{Term: 6}, "ACQUIRE")

	s = passive()
	s.on(s.saw(left("me"), replacedBy("x", 7)), "CurrentGone", "Remember")
	s.on(Remembered{Term: 6}, "VETO")

	s = passive()
	s.lead()
	s.on(s.saw(append(s.mine(), members("a"))...))
	s.after(s.b.Renew)
	s.renewed(s.now, cluster.ErrNotSent) // and no round
}
