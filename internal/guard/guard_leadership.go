package guard

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"zkelectd/internal/sys/boottime"
)

// leadership is one instance of a group as the guard sees it: what its daemon has sent for it, and its work. Nothing that happens
// to one leadership affects another.
type leadership struct {
	id        int
	name      string         // of the group
	daemon    *daemon        // to which it belongs
	work      *work          // nil while there is none
	keeper    *keeperProcess // the leadership's own keeper; nil if it has none
	lease     time.Duration  // its work may run until then; 0 for no lease
	leaseEnd  time.Duration  // when that is enforced, see lastChance; 0 before the end
	lastLease time.Duration  // the last lease other than 0, which limits the pets of the watchdog device
	slot      int            // of the board; 0 for none
	hooks     []Spec         // to be run if it is abandoned, or its daemon dies
	release   json.RawMessage
	abandoned bool // nothing that is sent for it counts any more, and its work must be killed
	gone      bool // the daemon knows that nothing is left of it
	closed    bool // the daemon does not need it any more
	survivor  bool // its work has survived its daemon, and the next one takes no part in this group
}

// maxLeaderships limits the leaderships that a daemon can have at a time.
const maxLeaderships = 4096

// find returns the leadership of the current daemon with an id, if messages for it still count; otherwise nil.
func (g *guard) find(id int) *leadership {
	for _, l := range g.leaderships {
		if l.id == id && l.daemon == g.daemon && !l.abandoned {
			return l
		}
	}
	return nil
}

// open adds a leadership.
func (g *guard) open(d *daemon, m message) error {
	if m.Leadership <= d.lastLeadership || len(g.leaderships) >= maxLeaderships {
		return fmt.Errorf("%w: leadership %d after %d, %d at a time", errProtocol, m.Leadership, d.lastLeadership, len(g.leaderships))
	}
	d.lastLeadership = m.Leadership
	l := &leadership{id: m.Leadership, name: m.Name, daemon: d}
	if d.slot != 0 {
		l.slot = d.slot + l.id
		g.useSlot(l.slot)
	}
	g.leaderships = append(g.leaderships, l)
	return nil
}

// useSlot makes a slot of the board ready for a leadership or a heartbeat. It logs once that the board has no more slots.
func (g *guard) useSlot(slot int) {
	g.nextSlot = max(g.nextSlot, slot+1)
	g.board.reset(slot)
	if g.board != nil && !g.board.valid(slot) && !g.boardFull {
		g.boardFull = true
		g.log.Warn("all places for leases in shared memory have been used: for further registrations the daemon sends a message for each renewal, which costs "+
			"more and changes nothing else; restart zkelectd when convenient, and there are new places", "places", boardSlots-1)
	}
}

// abandon makes the guard refuse everything for a leadership from now on. enforce then kills its work.
func (g *guard) abandon(m message) {
	for _, l := range g.leaderships {
		if l.id == m.Leadership && l.daemon == g.daemon {
			l.abandoned, l.lease = true, 0
			l.closed = l.closed || m.Kind == kindClose
		}
	}
}

// extend sets the leases of the listed leaderships, passes them on to their keepers, and confirms them.
func (g *guard) extend(leases []lease) {
	confirmed := make([]lease, 0, len(leases))
	for _, at := range leases {
		l := g.find(at.ID)
		if l == nil {
			continue
		}
		g.setLease(l, at.At)
		if w := l.work; w != nil && w.launched {
			switch {
			case w.unit != nil:
				w.unit.open()
			case w.keeper != nil:
				w.keeper.leases = append(w.keeper.leases, lease{w.task, at.At})
			}
		}
		confirmed = append(confirmed, at)
	}
	for _, k := range g.keepers {
		if len(k.leases) > 0 {
			k.send(message{Kind: kindLease, Leases: k.leases})
			k.leases = k.leases[:0]
		}
	}
	g.sendToDaemon(message{Kind: kindLeaseConfirmed, Leases: confirmed})
}

// setLease sets the lease of a leadership.
func (g *guard) setLease(l *leadership, at time.Duration) {
	l.lease, l.leaseEnd = at, 0
	if at != 0 {
		l.lastLease = at
	}
	g.board.confirm(l.slot, at)
}

