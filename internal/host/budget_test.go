package host

import (
	"testing"
	"time"

	"zkelectd/internal/config"
)

func TestLeaseIsBasedOnTheSmallestGrant(t *testing.T) {
	h := new(Host)
	for _, c := range []struct{ granted, floor, want time.Duration }{
		{20 * time.Second, 0, 20 * time.Second},
		{20 * time.Second, 6 * time.Second, 6 * time.Second},
		{4 * time.Second, 6 * time.Second, 4 * time.Second}, // the setting was wrong
		{20 * time.Second, 0, 4 * time.Second},              // a server that granted it may grant it again
	} {
		if got := (config.ZooKeeper{MinSessionTimeout: c.floor}).LeaseBase(h.noteGrant(c.granted)); got != c.want {
			t.Errorf("granted %s, at least %s: %s, want %s", c.granted, c.floor, got, c.want)
		}
	}
}
