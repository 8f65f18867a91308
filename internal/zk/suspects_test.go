package zk

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"zkelectd/internal/cluster"
)

// A list of children that is too large costs the connection twice, and then it is not read for a while. The other groups lose
// nothing else.
func TestEndlessListIsHeldBack(t *testing.T) {
	s, other := open(t, Options{Timeout: 20 * time.Second}), open(t, Options{})
	p := root(t, s)
	fillWith(t, other, p.Election(), maxReply+1<<20)
	g := s.Group(p)
	var held *HeldBackError
	var err error
	tries := 0
	for ; tries < 5 && held == nil; tries++ { // more than two if a reconnect takes longer than the request is held back
		if _, _, err = g.Children(t.Context(), p.Election(), true); !errors.As(err, &held) && !errors.Is(err, cluster.ErrUnknown) {
			t.Errorf("try %d: %v", tries, err)
		}
		eventually(t, "the reconnect", s.Connected)
	}
	if tries < 3 || held == nil || !errors.Is(err, cluster.ErrNotSent) {
		t.Errorf("after %d tries: %v", tries, err)
	}
	contains(t, err, "list "+p.Election(), "too large")
	if n := s.Reconnects(); n != tries-1 {
		t.Errorf("%d reconnects", n)
	}
	if _, _, err := g.Get(t.Context(), p.Election(), true); err != nil {
		t.Errorf("another request: %v", err)
	}
}

// fillWith creates children whose names have size bytes in all.
func fillWith(t testing.TB, s cluster.Writer, path string, size int) {
	t.Helper()
	const perTx = 500
	var ops []cluster.Op
	for i := 0; size > 0; i++ {
		name := fmt.Sprintf("%s/%06d%s", path, i, strings.Repeat("x", 1000))
		if ops = append(ops, create(name, false)); len(ops) == perTx || size <= 1000 {
			if _, err := s.Do(t.Context(), ops...); err != nil {
				t.Fatal(err)
			}
			ops = nil
		}
		size -= 1000
	}
}

// Only requests that were in flight at two losses in a row are held back, for longer at each further one, and only one suspect is in flight.
func TestSuspects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newSession(Options{}).own
		s := newSuspects(slog.New(slog.NewTextHandler(io.Discard, nil)))
		enter := func(key string) func(outcome) {
			t.Helper()
			leave, err := s.enter(t.Context(), request{group: g, key: key})
			if err != nil {
				t.Fatal(err)
			}
			return leave
		}
		loseAll := func(leave ...func(outcome)) {
			s.connectionLost()
			for _, l := range leave {
				l(lost)
			}
		}
		loseAll(enter("a"), enter("a"), enter("b"), enter("c"), enter(""))
		leave := enter("a")
		second := make(chan func(outcome))
		go func() { second <- enter("b") }()
		synctest.Wait()
		select {
		case <-second:
			t.Fatal("two suspects at once")
		default:
		}
		enter("d")(answered)
		leave(answered)
		leave = <-second
		loseAll(leave, enter("a"), enter(""))
		if _, err := s.enter(t.Context(), request{group: g, key: "b"}); !errors.Is(err, cluster.ErrNotSent) {
			t.Errorf("b was in flight twice: %v", err)
		}
		enter("c")(unsent)
		loseAll(enter("c"))
		if _, err := s.enter(t.Context(), request{group: g, key: "c"}); !errors.Is(err, cluster.ErrNotSent) {
			t.Errorf("c was lost again after it was not sent: %v", err)
		}
		enter("a")(answered)
		enter("")(answered)
		for hold := firstHold; hold < 4*holdBack; hold *= 2 {
			<-time.After(min(hold, holdBack))
			loseAll(enter("b"))
			var held *HeldBackError
			if _, err := s.enter(t.Context(), request{group: g, key: "b"}); !errors.As(err, &held) || held.For != min(2*hold, holdBack) {
				t.Errorf("b is held back after a further loss: %v, want for %s", err, min(2*hold, holdBack))
			}
		}
		<-time.After(holdBack)
		enter("b")(answered)
		loseAll(enter("b"))
		enter("b")(answered)
		loseAll(enter("x"))
		<-time.After(11 * holdBack)
		loseAll(enter("y"))
		if len(s.byKey) != 1 {
			t.Errorf("old suspects stay: %v", s.byKey)
		}
	})
}
