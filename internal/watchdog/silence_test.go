package watchdog

import (
	"errors"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

const (
	lease = "/c/.leases/a-1"
	wait  = 4 * time.Second
	renew = 600 * time.Millisecond
)

// deputySnapshot is what b sees while a leads, as the deputy at a place.
func deputySnapshot(place int) cluster.Snapshot {
	s := holds(elected("a", 7), "a", 7, cluster.FenceReady)
	s.At, s.Self = 1, cluster.Incarnation{ID: "b", Name: "b"}
	s.Fence.Record.LeaseZnode, s.Fence.Record.Session, s.Fence.Record.LeaseWait = lease, 1, cluster.Duration(wait)
	s.Fence.Stat = cluster.Stat{Modified: 50}
	for range place {
		s.Elected.Record.Deputies = append(s.Elected.Record.Deputies, "x")
	}
	s.Elected.Record.Deputies = append(s.Elected.Record.Deputies, "b")
	return s
}

func seen(version int32, at time.Duration) cluster.LeaseZnodeSeen {
	return cluster.LeaseZnodeSeen{Znode: lease, Exists: true, Stat: cluster.Stat{Owner: 1, Version: version, Created: 40, Modified: 60 + int64(version)}, At: at}
}

func newSilence() *Silence {
	return NewSilence(SilenceOptions{Wait: wait, Renew: renew, Session: 6 * time.Second})
}

// The sighting is the receipt of the later of the two answers, not the time at which something was heard of.
func TestTheSightingBeginsWithTheLaterAnswer(t *testing.T) {
	s, snap := newSilence(), deputySnapshot(0)
	if due := s.Observe(&snap, seen(1, 3*time.Second), 0, 10*time.Second); due != 10*time.Second+wait {
		t.Errorf("the fence came last: due at %s", due)
	}
	if due := s.Observe(&snap, seen(2, 12*time.Second), 0, 20*time.Second); due != 12*time.Second+wait {
		t.Errorf("the lease znode was read last: due at %s", due)
	}
	snap.Fence.Stat.Modified++
	if due := s.Observe(&snap, seen(2, 12*time.Second), 0, 25*time.Second); due != 25*time.Second+wait {
		t.Errorf("the fence has changed: due at %s", due)
	}
	if due := s.Observe(&snap, seen(2, 12*time.Second), 0, 26*time.Second); due != 25*time.Second+wait {
		t.Errorf("nothing has changed: due at %s", due)
	}
}

func TestEachChangeBeginsANewSighting(t *testing.T) {
	for name, change := range map[string]func(*cluster.Snapshot, *cluster.LeaseZnodeSeen){
		"a renewal":                        func(_ *cluster.Snapshot, l *cluster.LeaseZnodeSeen) { l.Stat.Version++ },
		"a write that keeps the version":   func(_ *cluster.Snapshot, l *cluster.LeaseZnodeSeen) { l.Stat.Modified++ },
		"deleted and created again":        func(_ *cluster.Snapshot, l *cluster.LeaseZnodeSeen) { l.Stat.Created++ },
		"another fence":                    func(s *cluster.Snapshot, _ *cluster.LeaseZnodeSeen) { s.Fence.Stat.Modified++ },
		"the fence deleted and created":    func(s *cluster.Snapshot, _ *cluster.LeaseZnodeSeen) { s.Fence.Stat.Created++ },
		"another session's znode":          func(s *cluster.Snapshot, l *cluster.LeaseZnodeSeen) { s.Fence.Record.Session, l.Stat.Owner = 2, 2 },
		"the fence is no longer held":      func(s *cluster.Snapshot, _ *cluster.LeaseZnodeSeen) { s.Fence.Record.State = cluster.FenceReleased },
		"the znode is gone":                func(_ *cluster.Snapshot, l *cluster.LeaseZnodeSeen) { l.Exists = false },
		"the znode has never been written": func(_ *cluster.Snapshot, l *cluster.LeaseZnodeSeen) { l.Stat.Version = 0 },
	} {
		s, snap, l := newSilence(), deputySnapshot(0), seen(5, time.Second)
		s.Observe(&snap, l, 0, time.Second)
		s.Confirm(l)
		change(&snap, &l)
		l.At = 4 * time.Second
		if due := s.Observe(&snap, l, 0, 4*time.Second); due != 0 && due < 8*time.Second || s.Confirmed() {
			t.Errorf("%s: due at %s, confirmed %t", name, due, s.Confirmed())
		}
	}
}

// Only a change that is seen as it happens shows that the holder was alive at the sighting: what is found at first, or after the connection
// was lost, may be old.
func TestWhichSightingsAreWitnessed(t *testing.T) {
	s, snap := newSilence(), deputySnapshot(0)
	sees := func(what string, version int32, want bool) {
		t.Helper()
		l := seen(version, time.Duration(version)*time.Second)
		s.Observe(&snap, l, 0, l.At)
		if s.Confirm(l); s.Seen().Witnessed != want {
			t.Errorf("%s: witnessed %t", what, !want)
		}
	}
	sees("what is found", 1, false)
	sees("a renewal", 2, true)
	snap.Fence.Stat.Modified++
	sees("another fence", 2, true)
	s.Away(2*time.Second, true)
	sees("unchanged after a reconnect", 2, true)
	sees("the first renewal after it", 3, false)
	s.Away(3*time.Second, false)
	sees("a renewal after a slow answer", 4, true)
	s.Observe(&snap, seen(4, 4*time.Second), -1, 4*time.Second)
	sees("a deputy again", 5, false)
}

func TestDeputiesTakeTurns(t *testing.T) {
	for place, want := range []time.Duration{0, 300 * time.Millisecond, 600 * time.Millisecond} {
		s, snap := newSilence(), deputySnapshot(place)
		if due := s.Observe(&snap, seen(1, time.Second), place, time.Second); due != time.Second+wait+want {
			t.Errorf("place %d: due at %s", place, due)
		}
	}
	s, snap := newSilence(), deputySnapshot(0)
	if due := s.Observe(&snap, seen(1, time.Second), -1, time.Second); due != 0 {
		t.Errorf("no deputy: due at %s", due)
	}
	snap.Self.Name = "a"
	if due := s.Observe(&snap, seen(1, time.Second), 0, time.Second); due != 0 {
		t.Errorf("the holder itself: due at %s", due)
	}
}

func TestAfterARefusalTheHolderIsConfirmedAgain(t *testing.T) {
	s, snap, l, now := newSilence(), deputySnapshot(0), seen(1, time.Second), 5*time.Second
	s.Observe(&snap, l, 0, time.Second)
	for _, pause := range []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond} {
		s.Confirm(l)
		if s.Refused(now); s.Confirmed() {
			t.Fatal("still confirmed")
		}
		if due := s.Observe(&snap, l, 0, now); due != now+pause {
			t.Errorf("after a refusal: due in %s", due-now)
		}
		now += pause
	}
}

