package zkstore

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"zkelectd/internal/cluster"
)

const oldLeader = "x-0000000000000001-n_0000000009"

// current creates the claim of a holder.
func (s *raceSource) current(state cluster.CurrentState, incarnation string) cluster.Op {
	data := cluster.Encode(&cluster.Current{Term: 5, Incarnation: incarnation, State: state})
	return cluster.Op{Kind: cluster.OpCreate, Path: s.p.Current(), Data: data}
}

// A hint at the fence or current, while another member leads and this daemon is elected, means that it has probably released.
func TestWhenCurrentIsVacated(t *testing.T) {
	leader, current, elected := cluster.Paths.Leader, cluster.Paths.Current, cluster.Paths.Elected
	type path = func(cluster.Paths) string
	self := func(s *raceSource) path { return func(p cluster.Paths) string { return p.Incarnation(s.self.Name) } }
	waits := func(s *raceSource) {
		s.do(s.elect(cluster.OpCreate, 6, s.self.Name), s.fence(cluster.FenceReady, oldLeader), s.current(cluster.CurrentReady, oldLeader))
	}
	for name, c := range map[string]struct {
		group func(*raceSource)
		hints func(*raceSource) [][]path // those that come together; nil for all
		want  bool
	}{
		"both":            {waits, func(*raceSource) [][]path { return [][]path{{leader, current}} }, true},
		"current":         {waits, func(*raceSource) [][]path { return [][]path{{current}} }, true},
		"one by one":      {waits, func(*raceSource) [][]path { return [][]path{{leader}, {current}} }, true},
		"in any order":    {waits, func(*raceSource) [][]path { return [][]path{{current}, {leader}} }, true},
		"only the fence":  {waits, func(*raceSource) [][]path { return [][]path{{leader}} }, true},
		"another path":    {waits, func(*raceSource) [][]path { return [][]path{{cluster.Paths.Heir}} }, false},
		"a new election":  {waits, func(*raceSource) [][]path { return [][]path{{leader, current, elected}} }, false},
		"an election too": {waits, func(*raceSource) [][]path { return [][]path{{current}, {elected}} }, false},
		"after a new one": {waits, func(*raceSource) [][]path { return [][]path{{elected}, {current}} }, false},
		"the slots":       {waits, func(*raceSource) [][]path { return [][]path{{current, cluster.Paths.Slots}} }, false},
		"after the slots": {waits, func(*raceSource) [][]path { return [][]path{{cluster.Paths.Slots}, {current}} }, false},
		"its own end":     {waits, func(s *raceSource) [][]path { return [][]path{{current, self(s)}} }, false},
		"a reconnect":     {waits, func(*raceSource) [][]path { return [][]path{nil} }, false},
		"and a reconnect": {waits, func(*raceSource) [][]path { return [][]path{{current}, nil} }, false},
		"another is elected": {func(s *raceSource) {
			s.do(s.elect(cluster.OpCreate, 6, "b-0000000000000001-n_0000000008"), s.fence(cluster.FenceReady, oldLeader), s.current(cluster.CurrentReady, oldLeader))
		}, func(*raceSource) [][]path { return [][]path{{leader, current}} }, false},
		"a candidate": {func(s *raceSource) {
			s.do(s.elect(cluster.OpCreate, 6, s.self.Name), s.fence(cluster.FenceHeld, oldLeader), s.current(cluster.CurrentProgress, oldLeader))
		}, func(*raceSource) [][]path { return [][]path{{leader, current}} }, false},
		"this daemon leads": {func(s *raceSource) {
			s.do(s.elect(cluster.OpCreate, 6, s.self.Name), s.fence(cluster.FenceReady, s.self.Name))
			claim := s.current(cluster.CurrentReady, s.self.Name)
			claim.Ephemeral = true
			if _, err := s.Do(s.t.Context(), claim); err != nil {
				s.t.Fatal(err)
			}
		}, func(*raceSource) [][]path { return [][]path{{leader, current}} }, false},
	} {
		s := newRaceSourceAt(t, cluster.Paths{Root: "/g", Slot: "2"})
		c.group(s)
		hinted := &hintingSource{raceSource: s}
		reader := NewCollector(CollectorOptions{
			Source: hinted, Paths: s.p, Self: s.self, Session: s.SessionID(), Clock: func() time.Duration { return 1 }, Log: slog.New(slog.DiscardHandler),
			Failsafe: true, // it reads the fence in any case
		})
		if snap, complete := reader.Collect(t.Context()); !complete || !snap.Leadership || reader.takeVacated() {
			t.Fatalf("%s: before the hints", name)
		}
		hint := func() {
			for _, together := range c.hints(s) {
				hinted.next.All = together == nil
				for _, path := range together {
					hinted.next.Add(path(s.p))
				}
				reader.Spread()
			}
		}
		hint()
		if got := reader.takeVacated(); got != c.want || reader.takeVacated() {
			t.Errorf("%s: vacated %t", name, got)
		}
		hint()
		if _, complete := reader.Collect(t.Context()); !complete || reader.takeVacated() {
			t.Errorf("%s: also after it was read", name)
		}
	}
}

