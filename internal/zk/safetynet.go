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

// The safety net, in case a watch is lost: the znodes that have an armed watch are checked one after another, each
// against what was read when the watch was set. Elections do not normally depend on it. Its cost is that of the host,
// not of its groups.

// A pass over all watches takes passTime at least, and netInterval is the least time for each check. Up to netBatch
// checks are made at once, so that an idle host is woken less often.
const (
	passTime    = 24 * time.Second
	netInterval = 500 * time.Millisecond
	netBatch    = 16
)

// armedWatch is a watch that has not fired. While it is armed, the znode is as it was when the watch was set.
type armedWatch struct {
	read bool // the read that set it has been answered
	stat cluster.Stat
}

// arm records a watch before it is set, since it may fire before the call that sets it has returned. It returns nil if
// the watch is set already: the library would add another channel for each call. While another reader is setting it,
// the server may still answer the caller first, so the caller must set it as well.
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
		*a = armedWatch{read: true, stat: stat}
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
		var all sync.WaitGroup
		for _, w := range pass[:n] {
			all.Go(func() { s.checkWatch(w) })
		}
		all.Wait()
		pass = pass[n:]
		timer.Reset(time.Duration(max(1, n)) * max(netInterval, Jitter(pace)))
	}
}

func (s *Session) armedWatches() []watch {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Keys(s.armed), func(a, b watch) int { return cmp.Compare(a.path, b.path) })
}

// checkWatch compares a znode with what was read when its watch was set.
func (s *Session) checkWatch(w watch) {
	s.mu.Lock()
	a := s.armed[w]
	s.mu.Unlock()
	if a == nil {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.Timeout())
	defer cancel()
	stat, err := await(ctx, request{group: s.own}, func() (*zk.Stat, error) {
		_, stat, err := s.zk.Exists(w.path)
		return stat, err
	})
	if err == nil && s.compare(w, a, statOf(stat)) {
		s.opt.Log.Warn("a watch was lost, everything is read again", "znode", w.path)
	}
}

// compare compares a znode with what was read when watch a was set, and reports whether the watch was lost: if the
// znode has changed without an event. Then the group's reader must read everything again.
func (s *Session) compare(w watch, a *armedWatch, stat cluster.Stat) (lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// An event is delivered before any newer data: if the same watch is still armed, the znode must be as it was.
	if s.armed[w] != a || !a.read || w.matches(a.stat, stat) {
		return false
	}
	groups := s.groupsOf(w.path)
	maps.DeleteFunc(s.armed, func(w watch, _ *armedWatch) bool { return s.groupsOf(w.path)[0] == groups[0] })
	for _, g := range groups {
		g.hint("")
	}
	return true
}

// matches reports whether a znode is as it was when the watch was set. One that does not exist has zeros.
func (w watch) matches(before, now cluster.Stat) bool {
	if w.children {
		return now.Created == before.Created && now.ChildVersion == before.ChildVersion
	}
	return now.Modified == before.Modified
}

// Jitter returns a duration from three quarters of d to five quarters, so that many hosts do not do the same thing at
// the same moment.
func Jitter(d time.Duration) time.Duration { return d*3/4 + rand.N(d/2) }