// deputyTest drives a deputy.
type deputyTest struct {
	t    *testing.T
	d    *Deputy
	snap cluster.Snapshot
	in   DeputyInput
}

func newDeputyTest(t *testing.T, place int) *deputyTest {
	x := &deputyTest{t: t, d: NewDeputy("b", SilenceOptions{Wait: wait, Renew: renew, Session: 6 * time.Second}, 0), snap: deputySnapshot(place)}
	x.in = DeputyInput{Snapshot: &x.snap, Now: time.Second, MaySucceed: func() bool { return true }}
	return x
}

// at observes at a time.
func (x *deputyTest) at(now time.Duration) DeputyOutput {
	x.in.Now = now
	return x.d.Observe(x.in)
}

// silent makes the holder due at 5 s.
func (x *deputyTest) silent() *deputyTest {
	x.t.Helper()
	if out := x.at(time.Second); out.Follow != lease || out.Wake != 0 {
		x.t.Fatalf("at first: %+v", out)
	}
	x.in.Seen = seen(1, time.Second)
	if out := x.at(time.Second); out.Wake != 5*time.Second || out.Ask || out.Act {
		x.t.Fatalf("with a sighting: %+v", out)
	}
	if out := x.at(5 * time.Second); !out.Ask || out.Act {
		x.t.Fatalf("when it is due: %+v", out)
	}
	return x
}

func TestADeputyAsksBeforeItActs(t *testing.T) {
	x := newDeputyTest(t, 0).silent()
	if out := x.at(5*time.Second + 1); out.Ask || out.Act {
		t.Errorf("while it asks: %+v", out)
	}
	x.in.Now = 5100 * time.Millisecond
	if !x.d.Answered(x.in, 5*time.Second, nil) {
		t.Fatal("not silent")
	}
	out := x.at(5100 * time.Millisecond)
	who, l := x.d.Silent(&x.snap, x.in.Now)
	if !out.Act || who["a"] != "it has not renewed its lease for 4.1s" || l != x.in.Seen {
		t.Errorf("%+v, silent: %v, %+v", out, who, l)
	}
	x.snap.Acting = true
	x.snap.Fence.Stat.Modified++ // TAKE
	x.snap.Fence.Record.State = cluster.FenceSilent
	x.snap.Elected.Record.By, x.snap.Elected.Stat.Modified = "b", 99
	if out := x.at(5200 * time.Millisecond); !out.Act {
		t.Error("it stops acting before there is a leader")
	}
	x.snap = holds(x.snap, "c", 8, cluster.FenceReady)
	x.snap.Elected.Record.Incarnation, x.snap.Elected.Record.Term = "c", 8
	if out := x.at(5300 * time.Millisecond); out.Act {
		t.Error("it acts although there is a leader")
	}
}

