package guard

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/sys/boottime"
)

// leadership is one instance of a group as the guard sees it: what its daemon has sent for it, and its work. Nothing
// that happens to one leadership affects another.
type leadership struct {
	id        int
	name      string         // of the group
	standby   bool           // it runs the promotable work of the group, in all of its slots
	daemon    *daemon        // to which it belongs
	work      *work          // nil while there is none
	keeper    *keeperProcess // the leadership's own keeper; nil if it has none
	place     place          // of its lease
	lastLease time.Duration  // the last lease other than 0, which limits the pets of the watchdog device
	hooks     []Spec         // to be run if it is abandoned, or its daemon dies
	release   json.RawMessage
	abandoned bool // nothing that is sent for it counts any more, and its work must be killed
	gone      bool // the daemon knows that nothing is left of it
	closed    bool // the daemon does not need it any more
	survivor  bool // its work has survived its daemon, and the next one takes no part in this group
}

// isOfSameGroup reports whether two leaderships are of the same group; a standby is of the group of all slots.
func (l *leadership) isOfSameGroup(other *leadership) bool {
	in := func(slot, group *leadership) bool {
		return group.standby && strings.HasPrefix(slot.name, group.name+"/")
	}
	return l.name == other.name || in(l, other) || in(other, l)
}

// maxLeaderships limits the leaderships that a daemon can have at a time.
const maxLeaderships = 4096

// find returns the leadership of a daemon with an id, if messages for it still count; otherwise nil.
func (g *guard) find(d *daemon, id int) *leadership {
	for _, l := range g.leaderships {
		if l.id == id && l.daemon == d && !l.abandoned {
			return l
		}
	}
	return nil
}

// open adds a leadership.
func (g *guard) open(d *daemon, m message) error {
	taken := slices.ContainsFunc(g.leaderships, func(l *leadership) bool {
		return l.daemon == d && !l.abandoned && l.place.index == m.Place
	})
	if m.Leadership <= g.lastLeadership || len(g.leaderships) >= maxLeaderships || m.Place <= 0 ||
		m.Place >= boardPlaces || taken {
		return fmt.Errorf("%w: leadership %d after %d, %d at a time, place %d", errProtocol, m.Leadership,
			g.lastLeadership, len(g.leaderships), m.Place)
	}
	g.lastLeadership = m.Leadership
	l := &leadership{id: m.Leadership, name: m.Name, standby: m.Standby, daemon: d, place: g.board.place(m.Place,
		m.Leadership)}
	l.place.enforce(0)
	g.leaderships = append(g.leaderships, l)
	return nil
}

// abandon makes the guard refuse everything for a leadership from now on. enforce then kills its work.
func (g *guard) abandon(m message) {
	for _, l := range g.leaderships {
		if l.id == m.Leadership && l.daemon == g.daemon {
			l.abandoned = true
			l.closed = l.closed || m.Kind == kindClose
		}
	}
}

// readLeases has the keepers read the leases on the board, reads them itself, and confirms that.
func (g *guard) readLeases() {
	for _, k := range g.keepers {
		if g.hasWorkOn(k) {
			k.send(message{Kind: kindLease})
		}
	}
	for _, l := range g.leaderships {
		g.readLease(l)
		if w := l.work; w != nil && w.unit != nil && w.launched {
			w.unit.open()
		}
	}
	g.sendToDaemon(message{Kind: kindLeaseConfirmed})
}

// readLease reads the lease of a leadership from the board, unless that is over.
func (g *guard) readLease(l *leadership) {
	if g.mustEnd(l) {
		return
	}
	at := l.place.deadline()
	l.place.enforce(at)
	if at != 0 {
		l.lastLease = at
	}
}

// lease returns until when the work of the leadership may run; 0 for no lease.
func (l *leadership) lease() time.Duration { return l.place.enforced() }

// hasLease reports whether a leadership is not over and has a lease.
func (g *guard) hasLease(l *leadership) bool { return !g.mustEnd(l) && boottime.Now() < l.lease() }

// mustEnd reports whether a leadership is over: it was abandoned, or its daemon is dead or about to exit.
func (g *guard) mustEnd(l *leadership) bool {
	return l.abandoned || l.daemon != g.daemon || l.daemon.abandoned
}

// isOrphaned reports whether nobody but the guard can run the hooks of a leadership.
func (g *guard) isOrphaned(l *leadership) bool {
	return l.abandoned && l.daemon == g.daemon || l.daemon != g.daemon && l.daemon != g.deadDaemon
}

// forgetLeaderships removes leaderships of which nothing is left. Those of a dead daemon are needed until its session
// is closed.
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

// nameSurvivors marks the works that still run although their daemon has been dead for K, and the pending hooks that
// still run K, which is also their time limit, after their deadline. The others do not wait for them, and the session
// is left to expire.
func (g *guard) nameSurvivors() {
	for _, l := range g.leaderships {
		w := l.work
		if w != nil && !l.survivor && w.hookDeadline != 0 && past(w.hookDeadline+max(minSurvival, w.spec.Timeout)) {
			g.failHook(w, "it cannot be killed; this host takes no part in the group until it is dead")
			l.survivor = true
		}
	}
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
		if l.work == nil && len(l.hooks) > 0 && g.groupHasWork(l) { // they run when what was promoted for it is dead
			l.survivor, g.leaveSession = true, true
		}
		if w := l.work; w != nil && w.hookDeadline == 0 && !l.survivor {
			l.survivor, g.leaveSession = true, true
			g.log.Error("work of the dead daemon cannot be killed: its session is left to expire, and this host "+
				"takes no part in the group until the work is dead",
				"group", l.name, w.logAttr(), "reason", w.unkillable)
		}
	}
}
