package boottime

import (
	"testing"
	"time"
)

// fires waits for a timer and reports whether it has fired.
func fires(t *testing.T, tm *Timer) bool {
	t.Helper()
	select {
	case <-tm.C:
		return true
	case <-time.After(time.Minute):
		return false
	}
}

func TestTimer(t *testing.T) {
	tm, err := NewTimer()
	if err != nil {
		t.Fatal(err)
	}
	defer tm.Close()
	for name, at := range map[string]time.Duration{
		"just past": Now() - time.Millisecond, "long past": 1, "before the boot": -time.Hour,
		"at once": Now(), "soon": Now() + 30*time.Millisecond,
	} {
		tm.Set(at)
		if !fires(t, tm) {
			t.Errorf("%s: it does not fire", name)
		}
		if now := Now(); now < at {
			t.Errorf("%s: %s early", name, at-now)
		}
	}
	// The last setting counts.
	tm.Set(Now() + time.Hour)
	tm.Set(Now() + 10*time.Millisecond)
	if !fires(t, tm) {
		t.Error("it does not fire after it was set to an earlier time")
	}
	soon := Now() + 20*time.Millisecond
	tm.Set(soon)
	tm.Set(0)
	for Now() < soon+20*time.Millisecond {
		select {
		case <-tm.C:
			t.Fatal("it fires although it was disarmed")
		case <-time.After(5 * time.Millisecond):
		}
	}
}