// What has changed while the deputy asked begins a new sighting, or none: to take the answer for a confirmation would end a lease that was
// just renewed (S1).
func TestAnAnswerThatShowsARenewalConfirmsNothing(t *testing.T) {
	gone := seen(2, 5050*time.Millisecond)
	gone.Exists = false
	for name, c := range map[string]struct {
		seen cluster.LeaseZnodeSeen
		wake time.Duration
	}{
		"renewed":             {seen(2, 5050*time.Millisecond), 9050 * time.Millisecond},
		"the session is over": {gone, 0},
	} {
		x := newDeputyTest(t, 0).silent()
		x.in.Seen, x.in.Now = c.seen, 5100*time.Millisecond
		if x.d.Answered(x.in, 5*time.Second, nil) || x.d.silence.Confirmed() {
			t.Errorf("%s: silent", name)
		}
		out := x.at(5100 * time.Millisecond)
		if who, _ := x.d.Silent(&x.snap, x.in.Now); out.Act || out.Ask || out.Wake != c.wake || who != nil {
			t.Errorf("%s: %+v, silent: %v", name, out, who)
		}
	}
}

func TestADeputyStopsWhenAnotherElectorDecides(t *testing.T) {
	x := newDeputyTest(t, 0).silent()
	x.in.Now = 5100 * time.Millisecond
	x.d.Answered(x.in, 5*time.Second, nil)
	if out := x.at(5100 * time.Millisecond); !out.Act {
		t.Error("it does not act")
	}
	x.snap.Elected.Record.By, x.snap.Elected.Stat.Modified = "c", 99
	if out := x.at(5200 * time.Millisecond); out.Act {
		t.Error("it goes on acting")
	}
}

// If ZooKeeper hardly answers this member, the leader may not have been able to renew either.
func TestSilenceProvesNothingWhileZooKeeperIsAway(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(*deputyTest) bool
		again  time.Duration
	}{
		"no answer": {func(x *deputyTest) bool { return x.d.Answered(x.in, 5*time.Second, errors.New("no answer")) }, 5*time.Second + 2*renew},
		"slow answer": {func(x *deputyTest) bool {
			x.in.Now += 301 * time.Millisecond
			return x.d.Answered(x.in, 5*time.Second, nil)
		}, 5301*time.Millisecond + 2*renew},
		"reconnected": {func(x *deputyTest) bool { x.in.Reconnects++; return x.d.Answered(x.in, 5*time.Second, nil) }, 5*time.Second + 2*time.Second},
	} {
		x := newDeputyTest(t, 0).silent()
		if c.answer(x) {
			t.Errorf("%s: silent", name)
		}
		if out := x.at(x.in.Now); out.Ask || out.Act || out.Wake != c.again {
			t.Errorf("%s: %+v, want another attempt at %s", name, out, c.again)
		}
		if out := x.at(c.again); !out.Ask {
			t.Errorf("%s: does not ask again", name)
		}
	}
	x := newDeputyTest(t, 0)
	x.in.Seen = seen(1, time.Second)
	x.at(time.Second)
	x.in.Reconnects++
	if out := x.at(5 * time.Second); out.Ask || out.Wake != 7*time.Second {
		t.Errorf("after a reconnect: %+v", out)
	}
}

func TestAPromiseKeepsADeputyFromTakingOver(t *testing.T) {
	x := newDeputyTest(t, 0)
	x.in.Seen = seen(1, time.Second)
	x.at(time.Second)
	may, asked := false, false
	x.in.MaySucceed = func() bool { asked = true; return may }
	if out := x.at(5 * time.Second); !out.Ask || asked {
		t.Error("promises are refused before it is known that ZooKeeper answers")
	}
	x.d.Answered(x.in, 5*time.Second, nil)
	if out := x.at(5 * time.Second); out.Act || !asked {
		t.Errorf("acts although it may not succeed: %+v", out)
	}
	if who, _ := x.d.Silent(&x.snap, x.in.Now); who != nil {
		t.Errorf("silent: %v", who)
	}
	may = true
	if out := x.at(5 * time.Second); !out.Act {
		t.Errorf("does not act: %+v", out)
	}
	if who, _ := x.d.Silent(&x.snap, x.in.Now); who == nil {
		t.Error("nobody is silent")
	}
}

