package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/store"
	"zkelectd/internal/transition"
)

// announcement stands in for that of package group.
type announcement struct {
	reason  string
	waiting []*loop // nil once the outcome is known
	over    bool
	err     error
}

func (l *loop) quitEvent() transition.Quit {
	return transition.Quit{Reason: "stopped by the schedule", Failed: l.m.unguarded}
}

// publishLeaving stands in for Member.publishLeaving of package group. It goes the way of every request: it may be late, or lost.
func (l *loop) publishLeaving(reason string) {
	in, m := l.in, l.m
	l.leaving = m.clock()
	m.w.faults["leaving announced"]++
	m.w.log("%s: announces that it leaves", m.name)
	m.faultWhileLeaving()
	if a := in.announced; a != nil {
		l.snap = l.withOwnEnd(l.snap)
		if a.over {
			l.reportLeaving(a.err)
		} else {
			a.waiting = append(a.waiting, l)
		}
		return
	}
	a := &announcement{reason: reason, waiting: []*loop{l}}
	in.announced = a
	l.snap = l.withOwnEnd(l.snap)
	finish := func(err error) {
		if a.over {
			return
		}
		a.over, a.err = true, err
		for _, other := range a.waiting {
			other.reportLeaving(err)
		}
	}
	in.run(func(c *conn) {
		// In these schedules others than the daemon write its record as well, on its behalf: then it has another version.
		err := store.NewNodeWriter(c, m.r.groups[0].paths, in.self, time.Time{}).Write(context.Background(), m.record())
		if !errors.Is(err, errStopped) {
			finish(err)
		}
	})
	m.w.at(m.when(m.clock()+m.timeout), func() { l.process(func() { finish(cluster.ErrUnknown) }) })
}

// reportLeaving reports the outcome.
func (l *loop) reportLeaving(err error) {
	l.soon(func() { l.step(transition.LeavingPublished{Err: err}) })
}

// withOwnEnd adds the announcement of this node: an elector does not wait for that to elect its successor.
func (l *loop) withOwnEnd(snap cluster.Snapshot) cluster.Snapshot {
	if l.in.announced == nil {
		return snap
	}
	snap.Members = slices.Clone(snap.Members)
	for i := range snap.Members {
		if member := &snap.Members[i]; member.Name == l.self.Name {
			member.Node.Record.Leaving = l.in.announced.reason
		}
	}
	return snap
}

// longestHandover is how long a leader may wait for its successor.
func (m *member) longestHandover() time.Duration { return min(300*time.Millisecond, m.stop/4) }

// checkLeaving checks that a leader waits no longer for its successor than it may.
func (l *loop) checkLeaving() {
	if l.leaving == 0 || l.machine.Phase() != transition.Leading {
		return
	}
	if waited := l.m.clock() - l.leaving; waited > l.m.longestHandover()+time.Millisecond {
		l.m.g.fail("L1: %s has waited %s for its successor, and still works", l.m.name, waited)
	}
}

// electsStaying checks that no elector elects a node that has announced its end, as far as the elector knows.
func (c *checker) electsStaying(snap cluster.Snapshot, rec *cluster.Elected) {
	if member, known := snap.Member(rec.Incarnation); known && member.Node.Record.Leaving != "" {
		c.g.fail("leaving: %s is elected in term %d although it is about to end", rec.Node, rec.Term)
	}
}

// leavingSeed makes the random numbers of leavers independent of the others: which worlds have them changes no other world.
const leavingSeed = 0x6c656176

// planLeaving makes leaders leave again and again, and what matters to that fail meanwhile.
func (w *world) planLeaving() {
	rng := rand.New(rand.NewPCG(w.seed, leavingSeed))
	if !w.broken.leaving && (w.broken.name != "" || rng.IntN(4) > 0) {
		return
	}
	w.leavers = rng
	for at := draw(rng, 5*time.Second); at < w.traits.busy; at += draw(rng, 4*time.Second) {
		removed, g := rng.IntN(3) == 0, w.groups[rng.IntN(len(w.groups))]
		w.at(at, func() {
			if w.calm || len(g.check.working) == 0 {
				return
			}
			m := g.check.working[0]
			w.faults["leader leaves"]++
			if removed {
				m.remove(draw(rng, 3*time.Second))
			} else {
				m.quit()
			}
		})
	}
}

// draw returns a time below a limit.
func draw(rng *rand.Rand, limit time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(limit)))
}

// faultWhileLeaving hits the leaver or the elector while the leaver waits for its successor.
func (m *member) faultWhileLeaving() {
	w, rng := m.w, m.w.leavers
	if w.calm || rng == nil || rng.IntN(3) == 0 {
		return
	}
	kind, elector := rng.IntN(9), m.g.electorHost()
	w.after(draw(rng, 2*m.longestHandover()), func() {
		if w.calm {
			return
		}
		w.faults["fault while leaving"]++
		w.log("FAULT while leaving %d (%s, elector %s)", kind, m.name, elector.id)
		switch kind {
		case 0:
			m.crash(true)
		case 1:
			m.reset() // the outcome of the announcement may be unknown
		case 2:
			m.pause(draw(rng, 2*m.timeout))
		case 3:
			w.outage(draw(rng, m.timeout))
		case 4:
			elector.crash(rng.IntN(2) == 0)
		case 5:
			elector.pause(draw(rng, m.timeout))
		case 6:
			elector.quit()
		case 7:
			m.g.tamper(cluster.Op{Kind: cluster.OpDelete, Path: m.g.known.elected}) // the elector decides anew
		default: // the elector refuses: nobody is eligible any more
			for _, other := range m.r.residents {
				other.report.ineligible = true
				other.publish()
			}
		}
	})
}

// electorHost returns the host whose member is the elector, or the first one.
func (g *group) electorHost() *host {
	for _, m := range g.members {
		if m.loop != nil && m.loop.snap.Elector {
			return m.host
		}
	}
	return g.w.hosts[0]
}
