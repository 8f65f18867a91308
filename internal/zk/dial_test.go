package zk

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"zkelectd/internal/cluster"
)

// The first dial is immediate. Later ones wait, and longer for each round in which no server answered.
func TestBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := bareSession(t, io.Discard, "a:1", "b:2")
		s.hosts = &hostProvider{s: s, servers: s.opt.Servers}
		const jitter = rollbackTimeout / 20
		for _, c := range []struct {
			failures    int
			least, most time.Duration
		}{
			{0, 0, 1}, {0, 0, jitter}, {1, 0, jitter}, {2, 25 * time.Millisecond, 50*time.Millisecond + jitter},
			{3, 25 * time.Millisecond, 50*time.Millisecond + jitter}, {4, 50 * time.Millisecond, 100*time.Millisecond + jitter},
			{6, 100 * time.Millisecond, rollbackTimeout/5 + jitter}, {8, 100 * time.Millisecond, rollbackTimeout / 4}, {100, 100 * time.Millisecond, rollbackTimeout / 4},
		} {
			s.failures = c.failures
			for range 20 {
				began := time.Now()
				if err := s.backOff(); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took < c.least || took >= c.most {
					t.Errorf("after %d failures it takes %s", c.failures, took)
				}
				if s.attempts == 1 {
					break
				}
			}
		}
		began := time.Now()
		go s.end(errors.New("closed"))
		if err := s.backOff(); !errors.Is(err, cluster.ErrSessionEnded) || time.Since(began) > time.Millisecond {
			t.Errorf("at the end of the session: %v, after %s", err, time.Since(began))
		}
		if err := s.backOff(); !errors.Is(err, cluster.ErrSessionEnded) {
			t.Errorf("after the end of the session: %v", err)
		}
	})
}
