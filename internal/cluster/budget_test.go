package cluster

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whatever is accepted must hold the inequalities that S1 rests on.
func TestBudgetHoldsItsInequalities(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		session := time.Duration(rapid.Int64Range(int64(400*time.Millisecond), int64(10*time.Minute)).Draw(t, "session"))
		stop := time.Duration(rapid.Int64Range(0, int64(session)).Draw(t, "stop"))
		b, err := NewBudget(session, stop)
		if err != nil {
			return
		}
		tick := session / 2
		if b.Lease+b.Kill > session-tick*3/4-session/100 {
			t.Errorf("D + K = %s reaches into the expiry", b.Lease+b.Kill)
		}
		if float64(b.WaitOut) < float64(b.Lease+b.Kill)*(1+Drift)/(1-Drift)-1 {
			t.Errorf("W = %s does not cover D + K = %s", b.WaitOut, b.Lease+b.Kill)
		}
		if b.Renew > b.Lease/3 || b.Renew <= 0 {
			t.Errorf("renewed every %s of %s", b.Renew, b.Lease)
		}
		// Two renewals may fail before the child is asked to stop.
		if 2*b.Renew >= b.Lease-b.Grace {
			t.Errorf("stops after %s, renewed every %s", b.Lease-b.Grace, b.Renew)
		}
		if stop > b.Lease-b.Renew {
			t.Errorf("a stop of %s does not fit what is left of %s", stop, b.Lease)
		}
	})
}

func TestBudgetRefusesAStopThatOutlastsTheLease(t *testing.T) {
	if _, err := NewBudget(6*time.Second, 2*time.Second); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
	_, err := NewBudget(6*time.Second, 10*time.Second)
	if err == nil || !strings.Contains(err.Error(), "child.stop_timeout 10s") || !strings.Contains(err.Error(), "zookeeper.session_timeout") {
		t.Fatalf("refusal: %v", err)
	}
	// What the refusal advises must be accepted.
	if _, err := NewBudget(26800*time.Millisecond, 10*time.Second); err != nil {
		t.Errorf("the advice is refused: %v", err)
	}
}
