package guard

import (
	"testing"
	"time"

	"zkelectd/internal/sys/boottime"
)

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
