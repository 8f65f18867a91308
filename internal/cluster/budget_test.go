package cluster

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Every accepted budget satisfies the inequalities that S1 depends on.
func TestBudgetInequalities(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		session := time.Duration(rapid.Int64Range(int64(400*time.Millisecond), int64(10*time.Minute)).Draw(t, "session"))
		lease := drawLease(t, session)
		stop := time.Duration(rapid.Int64Range(0, int64(session)).Draw(t, "stop"))
		b, err := NewBudget(session, lease, stop)
		if err != nil {
			return
		}
		if lease != 0 && (b.Lease != lease || b.Lease+b.Kill > session*60/100) {
			t.Errorf("D = %s and K = %s with a lease of %s and a session timeout of %s", b.Lease, b.Kill, lease, session)
		}
		tick := session / 2
		if b.Lease+b.Kill > session-tick*3/4-session/100 {
			t.Errorf("D + K = %s is later than the expiry", b.Lease+b.Kill)
		}
		if b.Kill < MinKill || b.Kill < b.Lease/3 || lease == 0 && b.Kill < session*15/100 {
			t.Errorf("K = %s for a lease of %s and a session timeout of %s", b.Kill, b.Lease, session)
		}
		if b.Lease != SafeLease(session, lease) {
			t.Errorf("D = %s, but %s is safe", b.Lease, SafeLease(session, lease))
		}
		// What members without a lease of their own derive from its session timeout covers it.
		if b.LeaseWait > LeaseWait(session) || b.Kill > KillMargin(session) {
			t.Errorf("W = %s and K = %s, but at most %s and %s with a session timeout of %s", b.LeaseWait, b.Kill, LeaseWait(session), KillMargin(session), session)
		}
		if float64(b.LeaseWait) < float64(b.Lease+b.Kill)*(1+Drift)/(1-Drift)-1 {
			t.Errorf("W = %s does not cover D + K = %s", b.LeaseWait, b.Lease+b.Kill)
		}
		if b.Renew > b.Lease/3 || b.Renew <= 0 {
			t.Errorf("renews every %s of %s", b.Renew, b.Lease)
		}
		// ZkelectdLeaseTight (deploy/prometheus/alerts.yml) is for leaders with less than this left: no renewal in time gets there,
		// and the child is not asked to stop before.
		if tight := b.Lease * 6 / 10; b.Lease-b.Renew <= tight || b.Grace >= tight {
			t.Errorf("renews with %s of %s left, and asks to stop with %s left", b.Lease-b.Renew, b.Lease, b.Grace)
		}
		// Without work, 300 ms are the only limit to how long a member that ends waits; else that is part of its stop timeout.
		if b.Handover > 300*time.Millisecond || stop > 0 && b.Handover > stop/4 || stop == 0 && b.Handover != 300*time.Millisecond {
			t.Errorf("a successor may take %s of a stop of %s", b.Handover, stop)
		}
		// Two renewals may fail before the child is asked to stop.
		if 2*b.Renew >= b.Lease-b.Grace {
			t.Errorf("asks to stop after %s, renews every %s", b.Lease-b.Grace, b.Renew)
		}
		if stop > b.Lease-b.Renew {
			t.Errorf("a stop of %s does not fit what is left of %s", stop, b.Lease)
		}
	})
}

// drawLease draws a configured lease: 0, or one from the least to about the longest.
func drawLease(t *rapid.T, session time.Duration) time.Duration {
	return rapid.OneOf(rapid.Just(time.Duration(0)), rapid.Map(rapid.Int64Range(int64(MinLease), max(int64(MinLease), int64(session)/2)), func(n int64) time.Duration { return time.Duration(n) })).Draw(t, "lease")
}

