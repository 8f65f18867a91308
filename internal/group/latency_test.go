package group

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store"
	"zkelectd/internal/store/storetest"
)

// published is a publication of a node's record, whose loop is the test, and the writes that it has sent.
type published struct {
	*publication
	inbox  *inbox
	node   cluster.Node // as record returns it
	size   int          // of the group
	writes []time.Time
	last   cluster.Node // as written last
	err    error        // the outcome of the next writes
}

// recordedConn records the writes of a publication, and reads what was written last. It has no other methods of a session.
type recordedConn struct {
	*storetest.Session
	of *published
}

func (recordedConn) SessionID() int64 { return 1 }

func (c recordedConn) Get(context.Context, string, bool) ([]byte, cluster.Stat, error) {
	return cluster.Encode(&c.of.last), cluster.Stat{Owner: 1}, nil
}

func (c recordedConn) Do(_ context.Context, ops ...cluster.Op) ([]cluster.Result, error) {
	data := ops[len(ops)-1].Data
	c.of.writes, c.of.last = append(c.of.writes, time.Now()), cluster.ReadStored[cluster.Node]("/g/nodes/a", data, cluster.Stat{}, true).Record
	return make([]cluster.Result, len(ops)), c.of.err
}

// newPublished returns the publication of a node that has just registered. It must be called in a bubble.
func newPublished(t *testing.T, size int) *published {
	t.Helper()
	p := &published{size: size, node: cluster.Node{ID: "a", Site: "dc1", Labels: map[string]string{"rack": "7"}}}
	p.setLatency(1)
	registered := p.record()
	p.inbox = newInbox()
	b := newBackground(t.Context(), p.inbox.post, func(v any) { panic(v) })
	t.Cleanup(b.cancelAndWait)
	p.publication = &publication{
		writer: store.NewNodeWriter(recordedConn{of: p}, cluster.Paths{Root: "/g"}, cluster.Incarnation{ID: "a"}, time.Now()),
		log:    slog.New(slog.DiscardHandler), timeout: sessionTimeout, background: b, record: p.record, members: func() int { return p.size },
		turns: randomTurn(), written: &registered,
	}
	return p
}

func (p *published) record() cluster.Node {
	n := p.node
	n.Since = time.Now()
	return n
}

func (p *published) setLatency(ms float64) { p.node.Latency = &ms }

// run is the loop for a while.
func (p *published) run(d time.Duration) {
	end := time.After(d)
	for {
		select {
		case <-p.inbox.c:
			p.inbox.runNext()
		case <-end:
			return
		}
	}
}

// In a large group each member publishes a change of its latency in its turn, with the newest one. In a smaller one it does so at once.
func TestTheLatencyIsPublishedInTurn(t *testing.T) {
	for members, want := range map[int]time.Duration{
		math.MinInt: 10 * time.Second, 0: 10 * time.Second, 399: 10 * time.Second, // as often as it is measured
		400: 20 * time.Second, 2000: 100 * time.Second, 6000: 5 * time.Minute, math.MaxInt: 5 * time.Minute,
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newPublished(t, members)
			for i := range 360 { // an hour
				p.setLatency(float64(i + 2))
				p.publish()
				p.run(status.CheckInterval)
			}
			p.run(want)
			if n, hour := len(p.writes), int(time.Hour/want); n < hour || n > hour+2 {
				t.Errorf("%d members: %d writes in an hour, want %d", members, n, hour)
			}
			for i := 1; i < len(p.writes); i++ {
				if after := p.writes[i].Sub(p.writes[i-1]); after < want {
					t.Errorf("%d members: a write %s after the last one, want %s", members, after, want)
				}
			}
			if *p.last.Latency != 361 {
				t.Errorf("%d members: the last latency that was written is %v", members, *p.last.Latency)
			}
		})
	}
}

// If the latencies of all members change at the same moment, their writes are spread.
func TestTheTurnsOfMembersDoNotCoincide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const members = 2000
		var seconds [100]int
		for range members {
			p := newPublished(t, members)
			p.setLatency(2)
			wait := p.untilTurn(p.record())
			if wait <= 0 || wait > 100*time.Second {
				t.Fatalf("waits %s", wait)
			}
			seconds[(wait-1)/time.Second]++
		}
		for i, n := range seconds {
			if n == 0 || n > 60 { // 20 on average
				t.Errorf("%d writes in second %d", n, i)
			}
		}
	})
}

// Only a change of the latency alone waits. What is written for another reason has the newest latency, so nothing is left to publish.
func TestOtherChangesArePublishedAtOnce(t *testing.T) {
	score := 7.0
	for name, change := range map[string]func(*published){
		"score":               func(p *published) { p.node.Score = &score },
		"health":              func(p *published) { p.node.Unhealthy = "no disk" },
		"a label":             func(p *published) { p.node.Labels = map[string]string{"rack": "8"} },
		"nothing, a reload":   func(p *published) { p.setLatency(1) },
		"a smaller group":     func(p *published) { p.size = 399 },
		"no latency any more": func(p *published) { p.node.Latency = nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPublished(t, 2000)
				p.turns = time.Now()
				p.setLatency(2)
				p.publish()
				p.run(time.Second)
				if len(p.writes) != 0 {
					t.Fatalf("%d writes for a latency", len(p.writes))
				}
				p.setLatency(3)
				change(p)
				p.publish()
				p.run(time.Millisecond)
				if len(p.writes) != 1 || !reflect.DeepEqual(p.last.Latency, p.node.Latency) {
					t.Fatalf("%d writes, the last one is %+v", len(p.writes), p.last)
				}
				if p.run(time.Hour); len(p.writes) != 1 {
					t.Errorf("%d writes", len(p.writes))
				}
			})
		})
	}
}

func TestTheFirstLatencyIsPublishedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPublished(t, 2000)
		p.written.Latency = nil // as after the start of the daemon
		p.publish()
		if p.run(time.Millisecond); len(p.writes) != 1 {
			t.Errorf("%d writes", len(p.writes))
		}
	})
}

// A write that an election waits for, and the next attempt after a failed one, do not wait for the turn.
func TestUrgentWritesDoNotAwaitTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPublished(t, 2000)
		p.turns = time.Now()
		p.setLatency(2)
		done := 0
		p.err = errors.New("no reply")
		p.publishNow(func(error) { done++ })
		if p.run(time.Second); len(p.writes) != 1 || done != 1 {
			t.Fatalf("%d writes, %d of them are done", len(p.writes), done)
		}
		p.err = nil
		if p.run(retryPublication); len(p.writes) != 2 || p.stale {
			t.Errorf("%d writes; stale: %t", len(p.writes), p.stale)
		}
	})
}

// A member knows the size of its group from the last decision, and the record that it has registered with.
func TestAMemberOfALargeGroupAwaitsItsTurn(t *testing.T) {
	m := join(t, storetest.NewServer(), "a")
	m.until(t, "it is elected", func(v status.Daemon) bool { return v.Elected == "a" })
	result := make(chan [3]bool, 1)
	m.background.runInLoop(func() {
		defer close(result)
		if m.node.written == nil {
			return
		}
		latency, later := 1.0, 2.0
		rec := m.node.record()
		m.node.written.Latency, rec.Latency = &latency, &later
		small := m.node.untilTurn(rec)
		m.read.Elected.Record.RankingOmitted = 1999
		large := m.node.untilTurn(rec)
		rec.Unhealthy = "no disk"
		result <- [3]bool{small == 0, large > 0, m.node.untilTurn(rec) == 0}
	})
	if got := <-result; got != [3]bool{true, true, true} {
		t.Errorf("%v", got)
	}
}
