package faultproxy

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"
)

// pair returns a proxy and both ends of a connection over it.
func pair(t *testing.T) (p *Proxy, near, far net.Conn) {
	t.Helper()
	target, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	if p, err = New(target.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	if near, err = net.Dial("tcp", p.listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close() })
	if far, err = target.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	return p, near, far
}

// arrives reports whether data that is sent to one end arrives at the other within a time.
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
	soon  = 50 * time.Millisecond
	limit = 20 * time.Second
)

func TestHeldDataArrivesLater(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode     Mode
		to, from bool // arrives
	}{
		"to the target":        {HoldToTarget, false, true},
		"from the target":      {HoldFromTarget, true, false},
		"in both directions":   {Hold, false, false},
		"in neither direction": {Pass, true, true},
		"only with its delay":  {Slow, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, near, far := pair(t)
			p.SetMode(c.mode)
			for _, way := range []struct {
				from, to net.Conn
				through  bool
			}{{near, far, c.to}, {far, near, c.from}} {
				if way.through {
					if !arrives(t, way.from, way.to, limit) {
						t.Error("data does not arrive")
					}
				} else if arrives(t, way.from, way.to, soon) {
					t.Error("data arrives")
				}
			}
			p.SetMode(Pass)
			if !c.to && !received(far, 1, limit) || !c.from && !received(near, 1, limit) {
				t.Error("data that was held does not arrive")
			}
		})
	}
}

// The same seed gives the same delays.
func TestSeededDelays(t *testing.T) {
	t.Parallel()
	for _, m := range []Mode{Jitter, Lossy} {
		var all [2][]time.Duration
		for i := range all {
			p, _, _ := pair(t)
			p.SetDelay(time.Second)
			p.Seed(7)
			for range 100 {
				all[i] = append(all[i], p.delayFor(m))
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
			t.Errorf("mode %d: all delays are equal", m)
		}
	}
}

// Only the session id of a connect request is cleared, and nothing that follows.
func TestNewSession(t *testing.T) {
	t.Parallel()
	p, near, far := pair(t)
	p.SetMode(NewSession)
	for i, want := range []byte{0, 'x'} {
		if _, err := near.Write(bytes.Repeat([]byte{'x'}, 45)); err != nil {
			t.Fatal(err)
		}
		far.SetReadDeadline(time.Now().Add(limit))
		got := make([]byte, 45)
		if _, err := io.ReadFull(far, got); err != nil {
			t.Fatal(err)
		}
		if id := bytes.Repeat([]byte{want}, 8); !bytes.Equal(got[20:28], id) || bytes.Count(got, []byte{'x'}) != 45-bytes.Count(id, []byte{0}) {
			t.Errorf("packet %d: %q", i, got)
		}
	}
}
