package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store"
	"zkelectd/internal/store/storetest"
	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/transition"
	"zkelectd/internal/work/worker"
)

// published is a publication of a node's record, whose loop is the test, and the writes that it has sent.
type published struct {
	*publication
	inbox  *inbox
	node   cluster.Node // as record returns it
	writes []time.Time
	last   cluster.Node // as written last
	err    error        // the outcome of the next writes
}

// recordedConn records the writes of a publication, and reads what was written last. It has no other methods of a
// session.
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
func newPublished(t *testing.T) *published {
	t.Helper()
	p := &published{node: cluster.Node{ID: "a", Site: "dc1", Labels: map[string]string{"rack": "7"}}}
	p.inbox = newInbox()
	b := newBackground(t.Context(), p.inbox.post, func(v any) { panic(v) })
	t.Cleanup(b.cancelAndWait)
	p.publication = &publication{
		writer: store.NewNodeWriter(recordedConn{of: p}, cluster.Paths{Root: "/g"}, cluster.Incarnation{ID: "a"}, time.Now()),
		log:    slog.New(slog.DiscardHandler), timeout: sessionTimeout, background: b, record: p.record,
	}
	return p
}

func (p *published) record() cluster.Node {
	n := p.node
	n.Since = time.Now()
	return n
}

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

// A record that could not be written is written again.
func TestAFailedWriteIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPublished(t)
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

// releases is a session that says that a transaction is sent, and whether it had time.
type releases struct {
	Session
	sent      chan error
	connected bool
}

func (s releases) Connected() bool { return s.connected }

func (s releases) Do(ctx context.Context, _ ...cluster.Op) ([]cluster.Result, error) {
	s.sent <- ctx.Err()
	return nil, nil
}

// Others elect when they see the RELEASE, and would take the killed work for the warm standby that the record before told of.
func TestAReleaseAfterAnOutageTellsOfTheStandbyFirst(t *testing.T) {
	lapsed, standby := transition.Send{Tx: transition.TxRelease, Lapsed: true}, new(worker.Standby)
	for name, c := range map[string]struct {
		send      transition.Send
		standby   *worker.Standby
		connected bool
		records   int
	}{
		"after an outage":    {lapsed, standby, true, 1},
		"during the outage":  {lapsed, standby, false, 0},
		"no outage":          {transition.Send{Tx: transition.TxRelease}, standby, true, 0},
		"no promotable work": {lapsed, nil, true, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newPublished(t)
			s := releases{sent: make(chan error), connected: c.connected}
			first := &Member{node: p.publication, background: p.background, inbox: p.inbox}
			m := &Member{inbox: newInbox(), session: s, group: &Group{opt: Options{Counters: NewCounters(nil)}}} // of another slot
			m.background = newBackground(t.Context(), m.inbox.post, func(v any) { panic(v) })
			t.Cleanup(m.background.cancelAndWait)
			m.instance, m.opt.Standby, m.budget.Lease = &Instance{members: []*Member{first, m}}, c.standby, time.Second
			if c.records == 0 {
				c.send.Deadline = boottime.Now() + time.Minute
			} // else it is over: writing the record has taken long
			m.send(c.send)
			for sent := false; !sent; {
				select {
				case <-p.inbox.c:
					p.inbox.runNext()
				case <-m.inbox.c:
					m.inbox.runNext()
				case err := <-s.sent:
					if sent = true; err != nil {
						t.Errorf("%s: %v", name, err)
					}
				}
			}
			if len(p.writes) != c.records {
				t.Errorf("%s: %d records were written before the RELEASE, want %d", name, len(p.writes), c.records)
			}
		})
	}
}

// A policy that differs does not hide slots that differ.
func TestDriftOfPolicyAndSlots(t *testing.T) {
	stored := func(c cluster.Slots) cluster.Stored[cluster.Slots] {
		return cluster.Stored[cluster.Slots]{Exists: true, Record: c}
	}
	var log strings.Builder
	g := &Group{log: slog.New(slog.NewTextHandler(&log, nil)), opt: Options{Placement: noPlacement{}, Resource: "ingest"}}
	g.drift.Store(new(drift))
	g.settings.Slots = cluster.SlotSize{Count: 2, PerNode: 1}
	other := cluster.Stored[cluster.Policy]{Exists: true, Record: cluster.Policy{Revision: 7, Rules: cluster.Rules{Type: "fewest"}}}
	same := cluster.Stored[cluster.Policy]{Exists: true, Record: cluster.Policy{Rules: g.settings.Rules}}
	three := cluster.Slots{SlotSize: cluster.SlotSize{Count: 3, PerNode: 1}}

	g.checkDrift(other, stored(three))
	if seen := g.driftSeen(); !strings.Contains(seen.policy, "revision 7") || !strings.Contains(seen.slots, "3 slots") {
		t.Errorf("both differ: %+v", seen)
	}
	if !strings.Contains(log.String(), "zkelectd policy -g ingest' prints that for the file") {
		t.Errorf("the advice does not name the group: %s", &log)
	}
	g.settings.PolicyInGroup = true
	if g.checkDrift(other, stored(three)); g.driftSeen().policy != "" || g.settings.policyDigest() != "" {
		t.Errorf("a configuration without a policy differs: %+v", g.driftSeen())
	}
	if lost := g.policyRecord(1); lost.Type != "fewest" {
		t.Errorf("a group that has lost the policy gets another one: %+v", lost)
	}
	g.settings.PolicyInGroup = false
	if own := g.policyRecord(1); own.Type != "" {
		t.Errorf("not the policy of the file: %+v", own)
	}
	g.checkDrift(same, stored(cluster.Slots{SlotSize: g.settings.Slots}))
	if seen := g.driftSeen(); seen != (drift{}) {
		t.Errorf("nothing differs: %+v", seen)
	}
}

// Prometheus does not see an increase if a counter starts at 1.
func TestEveryTransitionIsCountedFromZero(t *testing.T) {
	counters := NewCounters(nil)
	kind, kinds := status.Transition{Cause: "failure", Result: "ready"}, 2*(len(cluster.Causes)+1)
	if n, ok := counters.totals.Transitions[kind]; n != 0 || !ok || len(counters.totals.Transitions) != kinds {
		t.Fatalf("at the start: %v", counters.totals.Transitions)
	}
	counters.term(cluster.PastTerm{Cause: cluster.CauseFailure, Outcome: string(cluster.CurrentReady)})
	if n := counters.totals.Transitions[kind]; n != 1 || len(counters.totals.Transitions) != kinds {
		t.Errorf("after one: %v", counters.totals.Transitions)
	}
	for i := range 1000 { // forged
		counters.term(cluster.PastTerm{Cause: cluster.Cause(fmt.Sprint("cause ", i))})
	}
	other := status.Transition{Cause: status.CauseOther, Result: status.ResultFailed}
	if n := counters.totals.Transitions[other]; n != 1000 || len(counters.totals.Transitions) != kinds {
		t.Errorf("%d of other causes, %d kinds", n, len(counters.totals.Transitions))
	}
}
