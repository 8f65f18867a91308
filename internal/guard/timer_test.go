package guard

import (
	"testing"
	"time"

	"zkelectd/internal/boottime"
)

// fires waits for a timer and reports whether it has fired.
func fires(t *testing.T, tm *timer) bool {
	t.Helper()
	select {
	case <-tm.c:
		return true
	case <-time.After(testTimeout):
		return false
	}
}

func TestTimer(t *testing.T) {
	tm, err := newTimer()
	if err != nil {
		t.Fatal(err)
	}
	defer tm.close()
	for name, at := range map[string]time.Duration{
		"just past": boottime.Now() - time.Millisecond, "long past": 1, "before the boot": -time.Hour,
		"at once": boottime.Now(), "soon": boottime.Now() + 30*time.Millisecond,
	} {
		tm.set(at)
		if !fires(t, tm) {
			t.Errorf("%s: it does not fire", name)
		}
		if now := boottime.Now(); now < at {
			t.Errorf("%s: %s early", name, at-now)
		}
	}
	// The last setting counts.
	tm.set(boottime.Now() + time.Hour)
	tm.set(boottime.Now() + 10*time.Millisecond)
	if !fires(t, tm) {
		t.Error("it does not fire after it was set to an earlier time")
	}
	soon := boottime.Now() + 20*time.Millisecond
	tm.set(soon)
	tm.set(0)
	for boottime.Now() < soon+20*time.Millisecond {
		select {
		case <-tm.c:
			t.Fatal("it fires although it was disarmed")
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func TestEarliest(t *testing.T) {
	for _, c := range []struct {
		times []time.Duration
		first time.Duration
	}{{nil, 0}, {[]time.Duration{0, 0}, 0}, {[]time.Duration{0, 5, 0, 3, 9}, 3}, {[]time.Duration{1, 0}, 1}} {
		if first := earliest(c.times...); first != c.first {
			t.Errorf("%v: %s", c.times, first)
		}
	}
	if past(0) || past(boottime.Now()+time.Hour) || !past(boottime.Now()) {
		t.Error("past: 0 must be never reached, and now must be reached")
	}
}
