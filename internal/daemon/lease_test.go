package daemon

import (
	"slices"
	"testing"
	"time"

	"zkelectd/internal/config"
)

func TestNoLaterLeaseExtendsOneThatWasCut(t *testing.T) {
	var sent []time.Duration
	l := &leaseLimit{send: func(d time.Duration) { sent = append(sent, d) }}
	l.lease(100)
	l.lease(200)
	l.shorten(150) // a lease is under way: it is told at once
	l.lease(300)   // computed before the cut, or from a reply that came late
	l.shorten(250)
	l.shorten(140)
	l.lease(0)
	l.shorten(130) // nothing works any more: a message would allow work again
	l.lease(120)
	if want := []time.Duration{100, 200, 150, 150, 140, 0, 120}; !slices.Equal(sent, want) {
		t.Errorf("sent %v, want %v", sent, want)
	}
}

func TestLeaseRestsOnTheSmallestGrant(t *testing.T) {
	var g grants
	for _, c := range []struct{ granted, floor, want time.Duration }{
		{20 * time.Second, 0, 20 * time.Second},
		{20 * time.Second, 6 * time.Second, 6 * time.Second},
		{4 * time.Second, 6 * time.Second, 4 * time.Second}, // the setting was wrong
		{20 * time.Second, 0, 4 * time.Second},              // granted once, it may be granted again
	} {
		if got := g.base(c.granted, config.ZooKeeper{MinSessionTimeout: c.floor}); got != c.want {
			t.Errorf("granted %s, at least %s: %s, want %s", c.granted, c.floor, got, c.want)
		}
	}
}
