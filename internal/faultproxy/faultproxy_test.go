package faultproxy

import (
	"io"
	"net"
	"testing"
	"time"
)

// pair is a connection over a link, and its other end.
func pair(t *testing.T) (l *Link, near, far net.Conn) {
	t.Helper()
	target, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	if l, err = New(target.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	if near, err = net.Dial("tcp", l.listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close() })
	if far, err = target.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	return l, near, far
}

// arrives reports whether something sent to one end comes out of the other within a time.
func arrives(t *testing.T, from, to net.Conn, within time.Duration) bool {
	t.Helper()
	if _, err := io.WriteString(from, "x"); err != nil {
		t.Fatal(err)
	}
	return received(to, 1, within)
}

func received(c net.Conn, n int, within time.Duration) bool {
	c.SetReadDeadline(time.Now().Add(within))
	_, err := io.ReadFull(c, make([]byte, n))
	return err == nil
}

const (
	soon = 50 * time.Millisecond
	ever = 20 * time.Second
)

func TestWhatIsHeldComesLate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode     Mode
		to, from bool // come through
	}{
		"to the target":       {HoldTo, false, true},
		"from the target":     {HoldFrom, true, false},
		"in both directions":  {Hold, false, false},
		"in neither of them":  {Pass, true, true},
		"only with its delay": {Slow, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, near, far := pair(t)
			l.Set(c.mode)
			for _, way := range []struct {
				from, to net.Conn
				through  bool
			}{{near, far, c.to}, {far, near, c.from}} {
				if way.through {
					if !arrives(t, way.from, way.to, ever) {
						t.Error("something does not come through")
					}
				} else if arrives(t, way.from, way.to, soon) {
					t.Error("something comes through")
				}
			}
			l.Set(Pass)
			if !c.to && !received(far, 1, ever) || !c.from && !received(near, 1, ever) {
				t.Error("what was held never arrives")
			}
		})
	}
}

// The same seed makes the same choices.
func TestSeededDelays(t *testing.T) {
	t.Parallel()
	for _, m := range []Mode{Jitter, Lossy} {
		var all [2][]time.Duration
		for i := range all {
			l, _, _ := pair(t)
			l.Delay(time.Second)
			l.Seed(7)
			for range 100 {
				all[i] = append(all[i], l.late(m))
			}
		}
		differ := 0
		for i, d := range all[0] {
			if d != all[1][i] {
				t.Fatalf("mode %d: %s and %s with one seed", m, d, all[1][i])
			}
			if d != all[0][0] {
				differ++
			}
		}
		if differ == 0 {
			t.Errorf("mode %d: all take equally long", m)
		}
	}
}