// An elector that is lost, or whose writes do not arrive, leaves the group without a leader.
func TestDeputiesElectInPlaceOfAnElectorThatDoesNot(t *testing.T) {
	for name, change := range map[string]func(*cluster.Snapshot){
		"released":           func(s *cluster.Snapshot) { s.Fence.Record.State = cluster.FenceReleased },
		"current is gone":    func(s *cluster.Snapshot) { s.Current.Exists = false },
		"the fence is gone":  func(s *cluster.Snapshot) { s.Fence.Exists = false },
		"a silent candidate": func(s *cluster.Snapshot) { s.Elected.Record.Silent = []string{"a"} },
		"the candidate does not acquire": func(s *cluster.Snapshot) {
			s.Current.Exists, s.Elected.Record.Term, s.Fence.Record.State = false, 8, cluster.FenceReleased
		},
		"(the leader leads)":   func(*cluster.Snapshot) {},
		"(this is an elector)": func(s *cluster.Snapshot) { s.Fence.Record.State, s.Elector = cluster.FenceReleased, true },
	} {
		x := newDeputyTest(t, 1)
		change(&x.snap)
		out, want := x.at(time.Second), time.Second+wait+300*time.Millisecond
		if name[0] == '(' {
			if out = x.at(want); out.Act {
				t.Errorf("%s: acts", name)
			}
			continue
		}
		if out.Act || out.Wake != want {
			t.Errorf("%s: %+v, want to act at %s", name, out, want)
		}
		if out = x.at(want); !out.Act {
			t.Errorf("%s: does not act", name)
		}
	}
}

func TestACandidateThatDoesNotAcquireIsSilent(t *testing.T) {
	w := New(Options{Takeover: takeover, LeaseWait: own, Patience: time.Second})
	s := elected("a", 7)
	s.Self, s.Elected.Record.By, s.Elected.Record.Cause = cluster.Incarnation{ID: "b", Name: "b"}, "b", cluster.CauseFailure
	s.Members = []cluster.Member{{Incarnation: cluster.Incarnation{ID: "a", Name: "a"}, Node: cluster.Stored[cluster.Node]{Exists: true}}}
	if f := w.Observe(s, time.Second); f.Silent != "" || f.Wake != 2*time.Second {
		t.Fatalf("at once: %+v", f)
	}
	if f := w.Observe(s, 2*time.Second); f.Silent != "a" || f.Overdue != "" {
		t.Errorf("in time: %+v", f)
	}
	w.Wrote(time.Second)
	if f := w.Observe(s, 3*time.Second); f.Silent != "" || f.Wake != 4*time.Second {
		t.Errorf("the elector's own writes are slow: %+v", f)
	}
	w.Wrote(0)
	s.Elected.Record.Silent = []string{"x", "y"}
	if f := w.Observe(s, 4*time.Second); f.Silent != "" || f.Wake != 5*time.Second {
		t.Errorf("after two that were silent: %+v", f)
	}
	s.Fence.Record.Incarnation = "x"
	if f := w.Observe(s, 4*time.Second); f.Wake != 4*time.Second && f.Silent != "a" {
		t.Errorf("after the holder and one candidate that were silent: %+v", f)
	}
	s.Elected.Record.Silent = nil
	for name, change := range map[string]func(*cluster.Snapshot){
		"a planned change":          func(s *cluster.Snapshot) { s.Elected.Record.Cause = cluster.CausePreempt },
		"somebody else has decided": func(s *cluster.Snapshot) { s.Elected.Record.By = "c" },
		"the elector itself":        func(s *cluster.Snapshot) { s.Self.Name, s.Elected.Record.By = "a", "a" },
		"it has acquired":           func(s *cluster.Snapshot) { *s = holds(*s, "a", 7, cluster.FenceHeld) },
		"current is in its way":     func(s *cluster.Snapshot) { s.Current.Exists = true },
		"it is gone":                func(s *cluster.Snapshot) { s.Members = nil },
		"its host ends other work":  func(s *cluster.Snapshot) { s.Members[0].Node.Record.Queued = true },
	} {
		other := s
		other.Members = append([]cluster.Member(nil), s.Members...)
		change(&other)
		w.Observe(other, 10*time.Second)
		if f := w.Observe(other, 20*time.Second); f.Silent != "" {
			t.Errorf("%s: %+v", name, f)
		}
	}
}
