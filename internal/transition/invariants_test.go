package transition

import (
	"errors"
	"flag"
	"testing"
	"time"

	"pgregory.net/rapid"

	"zkelectd/internal/cluster"
)

// world is the state that the caller of a machine has: what is running and what is in flight.
type world struct {
	m             *Machine
	now           time.Duration
	running, hook bool
	starting      bool
	pending       Tx
	lastSent      time.Duration
	acquiring     cluster.Fence // what the last ACQUIRE has written
	waitOver      time.Duration
	leased        time.Duration
	cut           time.Duration

	renew  Renew       // what is posted
	flying []RenewDone // successful replies that have not come yet, some to requests that have been replaced since
}

// step applies an event and checks every action for what must never happen (S1).
func (w *world) step(t *rapid.T, ev Event) {
	posted := w.renew
	if done, is := ev.(RenewDone); is && done.Term == posted.Term && done.Held == posted.Held {
		w.renew = Renew{}
	}
	for _, a := range w.m.Step(w.now, ev) {
		switch a := a.(type) {
		case Renew:
			if len(a.Ops) > 0 && (a.Deadline != w.leased || w.now >= w.leased || w.cut != 0 || w.pending != TxNone || a.Term != w.m.Term() || a.Held != w.m.term.holding) {
				t.Fatalf("posted %+v with the lease until %s, cut to %s, and %s in flight", a, w.leased, w.cut, w.pending)
			}
			w.renew = a
		case Send:
			if w.pending != TxNone {
				t.Fatalf("%s while %s is in flight", a.Tx, w.pending)
			}
			if a.Tx == TxRelease && (w.running || w.starting) {
				t.Fatal("RELEASE while the child lives")
			}
			if a.Tx == TxAcquire && (w.running || w.starting || w.hook) {
				t.Fatal("ACQUIRE while something still works")
			}
			if (a.Tx == TxAcquire || (a.Tx == TxRelease && w.m.fresh)) && w.m.snap.Fence.Newer() != nil {
				t.Fatalf("%s over a fence of a newer version", a.Tx)
			}
			if a.Tx == TxAcquire && !w.m.snap.Fence.Readable() {
				t.Fatal("ACQUIRE over a fence that cannot be read")
			}
			if s := &w.m.snap; a.Tx == TxAcquire && (s.Current.Exists || a.Ops[cluster.ResultFence].Version != s.Fence.Stat.Version) {
				t.Fatalf("ACQUIRE over version %d, when version %d was read; current: %t", a.Ops[cluster.ResultFence].Version, s.Fence.Stat.Version, s.Current.Exists)
			}
			if len(w.renew.Ops) > 0 {
				t.Fatalf("%s while a RENEW is posted", a.Tx)
			}
			w.pending, w.lastSent = a.Tx, w.now
			if a.Tx == TxAcquire {
				w.acquiring = cluster.ReadFence("/c/leader", a.Ops[cluster.ResultFence].Data, cluster.Stat{Version: 1, Time: time.Now()}, true).Record
			}
		case Lease:
			if w.cut != 0 && a.Deadline > w.cut {
				t.Fatal("a lease outlasts the cut")
			}
			if a.Deadline > w.leased && w.leased != 0 {
				w.checkRenewed(t, posted, ev, a.Deadline)
			}
			w.leased = a.Deadline
		case RunPreStart:
			if w.now < w.waitOver {
				t.Fatal("the takeover begins before the lease wait is over")
			}
			if a.Term != w.acquiring.Term {
				t.Fatalf("the takeover of term %d begins, acquired was term %d", a.Term, w.acquiring.Term)
			}
			w.hook = true
		case RunPostStop:
			if w.running || w.starting {
				t.Fatal("post_stop while the child lives")
			}
			w.hook = true
		case StartChild:
			if w.running || w.starting || w.hook || !w.m.term.held || w.now >= w.leased {
				t.Fatalf("child started: running %v, hook %v, held %v, lease over %v", w.running, w.hook, w.m.term.held, w.now >= w.leased)
			}
			w.starting = true
		}
	}
	if w.running && w.leased != 0 && w.now >= w.leased && !w.m.term.killSent {
		t.Fatal("the child outlives its lease")
	}
}

// checkRenewed checks that an event may extend the lease.
func (w *world) checkRenewed(t *rapid.T, posted Renew, ev Event, deadline time.Duration) {
	done, is := ev.(RenewDone)
	switch {
	case !is || done.Err != nil:
		t.Fatalf("%+v extends the lease", ev)
	case done.Term != posted.Term || done.Held != posted.Held:
		t.Fatalf("the reply to a RENEW of term %d and %+v extends the lease of term %d and %+v", done.Term, done.Held, posted.Term, posted.Held)
	case w.now >= w.leased:
		t.Fatal("a late reply revives a lease")
	case deadline > done.Sent+w.m.opt.Budget.Lease:
		t.Fatal("the lease counts from after the sending")
	}
}

// send sends the RENEW that is posted.
func (w *world) send() {
	if len(w.renew.Ops) > 0 {
		w.flying = append(w.flying, RenewDone{Term: w.renew.Term, Held: w.renew.Held, Sent: w.now})
	}
}

