package host

import (
	"fmt"
	"slices"
	"testing"
)

func TestLimiter(t *testing.T) {
	l := &limiter{max: 2}
	var granted []string
	a, b := &share{limiter: l}, &share{limiter: l}
	request := func(s *share, name string) func() {
		return s.Request(func() { granted = append(granted, name) })
	}
	expect := func(want ...string) {
		t.Helper()
		if !slices.Equal(granted, want) {
			t.Errorf("granted %v, want %v", granted, want)
		}
		granted = nil
	}
	first := request(a, "first")
	request(b, "stuck")
	expect("first", "stuck")
	second := request(a, "second")
	request(b, "third, of a closed instance")
	withdrawn := request(a, "withdrawn")
	request(a, "fourth")
	expect()
	withdrawn()
	expect()
	first()
	first()
	expect("second")
	b.close() // gives back a permit and a request
	expect("fourth")
	request(b, "of a closed instance")
	request(a, "fifth")
	expect()
	second()
	expect("fifth")
	if l.held != 2 || len(l.queue) != 0 {
		t.Errorf("%d held, %d queued", l.held, len(l.queue))
	}
	a.close()
	if l.held != 0 {
		t.Errorf("%d are held in the end", l.held)
	}
}

func TestNoLimit(t *testing.T) {
	s := &share{limiter: &limiter{}}
	n := 0
	for range 100 {
		s.Request(func() { n++ })
	}
	if n != 100 {
		t.Error(fmt.Sprint(n))
	}
}