// A reader offers current before it reads that the leader has released. The reads wait a moment for an ACQUIRE, and then for its reply.
func TestReadsWaitForAnACQUIRE(t *testing.T) {
	for name, c := range map[string]struct {
		react func(*Reader)
		want  time.Duration
	}{
		"nothing is done":           {func(*Reader) {}, maxTwin},
		"it may not acquire":        {(*Reader).Reread, 0},
		"it sends ACQUIRE":          {(*Reader).Hold, maxHold},
		"ACQUIRE is answered":       {func(r *Reader) { r.Hold(); time.AfterFunc(maxHold/2, r.Reread) }, maxHold / 2},
		"ACQUIRE is answered early": {func(r *Reader) { r.Hold(); time.AfterFunc(maxTwin/2, r.Reread) }, maxTwin / 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, hints, took := pausingReader(t)
				p := r.collector.opt.Paths
				waitsForLeader(r)
				hints.paths = []string{p.Leader(), p.Current()}
				go func() {
					<-r.Vacated()
					c.react(r)
				}()
				if d := took(); d != c.want {
					t.Errorf("it waits %s, want %s", d, c.want)
				}
				synctest.Wait()
				if r.held.Store(0); took() != 0 || len(r.Vacated()) > 0 {
					t.Error("it offers current again")
				}
			})
		})
	}
}

// One of the hints is enough. An offer that is not taken up stays, and blocks nobody.
func TestCurrentIsOfferedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, hints, took := pausingReader(t)
		p := r.collector.opt.Paths
		for _, paths := range [][]string{{p.Leader()}, {p.Current()}, {p.Leader(), p.Current()}} {
			waitsForLeader(r)
			hints.paths = paths
			if d := took(); d != maxTwin || len(r.Vacated()) != 1 {
				t.Errorf("after hints at %q it waits %s, and offers current %d times", paths, d, len(r.Vacated()))
			}
		}
	})
}

// waitsForLeader makes a reader know that another member leads, and that this daemon is elected.
func waitsForLeader(r *Reader) {
	c := r.collector
	r.vacated = make(chan struct{}, 1)
	c.opt.Self = cluster.Incarnation{Name: "me"}
	c.snap.Elected = cluster.Stored[cluster.Elected]{Exists: true, Record: cluster.Elected{Term: 6, Incarnation: "me"}}
	c.snap.Fence = cluster.Stored[cluster.Fence]{Exists: true, Record: cluster.Fence{Term: 5, Incarnation: oldLeader, State: cluster.FenceReady}}
	c.snap.Current = cluster.Stored[cluster.Current]{Exists: true, Record: cluster.Current{Term: 5, Incarnation: oldLeader, State: cluster.CurrentReady}}
	c.snap.Current.Stat.Owner, c.snap.Session = 1, 2
	p := c.opt.Paths
	for _, path := range []string{p.Elected(), p.Leader(), p.Current(), p.Incarnation("me")} {
		c.valid[path] = true
	}
}

// The leader releases while this daemon still reads that it leads: that is not thrown away, whichever hint comes first.
func TestAReleaseDuringAReadIsNotReadAgain(t *testing.T) {
	for name, c := range map[string]struct {
		during, later []string // hints
		reads         int      // of the fence
	}{
		"both":                  {during: []string{"/g/leader", "/g/leader/current"}, reads: 1},
		"the fence first":       {during: []string{"/g/leader"}, later: []string{"/g/leader/current"}, reads: 1},
		"current first":         {during: []string{"/g/leader/current"}, later: []string{"/g/leader"}, reads: 1},
		"and another is chosen": {during: []string{"/g/leader", "/g/leader/current", "/g/leader/elected"}, reads: 2},
	} {
		s := newRaceSource(t)
		s.do(s.elect(cluster.OpCreate, 6, s.self.Name), s.fence(cluster.FenceReady, oldLeader), s.current(cluster.CurrentReady, oldLeader))
		source := &lateHints{raceSource: s, hints: [][]string{nil, c.during}}
		reader := NewCollector(CollectorOptions{
			Source: source, Paths: s.p, Self: s.self, Session: s.SessionID(), Clock: func() time.Duration { return 1 }, Log: slog.New(slog.DiscardHandler),
		})
		snap, complete := reader.Collect(t.Context())
		if !complete || snap.Fence.Record.State != cluster.FenceReady || source.reads != c.reads {
			t.Errorf("%s: %d reads, fence %s", name, source.reads, snap.Fence.Record.State)
		}
		source.hints = [][]string{c.later}
		reader.Spread()
		if got := reader.takeVacated(); got != (c.reads == 1) {
			t.Errorf("%s: vacated %t", name, got)
		}
	}
}

// lateHints gives one list of hints after the other, and counts the reads of the fence.
type lateHints struct {
	*raceSource
	hints [][]string
	reads int
}

func (s *lateHints) Read(ctx context.Context, reads []*Read) {
	for _, read := range reads {
		if read.Path == s.p.Leader() {
			s.reads++
		}
	}
	s.raceSource.Read(ctx, reads)
}

func (s *lateHints) TakeHints() (h cluster.Hints) {
	if len(s.hints) == 0 {
		return h
	}
	for _, path := range s.hints[0] {
		h.Add(path)
	}
	s.hints = s.hints[1:]
	return h
}
