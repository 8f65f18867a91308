package group

import (
	"slices"
	"testing"
	"time"
)

func TestCutLeaseIsNeverExtended(t *testing.T) {
	var sent []time.Duration
	l := &leaseLimit{send: func(d time.Duration) { sent = append(sent, d) }}
	l.set(100)
	l.set(200)
	l.shorten(150) // a lease is under way: it is sent at once
	l.set(300)     // computed before the cut, or from a reply that came late
	l.shorten(250)
	l.shorten(140)
	l.set(0)
	l.shorten(130) // nothing works any more: a message would allow work again
	l.set(120)
	if want := []time.Duration{100, 200, 150, 150, 140, 0, 120}; !slices.Equal(sent, want) {
		t.Errorf("sent %v, want %v", sent, want)
	}
}