// readLease takes a later lease from the board. The keeper does so itself.
func (g *guard) readLease(l *leadership) {
	if at := g.board.extended(l.slot, l.lease); at != l.lease {
		g.setLease(l, at)
	}
}

// mustEnd reports whether a leadership is over: it was abandoned, or its daemon is dead or about to exit.
func (g *guard) mustEnd(l *leadership) bool {
	return l.abandoned || l.daemon != g.daemon || l.daemon.abandoned
}

// isOrphaned reports whether nobody but the guard can run the hooks of a leadership.
func (g *guard) isOrphaned(l *leadership) bool {
	return l.abandoned && l.daemon == g.daemon || l.daemon != g.daemon && l.daemon != g.deadDaemon
}

// forgetLeaderships removes leaderships of which nothing is left. Those of a dead daemon are needed until its session is closed.
func (g *guard) forgetLeaderships() {
	changed := false
	g.leaderships = slices.DeleteFunc(g.leaderships, func(l *leadership) bool {
		if l.work != nil || len(l.hooks) > 0 && g.isOrphaned(l) {
			return false
		}
		if l.abandoned && l.daemon == g.daemon && !l.gone {
			l.gone = true
			g.sendToDaemon(message{Kind: kindGone, Leadership: l.id})
		}
		if !l.survivor && !(l.closed && l.daemon == g.daemon) {
			return false
		}
		changed = changed || l.survivor
		g.returnKeeper(l)
		return true
	})
	if changed {
		g.sendToDaemon(message{Kind: kindSurvivors, Survivors: g.survivors()})
	}
}

// forgetDead removes the leaderships of the dead daemon, except those whose work has survived it.
func (g *guard) forgetDead() {
	g.leaderships = slices.DeleteFunc(g.leaderships, func(l *leadership) bool {
		if l.survivor {
			return false
		}
		g.returnKeeper(l)
		return true
	})
}

// survivors describes the works that have survived their daemons.
func (g *guard) survivors() []LeadershipRecord {
	var all []LeadershipRecord
	for _, l := range g.leaderships {
		if !l.survivor {
			continue
		}
		r := LeadershipRecord{Name: l.name, PendingHooks: l.hooks}
		if w := l.work; w != nil && w.hookDeadline == 0 {
			r.Unit = w.spec.Unit
			if w.unit == nil {
				r.Env, r.Containment = identifyingEnv(w.spec.Env), containmentRecord(g.opt.Containment, w)
			}
			if p, ok := Identify("leader-only work", w.pid); ok && w.pid > 1 {
				r.Work = &p
			}
		}
		all = append(all, r)
	}
	return all
}

// nameSurvivors marks the works that still run although their daemon has been dead for K. The others do not wait for them, and
// the session is left to expire.
func (g *guard) nameSurvivors() {
	if !past(g.survivedAt) {
		return
	}
	g.survivedAt = 0
	if g.inheritedAt != 0 {
		g.inheritedAt, g.leaveSession = 0, true
		g.log.Error("programs of the dead daemon's hooks or probes cannot be killed: its session is left to expire; "+
			"see the children of this process with 'ps axo pid,ppid,stat,args'", "pid", os.Getpid())
	}
	for _, l := range g.leaderships {
		if w := l.work; w != nil && w.hookDeadline == 0 && !l.survivor {
			l.survivor, g.leaveSession = true, true
			g.log.Error("work of the dead daemon cannot be killed: its session is left to expire, and this host takes no part in the group until the work is dead",
				"group", l.name, w.logAttr(), "reason", w.unkillable)
		}
	}
}

// survival returns how long work may take to die after its daemon before the others stop waiting for it: K, see
// docs/protocol.md.
func (g *guard) survival() time.Duration {
	if g.session == nil {
		return minSurvival
	}
	return max(minSurvival, g.session.Timeout*3/20)
}

// daemonIsDead makes advance end everything that belonged to the daemon.
func (g *guard) daemonIsDead() {
	g.survivedAt = boottime.Now() + g.survival()
	g.inheritedAt = 1
}