func TestNothingBreaksTheInvariants(t *testing.T) {
	// The rarest breakage that was tried needed some hundreds of runs to show.
	if err := flag.Set("rapid.checks", "5000"); err != nil {
		t.Fatal(err)
	}
	budget, err := cluster.NewBudget(6*time.Second, 0, 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		w := &world{now: time.Hour, m: New(Options{
			Paths: cluster.Paths{Root: "/c"}, Self: cluster.Incarnation{Name: "me", ID: "me"}, Budget: budget, Wall: time.Now,
			RestartMax: 1, RestartWindow: time.Minute, RestartBackoff: 100 * time.Millisecond,
		})}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			if w.starting { // the caller reports this at once
				w.starting = false
				if rapid.Bool().Draw(t, "starts") {
					w.running = true
					w.step(t, ChildStarted{})
				} else {
					w.step(t, ChildFailed{Err: errors.New("no")})
				}
				continue
			}
			switch rapid.SampledFrom([]string{"time", "wake", "saw", "saw", "tx", "tx", "renew", "renewed", "hook", "ready", "value", "dead", "failed", "quit", "ended", "cut"}).Draw(t, "event") {
			case "time":
				w.now += time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "passes"))
				w.step(t, Tick{})
			case "wake":
				w.now = max(w.now, w.m.Wake())
				w.step(t, Tick{})
			case "saw":
				w.step(t, Saw{Snapshot: w.snapshot(t)})
			case "tx":
				w.reply(t)
			case "renew":
				w.send()
			case "renewed":
				if n := len(w.flying); n > 0 {
					i := rapid.IntRange(0, n-1).Draw(t, "reply")
					ev := w.flying[i]
					w.flying = append(w.flying[:i:i], w.flying[i+1:]...)
					ev.Err = rapid.SampledFrom([]error{nil, nil, nil, cluster.ErrUnknown, errRefused}).Draw(t, "renewal")
					w.step(t, ev)
				}
			case "hook":
				if w.hook {
					w.hook = false
					w.step(t, HookDone{Err: rapid.SampledFrom([]error{nil, nil, errors.New("hook")}).Draw(t, "hook fails")})
				}
			case "ready":
				if w.running {
					w.step(t, ChildReady{})
				}
			case "value":
				w.step(t, ValueGiven{Term: rapid.Int64Range(7, 8).Draw(t, "of"), Value: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "value")})
			case "failed": // reports of a probe may come late
				w.step(t, ChildFailed{Err: errors.New("never ready")})
			case "dead":
				if w.running {
					w.running = false
					w.step(t, ChildDead{Status: "exited"})
				}
			case "quit":
				if rapid.IntRange(0, 9).Draw(t, "really quit") == 0 {
					w.step(t, Quit{Reason: "stop"})
				}
			case "cut":
				if rapid.IntRange(0, 9).Draw(t, "really cut") == 0 {
					at := w.now + time.Duration(rapid.Int64Range(1, int64(2*time.Second)).Draw(t, "left"))
					if w.cut = cluster.Earliest(w.cut, at); w.leased != 0 {
						w.leased = min(w.leased, w.cut)
					}
					w.step(t, LeaseCut{Deadline: at, Reason: "a server grants less"})
				}
			case "ended":
				if rapid.IntRange(0, 9).Draw(t, "really ended") == 0 {
					w.pending = TxNone
					w.step(t, SessionEnded{Reason: "expired"})
				}
			}
		}
	})
}

// reply ends the transaction in flight with one of the possible outcomes.
func (w *world) reply(t *rapid.T) {
	if w.pending == TxNone {
		return
	}
	tx := w.pending
	w.pending = TxNone
	ev := done(tx)
	switch rapid.SampledFrom([]string{"applied", "applied", "applied", "unknown", "not sent", "refused"}).Draw(t, "outcome") {
	case "applied":
		if tx == TxAcquire {
			w.waitOver = w.now + time.Duration(w.acquiring.Owed)
		}
	case "unknown":
		ev = TxDone{Tx: tx, Err: cluster.ErrUnknown}
	case "not sent":
		ev = TxDone{Tx: tx, Err: cluster.ErrNotSent}
	case "refused":
		ev = refused(tx, rapid.IntRange(0, 3).Draw(t, "index"), cluster.ErrBadVersion)
	}
	if ev.Err == nil && tx == TxAcquire {
		w.leased = cluster.Earliest(w.lastSent+w.m.opt.Budget.Lease, w.cut)
	}
	w.step(t, ev)
}

func (w *world) snapshot(t *rapid.T) cluster.Snapshot {
	who := func(label string) string { return rapid.SampledFrom([]string{"me", "me", "other"}).Draw(t, label) }
	term := rapid.Int64Range(7, 9).Draw(t, "term")
	e := who("elected")
	s := cluster.Snapshot{
		At: w.now, Self: w.m.opt.Self, Session: session, HolderRead: true,
		Elected: cluster.Stored[cluster.Elected]{Exists: true, Stat: cluster.Stat{Version: int32(term)}, Record: cluster.Elected{Node: e, Incarnation: e, Term: term}},
	}
	if rapid.Bool().Draw(t, "newer") {
		s.Fence = cluster.ReadFence("/c/leader", []byte(`{"v":3}`), cluster.Stat{Version: 10}, true)
	}
	if rapid.Bool().Draw(t, "fenced") {
		fence(who("holder"), rapid.Int64Range(6, 9).Draw(t, "fence term"), rapid.SampledFrom([]cluster.FenceState{
			cluster.FenceHeld, cluster.FenceReady, cluster.FenceReleased, cluster.FenceUnclean, cluster.FenceRevoked}).Draw(t, "state"))(&s)
	}
	switch rapid.SampledFrom([]string{"none", "mine", "other's"}).Draw(t, "current") {
	case "mine":
		current("me", session)(&s)
	case "other's":
		current("other", 1)(&s)
		s.Current.Record.State = rapid.SampledFrom([]cluster.CurrentState{cluster.CurrentProgress, cluster.CurrentReady}).Draw(t, "current state")
	}
	return s
}
