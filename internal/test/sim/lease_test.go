package sim

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/watchdog"
)

// leaseBase is the znode below which the hosts have their lease znodes.
const leaseBase = "/h"

// isLease reports whether a path is that of a lease znode.
func isLease(path string) bool { return strings.HasPrefix(path, cluster.LeaseZnodes(leaseBase)+"/") }

// withoutLease returns the operations that are not about a lease znode.
func withoutLease(ops []cluster.Op) []cluster.Op {
	var rest []cluster.Op
	for _, op := range ops {
		if !isLease(op.Path) {
			rest = append(rest, op)
		}
	}
	return rest
}

// leases stands in for store.LeaseZnodeWatch: it reads the lease znodes that the loops on a session follow.
type leases struct {
	s       *session
	znode   string // the session's own; empty if it has none
	watched map[string]*watchedLease
}

type watchedLease struct {
	users       map[*loop]bool
	seen        cluster.LeaseZnodeSeen
	sent, first time.Duration // when the read was sent, and when the znode was seen for the first time; for breakages
}

// createLease creates the lease znode of a session, which the product does before the first registration.
func (s *session) createLease() {
	s.leases = &leases{s: s, watched: make(map[string]*watchedLease)}
	if !s.w.leases {
		return
	}
	for _, path := range []string{leaseBase, cluster.LeaseZnodes(leaseBase)} { // which may have been lost
		_, _, _ = s.w.tree.Apply(s.id, []cluster.Op{{Kind: cluster.OpCreate, Path: path}})
	}
	znode := cluster.LeaseZnode(leaseBase, s.h.id, s.id)
	if _, _, err := s.w.tree.Apply(s.id, cluster.LeaseZnodeTx(znode)); err != nil {
		s.w.fail("the lease znode cannot be created: %v", err)
	}
	if s.w.broken.unnamed(s.h) {
		return
	}
	s.leases.znode = znode
	s.renewer.merger.SetLeaseZnode(znode, s.id, 1)
}

// patience returns how long candidates have until they acquire.
func (m *member) patience() time.Duration {
	if !m.w.leases {
		return 0
	}
	return m.budget.Patience()
}

// follow makes a loop follow a lease znode instead of the one before.
func (l *loop) follow(znode string) {
	ls := l.s.leases
	if znode == l.followed {
		return
	}
	if w := ls.watched[l.followed]; w != nil {
		if delete(w.users, l); len(w.users) == 0 {
			delete(ls.watched, l.followed)
		}
	}
	if l.followed = znode; znode == "" {
		return
	}
	w := ls.watched[znode]
	if w == nil {
		w = &watchedLease{users: make(map[*loop]bool)}
		ls.watched[znode] = w
		ls.read(znode)
	}
	w.users[l] = true
}

// seen returns what was read last of the znode that a loop follows.
func (l *loop) seen() cluster.LeaseZnodeSeen {
	if w := l.s.leases.watched[l.followed]; w != nil {
		return l.m.w.broken.sights(w)
	}
	return cluster.LeaseZnodeSeen{}
}

// read reads a znode with a watch, and again after a failure.
func (ls *leases) read(znode string) {
	w := ls.watched[znode]
	if w == nil || ls.s.ended != "" {
		return
	}
	sent, late := ls.s.h.clock(), time.Duration(0)
	if ls.s.w.now < ls.s.h.readsLate {
		late = ls.s.w.between(0, ls.s.h.timeout/3)
	}
	send := func() {
		ls.s.send(&request{path: znode, watch: true, done: func(rep reply) {
			if ls.watched[znode] == w && !ls.store(znode, w, sent, rep) {
				ls.s.w.after(ls.s.h.timeout/4, func() { ls.s.h.process(ls.s, func() { ls.read(znode) }) })
			}
		}})
	}
	if late == 0 {
		send()
		return
	}
	ls.s.w.after(late, func() { ls.s.h.process(ls.s, send) })
}