// The default never makes a budget fail, and is as long as the lease allows.
func TestDefaultStop(t *testing.T) {
	for session, want := range map[time.Duration]time.Duration{
		2 * time.Second: 750 * time.Millisecond, 3 * time.Second: 1120 * time.Millisecond, 4 * time.Second: 1500 * time.Millisecond,
		6 * time.Second: 2250 * time.Millisecond, 10 * time.Second: 3750 * time.Millisecond, 30 * time.Second: 10 * time.Second,
	} {
		if got := DefaultStop(session, 0); got != want {
			t.Errorf("session timeout %s: %s, want %s", session, got, want)
		}
	}
	if got := DefaultStop(20*time.Second, 900*time.Millisecond); got != 750*time.Millisecond {
		t.Errorf("a lease of 900ms: %s", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		session := time.Duration(rapid.Int64Range(int64(400*time.Millisecond), int64(10*time.Minute)).Draw(t, "session"))
		lease := drawLease(t, session)
		_, without := NewBudget(session, lease, 0)
		stop := DefaultStop(session, lease)
		b, err := NewBudget(session, lease, stop)
		if (err == nil) != (without == nil) {
			t.Errorf("session timeout %s, lease %s: with a stop timeout of %s: %v; without: %v", session, lease, stop, err, without)
		}
		if err == nil && (b.Stop != stop || stop < 100*time.Millisecond || stop > 10*time.Second) {
			t.Errorf("session timeout %s, lease %s: stop timeout %s", session, lease, stop)
		}
		if _, err := NewBudget(session, lease, stop+20*time.Millisecond); err == nil && stop != 10*time.Second {
			t.Errorf("session timeout %s, lease %s: %s, although the lease allows more", session, lease, stop)
		}
	})
}

// The error says what does not fit, and what it advises is accepted: a shorter stop, a longer lease, a longer session timeout.
func TestBudgetRejectsALeaseOrAStopThatDoesNotFit(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		session, lease, stop time.Duration
		want                 string
		advised              [][3]time.Duration
	}{
		{6 * time.Second, 899 * ms, 0, "election.lease: 899ms is too short: it must be 0s or 900ms and more", [][3]time.Duration{{6 * time.Second, 900 * ms, 0}, {6 * time.Second, 0, 0}}},
		{6 * time.Second, 3 * time.Second, 0, "election.lease: 3s is too long for a session timeout of 6s, which allows 2.7s: shorten it, or raise zookeeper.session_timeout " +
			"(and the server's maxSessionTimeout) to 6.7s", [][3]time.Duration{{6 * time.Second, 2700 * ms, 0}, {6700 * ms, 3 * time.Second, 0}}},
		{6 * time.Second, 900 * ms, 2 * time.Second, "child.stop_timeout 2s does not fit the lease of 900ms: shorten it to at most 750ms, or raise election.lease to 2.4s",
			[][3]time.Duration{{6 * time.Second, 900 * ms, 750 * ms}, {6 * time.Second, 2400 * ms, 2 * time.Second}}},
		{6 * time.Second, 2 * time.Second, 3 * time.Second, "child.stop_timeout 3s does not fit the lease of 2s: shorten it to at most 1.66s, or raise election.lease to 3.6s " +
			"and zookeeper.session_timeout (and the server's maxSessionTimeout) to 8s", [][3]time.Duration{{8 * time.Second, 3600 * ms, 3 * time.Second}}},
	} {
		if _, err := NewBudget(c.session, c.lease, c.stop); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("T = %s, lease %s, stop %s:\n got %v\nwant %s", c.session, c.lease, c.stop, err, c.want)
		}
		for _, a := range c.advised {
			if _, err := NewBudget(a[0], a[1], a[2]); err != nil {
				t.Errorf("what is advised is rejected: %v", err)
			}
		}
	}
}

// A kill takes time however short the session timeout is.
func TestBudgetRejectsASessionTooShortForAKill(t *testing.T) {
	for _, session := range []time.Duration{400 * time.Millisecond, time.Second, 1800 * time.Millisecond} {
		_, err := NewBudget(session, 0, 0)
		if err == nil {
			t.Errorf("a session timeout of %s was accepted", session)
			continue
		}
		for _, want := range []string{session.String(), "300ms", "zookeeper.session_timeout", "to 2s"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the error lacks %q: %v", want, err)
			}
		}
	}
	if b, err := NewBudget(2*time.Second, 0, 0); err != nil || b.Kill != MinKill {
		t.Errorf("the advised timeout: %+v, %v", b, err)
	}
}

// Whatever timeout a server grants, work that is stopped at the end of SafeLease is dead before the session can end.
func TestSafeLeaseLeavesTimeForTheKill(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		session := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "session"))
		configured := drawLease(t, session)
		lease := SafeLease(session, configured)
		longest := session * 45 / 100
		if configured != 0 {
			longest = min(longest, configured)
		}
		if lease < 0 || lease > longest || lease > 0 && lease+max(longest/3, MinKill) > session-session/2*3/4-session/100 {
			t.Errorf("a lease of %s with a session timeout of %s", lease, session)
		}
	})
}
