package group

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/transition"
	"zkelectd/internal/work/worker"
)

// releases is a session that says that a transaction is sent.
type releases struct {
	Session
	sent chan struct{}
}

func (s releases) Do(context.Context, ...cluster.Op) ([]cluster.Result, error) {
	s.sent <- struct{}{}
	return nil, nil
}

// Others elect when they see the RELEASE, and would take the killed work for the warm standby that the record before told of.
func TestAReleaseAfterAnOutageTellsOfTheStandbyFirst(t *testing.T) {
	for name, c := range map[string]struct {
		send    transition.Send
		standby *worker.Standby
		first   int
	}{
		"after an outage":    {transition.Send{Tx: transition.TxRelease, Lapsed: true}, new(worker.Standby), 1},
		"no outage":          {transition.Send{Tx: transition.TxRelease}, new(worker.Standby), 0},
		"no promotable work": {transition.Send{Tx: transition.TxRelease, Lapsed: true}, nil, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newPublished(t, 2)
			s := releases{sent: make(chan struct{})}
			m := &Member{node: p.publication, background: p.background, inbox: p.inbox, session: s, group: &Group{opt: Options{Counters: NewCounters(nil)}}}
			m.opt.Standby = c.standby
			c.send.Deadline = boottime.Now() + time.Minute
			m.send(c.send)
			for sent := false; !sent; {
				select {
				case <-p.inbox.c:
					p.inbox.runNext()
				case <-s.sent:
					sent = true
				}
			}
			if len(p.writes) != c.first {
				t.Errorf("%s: %d records were written before the RELEASE, want %d", name, len(p.writes), c.first)
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
		t.Errorf("the hint does not name the group: %s", &log)
	}
	g.checkDrift(same, stored(cluster.Slots{SlotSize: g.settings.Slots}))
	if seen := g.driftSeen(); seen != (drift{}) {
		t.Errorf("nothing differs: %+v", seen)
	}
}