// store stores an answer, and reports whether it is one.
func (ls *leases) store(znode string, w *watchedLease, sent time.Duration, rep reply) bool {
	if rep.err != nil && !errors.Is(rep.err, cluster.ErrNoNode) {
		return false
	}
	first := w.seen.At == 0
	if before := w.seen; first || !before.Exists || rep.err != nil || rep.stat.Created > before.Stat.Created || rep.stat.Modified > before.Stat.Modified {
		w.seen = cluster.LeaseZnodeSeen{Znode: znode, Exists: rep.err == nil, Stat: rep.stat, At: ls.s.h.clock()}
		w.sent = sent
	}
	if first {
		w.first = w.seen.At
		for _, l := range slices.SortedFunc(maps.Keys(w.users), func(a, b *loop) int { return a.number - b.number }) {
			l.soon(func() { l.step(tick) })
		}
	}
	return true
}

// rereadAll reads all znodes again, as watches may have been lost.
func (ls *leases) rereadAll() {
	for _, znode := range slices.Sorted(maps.Keys(ls.watched)) {
		ls.read(znode)
	}
}

func (l *loop) deputyInput() watchdog.DeputyInput {
	return l.m.w.broken.deputizes(watchdog.DeputyInput{
		Snapshot: &l.snap, Seen: l.seen(), Reconnects: l.s.handshakes, Now: l.m.clock(), MaySucceed: l.machine.MaySucceed,
		RollCallTimeout: l.m.r.calls.timeout(),
	})
}

// observe stands in for deputy.observe of package group. It returns when to look again.
func (l *loop) observe() {
	if l.snap.At == 0 || !l.m.w.leases {
		return
	}
	if n := l.s.handshakes; n != l.reconnects {
		l.reconnects = n
		l.elector.watchdog.Interrupted()
	}
	in := l.deputyInput()
	out := l.deputy.Observe(in)
	l.deputyWake = out.Wake
	l.follow(out.Follow)
	if out.Ask {
		l.ask()
	}
	if l.m.w.broken.callsEarly(l, out.CallRoll) {
		l.callRoll(l.m.r.calls.timeout(), l.snap.LeaseAt(in.Seen))
	}
	if l.acting != out.Act {
		l.acting = out.Act
		l.in.setActing()
	}
	l.silent, l.silentLease = l.deputy.Silent(&l.snap, l.m.clock())
}

// ask stands in for deputy.ask: a write without operations is a sync.
func (l *loop) ask() {
	znode, began, over := l.followed, l.m.clock(), false
	finish := func(err error) {
		if over {
			return
		}
		over = true
		l.soon(func() {
			if l.deputy.Answered(l.deputyInput(), began, err) {
				l.m.w.faults["holder found silent"]++
				l.m.w.log("%s: %s is silent in term %d", l.m.name, l.snap.Fence.Record.Incarnation, l.snap.Fence.Record.Term)
			} else {
				l.m.w.faults["silence that proves nothing"]++
			}
			l.step(tick)
		})
	}
	if !l.m.w.broken.rereads() {
		finish(nil)
		return
	}
	l.m.w.at(l.m.when(began+l.m.timeout), func() { l.process(func() { finish(cluster.ErrUnknown) }) })
	l.s.send(&request{from: l.in, ops: []cluster.Op{}, done: func(rep reply) {
		w := l.s.leases.watched[znode]
		if rep.err != nil || w == nil {
			finish(cluster.ErrNotSent)
			return
		}
		sent := l.m.clock()
		l.s.send(&request{from: l.in, path: znode, done: func(rep reply) {
			if !l.s.leases.store(znode, w, sent, rep) {
				finish(rep.err)
				return
			}
			finish(nil)
		}})
	}})
}

// setActing makes all loops act while one of them does.
func (in *instance) setActing() {
	on := false
	for _, l := range in.loops {
		on = on || l.acting
	}
	for _, l := range in.loops {
		l.reader.act = on
		l.reader.reread()
	}
}
