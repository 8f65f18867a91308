package group

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store/storetest"
	"zkelectd/internal/test/testhelper"
)

// gauge is what a host measures in a test.
type gauge struct {
	score    atomic.Int64 // -1 for an error, -2 for no result before the context ends
	measured atomic.Int32
	ended    atomic.Int32 // how often there was no result
}

func (g *gauge) measure(ctx context.Context) (float64, error) {
	g.measured.Add(1)
	switch n := g.score.Load(); n {
	case -1:
		return 0, errors.New("no disk")
	case -2:
		<-ctx.Done()
		g.ended.Add(1)
		return 0, ctx.Err()
	default:
		return float64(n), nil
	}
}

// joinScored runs a member of a group in which elections go by scores that are measured for them.
func joinScored(t *testing.T, server *storetest.Server, id string, timeout time.Duration, score int64) (*member, *gauge) {
	t.Helper()
	g := &gauge{}
	g.score.Store(score)
	same := func(s memorySession) Session { return s }
	m := joinWith(t, server, id, 0, same, func(_ *Group, s *Settings, o *InstanceOptions) {
		s.Rules = cluster.Rules{
			Type: "score", Failback: cluster.FailbackManual, RollCall: cluster.RollCallRules{Enabled: true, Timeout: cluster.Duration(timeout)},
		}
		o.RollCall = &RollCall{Timeout: timeout, Measure: g.measure}
	})
	return m, g
}

// A member that does not answer in time ranks last, and its measuring ends.
func TestAMemberThatDoesNotAnswerIsNotWaitedForLong(t *testing.T) {
	server := storetest.NewServer()
	a, _ := joinScored(t, server, "a", 300*time.Millisecond, 1)
	a.until(t, "a leads", status.Daemon.Leads)
	b, stuck := joinScored(t, server, "b", 300*time.Millisecond, -2)
	c, _ := joinScored(t, server, "c", 300*time.Millisecond, 5)
	a.until(t, "a sees the others", func(v status.Daemon) bool { return v.Sites["dc1"].Eligible == 3 })
	server.Expire(a.conn.SessionID())
	c.until(t, "c leads", status.Daemon.Leads)
	if stuck.measured.Load() == 0 || b.group.View().Leads() {
		t.Errorf("b has measured %d times, and leads: %t", stuck.measured.Load(), b.group.View().Leads())
	}
}

// A later roll call takes the place of one that is being answered.
func TestOnlyTheLastRollCallIsAnswered(t *testing.T) {
	server := storetest.NewServer()
	a, g := joinScored(t, server, "a", time.Minute, 1)
	a.until(t, "a leads", status.Daemon.Leads)
	before := g.measured.Load()
	call := func(n uint64, term int64) {
		s := server.Connect()
		defer s.Close(t.Context())
		p := cluster.Paths{Root: "/g"}
		next := cluster.RollCall{Term: term, Number: cluster.NewInstance(n), Timeout: cluster.Duration(time.Minute)}
		_, stat, err := s.Get(t.Context(), p.RollCall(), false)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Do(t.Context(), cluster.Op{Kind: cluster.OpSet, Path: p.RollCall(), Version: stat.Version, Data: cluster.Encode(&next)}); err != nil {
			t.Fatal(err)
		}
	}
	term := fence(t, server).Term
	g.score.Store(-2)
	call(1, term)
	testhelper.Eventually(t, 30*time.Second, "a measures", func() bool { return g.measured.Load() == before+1 })
	g.score.Store(7)
	call(2, term)
	testhelper.Eventually(t, 30*time.Second, "the first measuring ends", func() bool { return g.ended.Load() == 1 })
	a.until(t, "the answer is published", func(status.Daemon) bool { return nodeRecord(t, server, "a").Answer.Number == cluster.NewInstance(2) })
	if answer := nodeRecord(t, server, "a").Answer; answer.Score == nil || *answer.Score != 7 {
		t.Errorf("the answer is %+v", answer)
	}
	call(3, term-1) // that decision is over
	call(4, term)
	a.until(t, "the next answer is published", func(status.Daemon) bool { return nodeRecord(t, server, "a").Answer.Number == cluster.NewInstance(4) })
	if n := g.measured.Load(); n != before+3 {
		t.Errorf("a has measured %d times", n-before)
	}
}
