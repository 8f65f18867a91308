package zkstore

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"zkelectd/internal/cluster"
)

// hintSource has hints and no data. Those of later come after those of paths.
type hintSource struct{ paths, later []string }

func (*hintSource) Read(context.Context, []*Read) {}

func (s *hintSource) TakeHints() (h cluster.Hints) {
	for _, path := range s.paths {
		h.Add(path)
	}
	s.paths, s.later = s.later, nil
	return h
}

// idleSession is never woken but by a test.
type idleSession struct {
	ReaderSession
	wake chan struct{}
}

func (s idleSession) Wake() <-chan struct{} { return s.wake }
func (idleSession) Done() <-chan struct{}   { return nil }

// A daemon that has sent a transaction reads when that is over, or soon in any case.
func TestReadsWaitForATransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _, took := pausingReader(t)
		if d := took(); d != 0 {
			t.Errorf("without a transaction it waits %s", d)
		}
		r.Hold()
		if d := took(); d != maxHold {
			t.Errorf("it waits %s", d)
		}
		r.Hold()
		time.AfterFunc(maxHold/4, r.Reread)
		if d := took(); d != maxHold/4 {
			t.Errorf("the transaction ends, and it waits %s", d)
		}
		r.Hold()
		r.Reread()
		if d := took(); d != 0 {
			t.Errorf("the transaction has ended, and it waits %s", d)
		}
	})
}

// The hints at the fence and at current come together: a reader waits a little for the second one.
func TestReadsWaitForBothHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, hints, took := pausingReader(t)
		p := r.collector.opt.Paths
		for _, both := range []bool{false, true} {
			hints.paths = []string{p.Leader()}
			if both {
				hints.paths = append(hints.paths, p.Current())
			}
			r.collector.half = false
			if d, want := took(), map[bool]time.Duration{false: maxTwin, true: 0}[both]; d != want {
				t.Errorf("both: %t: it waits %s", both, d)
			}
		}
		hints.paths, r.collector.half = []string{p.Current()}, false
		time.AfterFunc(maxTwin/2, func() { r.conn.(idleSession).wake <- struct{}{} })
		if d := took(); d != maxTwin/2 {
			t.Errorf("the other hint comes, and it waits %s", d)
		}
		r.collector.half, r.collector.snap.Leadership = false, false
		hints.paths = []string{p.Leader()}
		if d := took(); d != 0 {
			t.Errorf("it does not read current, and waits %s", d)
		}
	})
}

// pausingReader returns a reader that knows the fence and current, its hints, and a function that returns how long it waits for its turn.
func pausingReader(t *testing.T) (*Reader, *hintSource, func() time.Duration) {
	hints, conn := &hintSource{}, idleSession{wake: make(chan struct{}, 1)}
	c := NewCollector(CollectorOptions{Source: hints, Paths: cluster.Paths{Root: "/g"}, Clock: clock(), Log: slog.New(slog.DiscardHandler)})
	c.snap.Leadership = true
	r := &Reader{conn: conn, collector: c, force: make(chan struct{}, 1)}
	return r, hints, func() time.Duration {
		began := time.Now()
		r.awaitTurn(t.Context())
		select {
		case <-r.force:
		default:
		}
		return time.Since(began)
	}
}
