package cluster

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A device that is accepted resets the host before any successor may start, and is never petted after the end of the lease. The last
// pet is early enough before that end only if a healthy leader still has that much of its lease.
func TestResetInequalities(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		session := time.Duration(rapid.Int64Range(int64(2*time.Second), int64(10*time.Minute)).Draw(t, "session"))
		timeout := time.Duration(rapid.IntRange(0, 120).Draw(t, "timeout")) * time.Second
		lease := drawLease(t, session)
		b, err := NewBudget(session, lease, DefaultStop(session, lease))
		if err != nil {
			return
		}
		r, err := b.NewReset(timeout)
		if err != nil {
			return
		}
		lastPet := min(0, r.Within-r.Timeout) // relative to the end of the lease, see petUntil in package guard
		if reset := b.Lease + lastPet + r.Timeout + ResetMargin; reset > b.Lease+b.Kill || reset > expiry(session) {
			t.Errorf("a reset %s after the begin of a lease of %s, whose kills may take %s", reset, b.Lease, b.Kill)
		}
		if b.LeaseWait < b.Lease+lastPet+r.Timeout+ResetMargin {
			t.Errorf("W = %s is over before the reset", b.LeaseWait)
		}
		if -lastPet > b.Lease-b.Renew {
			t.Errorf("the last pet is %s before the end of a lease of %s renewed every %s", -lastPet, b.Lease, b.Renew)
		}
		if r.Within < MinKill || r.Interval <= 0 || r.Interval > r.Timeout/3 || r.Timeout%time.Second != 0 {
			t.Errorf("%+v", r)
		}
	})
}

func TestResetFigures(t *testing.T) {
	for _, c := range []struct {
		session, timeout time.Duration
		want             Reset
		err              string
	}{
		{6 * time.Second, 0, Reset{2 * time.Second, 400 * time.Millisecond, 200 * time.Millisecond}, ""},
		{20 * time.Second, 0, Reset{8 * time.Second, 2500 * time.Millisecond, 1250 * time.Millisecond}, ""},
		{20 * time.Second, 2 * time.Second, Reset{2 * time.Second, 2500 * time.Millisecond, 666666666}, ""},
		{6 * time.Second, 3 * time.Second, Reset{}, "zookeeper.session_timeout to 7.8s"},
		{4 * time.Second, 0, Reset{}, "zookeeper.session_timeout to 5.4s"},
	} {
		b, err := NewBudget(c.session, 0, DefaultStop(c.session, 0))
		if err != nil {
			t.Fatal(err)
		}
		r, err := b.NewReset(c.timeout)
		if r != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s, %s: %+v, %v", c.session, c.timeout, r, err)
		}
	}
	// What the errors advise is accepted.
	for session, timeout := range map[time.Duration]time.Duration{7800 * time.Millisecond: 3 * time.Second, 5400 * time.Millisecond: 0} {
		b, _ := NewBudget(session, 0, DefaultStop(session, 0))
		if _, err := b.NewReset(timeout); err != nil {
			t.Error(err)
		}
	}
}
