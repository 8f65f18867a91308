package operator

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/operator/request"
	"zkelectd/internal/policy"
	"zkelectd/internal/store/storetest"
)

// connected is a session whose connection the test makes and breaks.
type connected struct {
	*storetest.Session
	lost atomic.Bool
}

func (c *connected) Connected() bool { return !c.lost.Load() }

// cacheOf returns a cache of an empty group.
func cacheOf() (*GroupCache, *connected) {
	c, s := NewGroupCache("g", "/g"), &connected{Session: storetest.NewServer().Connect()}
	c.SetSource(&Source{Session: s, Paths: cluster.Paths{Root: "/g"}})
	return c, s
}

func TestManyClientsCostOneRead(t *testing.T) {
	c, _ := cacheOf()
	var reads, under, worst atomic.Int32
	var entry cached[int]
	var all sync.WaitGroup
	began := time.Now()
	for range 100 {
		all.Go(func() {
			load(t.Context(), c, &entry, func(context.Context, *Source) (int, error) {
				reads.Add(1)
				worst.Store(max(worst.Load(), under.Add(1)))
				defer under.Add(-1)
				return 7, nil
			})
		})
	}
	all.Wait()
	if most := int32(time.Since(began)/cacheAge) + 1; reads.Load() > most || worst.Load() != 1 {
		t.Errorf("%d reads, %d at once", reads.Load(), worst.Load())
	}
}

// A read that hangs delays the other clients for a short time only; one whose client has gone is no answer for the others.
func TestReadIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := cacheOf()
		var entry cached[cluster.History]
		hang := func(ctx context.Context, _ *Source) (cluster.History, error) {
			<-ctx.Done()
			return cluster.History{}, ctx.Err()
		}
		began := time.Now()
		if _, err := load(t.Context(), c, &entry, hang); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != ReadTimeout {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		if _, err := load(t.Context(), c, &entry, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("asked again at once: %v", err)
		}
		entry = cached[cluster.History]{}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		load(gone, c, &entry, hang)
		if entry.err != nil {
			t.Errorf("a client that has gone leaves %v to the next", entry.err)
		}
	})
}

// Nothing is served without a session that is connected, not even the elector's own snapshot.
func TestCacheNeedsALiveSource(t *testing.T) {
	c, s := cacheOf()
	if terms, err := c.History(t.Context()); err != nil || len(terms) != 0 {
		t.Errorf("%+v %v", terms, err)
	}
	snap := cluster.Snapshot{Elected: cluster.Stored[cluster.Elected]{Exists: true, Record: cluster.Elected{Cause: cluster.CauseFirst}}}
	c.SetSnapshot(&snap)
	if g, err := c.Group(t.Context()); err != nil || g.Cause != "first" || g.Root != "/g" {
		t.Errorf("the elector's snapshot is not used: %+v %v", g, err)
	}
	s.lost.Store(true)
	if _, err := c.Group(t.Context()); !errors.Is(err, ErrNotConnected) {
		t.Errorf("without a connection: %v", err)
	}
	c.SetSnapshot(nil)
	c.SetSource(nil)
	for name, read := range map[string]func() error{
		"group":   func() error { _, err := c.Group(t.Context()); return err },
		"history": func() error { _, err := c.History(t.Context()); return err },
		"explain": func() error { _, err := c.Explain(t.Context()); return err },
		"dry run": func() error { _, err := c.DryRun(t.Context(), request.Request{Kind: request.KindResume}); return err },
	} {
		if err := read(); !errors.Is(err, ErrNoSession) {
			t.Errorf("%s without a session: %v", name, err)
		}
	}
}

// A leader that does not renew its lease is shown as unconfirmed while ZooKeeper still names it, by whoever follows its lease znode.
func TestALeaseThatIsNotRenewedIsUnconfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := cacheOf()
		write := func(ops ...cluster.Op) {
			t.Helper()
			if _, err := s.Do(t.Context(), ops...); err != nil {
				t.Fatal(err)
			}
		}
		write(cluster.Op{Kind: cluster.OpCreate, Path: "/lease", Data: []byte{}})
		snap := cluster.Snapshot{
			Elected: cluster.Stored[cluster.Elected]{Exists: true, Record: cluster.Elected{Term: 7, Node: "n1", Incarnation: "i"}},
			Fence: cluster.Stored[cluster.Fence]{Exists: true, Record: cluster.Fence{
				Term: 7, Node: "n1", Incarnation: "i", State: cluster.FenceReady, LeaseZnode: "/lease", LeaseWait: cluster.Duration(4 * time.Second),
			}},
			Current: cluster.Stored[cluster.Current]{Exists: true, Record: cluster.Current{Term: 7, Node: "n1", Incarnation: "i", State: cluster.CurrentReady}},
		}
		c.SetSnapshot(&snap)
		look := func(want string) {
			t.Helper()
			if g, err := c.Group(t.Context()); err != nil || g.LeaseUnconfirmed != want {
				t.Errorf("%q %v, want %q", g.LeaseUnconfirmed, err, want)
			}
		}
		for range 5 { // renewed each time
			look("")
			advance(2 * time.Second)
			write(cluster.Op{Kind: cluster.OpSet, Path: "/lease", Data: []byte{}, Version: -1})
		}
		for range 3 {
			look("")
			advance(time.Second)
		}
		look("not renewed for 3s")
		write(cluster.Op{Kind: cluster.OpSet, Path: "/lease", Data: []byte{}, Version: -1})
		advance(time.Second)
		look("")
	})
}

// advance lets time pass within a bubble.
func advance(d time.Duration) {
	<-time.After(d)
}

// Without its name, a group would be ranked by spread in another order than its elector uses.
func TestQuestionsKnowTheirGroupAndOthers(t *testing.T) {
	p, err := policy.New(cluster.Policy{Rules: cluster.Rules{Rank: []string{"with:billing", "spread"}}})
	if err != nil {
		t.Fatal(err)
	}
	n := Neighbors{Group: "ingest/1", Others: func(_ context.Context, r policy.Relations) elector.Placement {
		return elector.Placement{Peers: map[string]string{r.Peers()[0]: "n2"}}
	}}
	slot := whatif.Question{Policy: p, Snapshot: cluster.Snapshot{Slot: "3"}}
	q := whatif.Question{Policy: p, Slots: []whatif.Question{slot}}
	n.place(t.Context(), &q)
	if q.Options.Group != "ingest" || q.Slots[0].Options.Group != "ingest/3" || q.Slots[0].Placement.Peers["billing"] != "n2" || q.Placement.Peers["billing"] != "n2" {
		t.Errorf("%+v", q)
	}
	Neighbors{}.place(t.Context(), &slot)
}
