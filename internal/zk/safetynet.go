package zk

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"zkelectd/internal/cluster"
)

// The safety net, in case a watch is lost: the znodes that have an armed watch are checked one after another, each against what
// was read when the watch was set. Elections do not normally depend on it. Its cost is that of the host, not of its groups.

// A pass over all watches takes passTime at least, and netInterval is the least time for each check. Up to netBatch checks are made at
// once, so that an idle host is woken less often.
const (
	passTime    = 24 * time.Second
	netInterval = 500 * time.Millisecond
	netBatch    = 16
)

// armedWatch is a watch that has not fired. While it is armed, the znode is as it was when the watch was set.
type armedWatch struct {
	read   bool // the read that set it has been answered
	exists bool
	stat   cluster.Stat
}

// arm records a watch before it is set, since it may fire before the call that sets it has returned. It returns nil if the watch is
// set already: the library would add another channel for each call. While another reader is setting it, the server may still answer
// the caller first, so the caller must set it as well.
func (s *Session) arm(w watch) *armedWatch {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch a := s.armed[w]; {
	case a == nil:
		s.armed[w] = &armedWatch{}
		return s.armed[w]
	case !a.read:
		return &armedWatch{} // only the first one is checked
	}
	return nil
}

// noteRead records the result of the read that set a watch, or that it has set none.
func (s *Session) noteRead(w watch, a *armedWatch, stat cluster.Stat, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil, errors.Is(err, cluster.ErrNoNode) && !w.children: // a list of children needs a znode
		*a = armedWatch{read: true, exists: err == nil, stat: stat}
	case s.armed[w] == a:
		delete(s.armed, w)
	}
}

// runSafetyNet checks the watches until the session has ended.
func (s *Session) runSafetyNet() {
	var pass []watch
	pace := passTime
	timer := time.NewTimer(Jitter(pace))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-s.done:
			return
		}
		if len(pass) == 0 {
			pass = s.armedWatches()
			pace = passTime / time.Duration(max(1, len(pass)))
		}
		n := min(netBatch, len(pass))
		s.checkWatches(pass[:n])
		pass = pass[n:]
		timer.Reset(time.Duration(max(1, n)) * max(netInterval, Jitter(pace)))
	}
}

// watchCheck is the check of a watch.
type watchCheck struct {
	watch  watch
	armed  *armedWatch
	exists bool
	stat   cluster.Stat
	err    error
}

// checkWatches compares znodes with what was read when their watches were set. If one has changed without an event, its watch was lost,
// and the group's reader must read everything again. All znodes are read first and compared afterwards: a reader is woken once then, and
// not once for each znode.
func (s *Session) checkWatches(watches []watch) {
	ctx, cancel := context.WithTimeout(s.ctx, s.Timeout())
	defer cancel()
	checks := make([]watchCheck, len(watches))
	var all sync.WaitGroup
	for i, w := range watches {
		all.Go(func() { checks[i] = s.readWatched(ctx, w) })
	}
	all.Wait()
	for _, c := range checks {
		if c.armed != nil && c.err == nil && s.compare(c.watch, c.armed, c.exists, c.stat) {
			s.opt.Log.Warn("a watch was lost, everything is read again", "znode", c.watch.path)
		}
	}
}

func (s *Session) armedWatches() []watch {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]watch, 0, len(s.armed))
	for w := range s.armed {
		all = append(all, w)
	}
	slices.SortFunc(all, func(a, b watch) int { return cmp.Compare(a.path, b.path) })
	return all
}

// readWatched reads a znode if its watch is armed.
func (s *Session) readWatched(ctx context.Context, w watch) watchCheck {
	s.mu.Lock()
	c := watchCheck{watch: w, armed: s.armed[w]}
	s.mu.Unlock()
	if c.armed == nil {
		return c
	}
	type reply struct {
		exists bool
		stat   *zk.Stat
	}
	r, err := await(ctx, request{group: s.own}, func() (reply, error) {
		exists, stat, err := s.zk.Exists(w.path)
		return reply{exists, stat}, err
	})
	c.exists, c.stat, c.err = r.exists, statOf(r.stat), err
	return c
}

// compare compares a check with what was read when watch a was set, and reports whether the watch was lost.
func (s *Session) compare(w watch, a *armedWatch, exists bool, stat cluster.Stat) (lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// An event is delivered before any newer data: if the same watch is still armed, the znode must be as it was.
	if s.armed[w] != a || !a.read {
		return false
	}
	groups := s.groupsOf(w.path)
	if w.matches(a, exists, stat) {
		for _, g := range groups {
			if g != s.own {
				g.wakeReader() // for what it reads without a watch
			}
		}
		return false
	}
	maps.DeleteFunc(s.armed, func(w watch, _ *armedWatch) bool { return s.groupsOf(w.path)[0] == groups[0] })
	for _, g := range groups {
		g.hint("")
	}
	return true
}

// matches reports whether a znode is as it was when the watch was set.
func (w watch) matches(a *armedWatch, exists bool, stat cluster.Stat) bool {
	switch {
	case exists != a.exists:
		return false
	case !exists:
		return true
	case w.children:
		return stat.Created == a.stat.Created && stat.ChildVersion == a.stat.ChildVersion
	}
	return stat.Modified == a.stat.Modified
}

// Jitter returns a duration from three quarters of d to five quarters, so that many hosts do not do the same thing at the same moment.
func Jitter(d time.Duration) time.Duration { return d*3/4 + rand.N(d/2) }
