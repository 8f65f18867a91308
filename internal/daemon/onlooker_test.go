package daemon

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/status"
)

// The elector answers from what it has read anyway, the others read on request.
func TestEveryDaemonKnowsTheGroup(t *testing.T) {
	root := fresh()
	a, _ := run(t, root, "a")
	if _, err := a.Explain(t.Context()); a.View().State() == "connecting" && err == nil {
		t.Error("before there is a session the group is explained")
	}
	until(t, a, "a leads", status.Daemon.Leads)
	b, bDone := run(t, root, "b", "ZKELECTD_NODE_PRIORITY=1")
	until(t, b, "b is a replica", func(v status.Daemon) bool { return v.NotReplica() == "" })
	until(t, a, "a has seen b", func(v status.Daemon) bool { return v.Sites["default"].Eligible == 2 })
	if a.onlooker.seen.Load() == nil || b.onlooker.seen.Load() != nil {
		t.Error("the elector alone has the group by itself")
	}
	for name, d := range map[string]*Daemon{"a": a, "b": b} {
		g, err := d.Group(t.Context())
		if err != nil || g.Leader != "a" || g.State != "READY" || len(g.Members) != 2 || g.Elector != "a" {
			t.Errorf("the group of %s: %+v %v", name, g, err)
		}
		e, err := d.Explain(t.Context())
		if err != nil || e.Leader != "a" || len(e.Members) != 2 || !strings.Contains(strings.Join(e.Changes, "\n"), "if a is lost, b (default) leads") {
			t.Errorf("%s explains %+v %v", name, e, err)
		}
	}
	// The history is written a moment later, and a look is good for a second.
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(30 * time.Second); ; <-tick.C {
		terms, err := b.History(t.Context())
		if err == nil && len(terms) == 1 && terms[0].Node == "a" {
			break
		}
		if time.Now().After(limit) {
			t.Fatalf("%+v %v", terms, err)
		}
	}
	b.Stop("stopped")
	if err := <-bDone; err != nil {
		t.Error(err)
	}
	if _, err := b.Group(t.Context()); !errors.Is(err, errNoSession) {
		t.Errorf("after its end: %v", err)
	}
}

func TestManyWhoAskCostOneRead(t *testing.T) {
	a, _ := run(t, fresh(), "a")
	until(t, a, "a leads", status.Daemon.Leads)
	var reads, under, worst atomic.Int32
	var g glance[int]
	var all sync.WaitGroup
	began := time.Now()
	for range 100 {
		all.Go(func() {
			look(t.Context(), a.onlooker, &g, func(context.Context, *source) (int, error) {
				reads.Add(1)
				worst.Store(max(worst.Load(), under.Add(1)))
				defer under.Add(-1)
				return 7, nil
			})
		})
	}
	all.Wait()
	if most := int32(time.Since(began)/lookAge) + 1; reads.Load() > most || worst.Load() != 1 {
		t.Errorf("%d reads, %d at once", reads.Load(), worst.Load())
	}
}

// One that does not come back keeps the others waiting for a short time only; one whose asker has left answers nobody.
func TestALookIsShort(t *testing.T) {
	a, _ := run(t, fresh(), "a")
	until(t, a, "a leads", status.Daemon.Leads)
	var g glance[cluster.History]
	hang := func(ctx context.Context, _ *source) (cluster.History, error) {
		<-ctx.Done()
		return cluster.History{}, ctx.Err()
	}
	if _, err := look(t.Context(), a.onlooker, &g, hang); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if _, err := look(t.Context(), a.onlooker, &g, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("asked again at once: %v", err)
	}
	g = glance[cluster.History]{}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	look(gone, a.onlooker, &g, hang)
	if g.err != nil {
		t.Errorf("one who has gone leaves %v to the next", g.err)
	}
}
