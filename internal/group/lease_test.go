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
	l.shorten(150) // the current lease is shortened at once
	l.set(300)     // computed before the cut, or from a reply that came late
	l.shorten(250)
	l.shorten(140)
	l.set(0)
	l.shorten(130) // all work is dead: another deadline would allow work again
	l.set(120)
	if want := []time.Duration{100, 200, 150, 150, 140, 0, 120}; !slices.Equal(sent, want) {
		t.Errorf("sent %v, want %v", sent, want)
	}
}
