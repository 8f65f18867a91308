package electing

import (
	"slices"
	"testing"
)

func TestLimit(t *testing.T) {
	l := NewLimit(2)
	var granted []string
	a, b := l.NewShare(), l.NewShare()
	request := func(s *Share, name string) *Permit {
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
	withdrawn.Release()
	expect()
	if !first.Granted() || second.Granted() {
		t.Error("not only the first has a permit")
	}
	first.Release()
	first.Release()
	expect("second")
	b.Close() // gives back a permit and a request
	expect("fourth")
	request(b, "of a closed instance")
	request(a, "fifth")
	expect()
	second.Release()
	expect("fifth")
	if len(l.held) != 2 || len(l.queue) != 0 {
		t.Errorf("%d held, %d queued", len(l.held), len(l.queue))
	}
	a.Close()
	if len(l.held) != 0 {
		t.Errorf("%d are held in the end", len(l.held))
	}
}
