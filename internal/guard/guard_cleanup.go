package guard

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"zkelectd/internal/sys/boottime"
)

// cleanUpAndRespawn takes the next step after the death of the daemon. All of its work is being killed, and the pending
// hooks of dead work run. Then it closes the session, which nothing relies on any more, and starts the next daemon. It
// does not wait for work that survives.
func (g *guard) cleanUpAndRespawn() {
	g.nameSurvivors()
	switch {
	case g.closingSession, g.isCleaningUp(false):
	case g.session != nil && g.leaveSession:
		g.session = nil
	case g.session != nil:
		g.closeSession(*g.session)
	case g.isCleaningUp(true):
	default:
		g.forgetDead()
		g.leaveSession, g.survivedAt = false, 0
		g.respawn()
	}
}

// endInherited kills what this subreaper has inherited from the dead daemon, until nothing is left: programs of hooks
// and probes that were running, and what they have started. A hook that undoes pre_start runs again, and a successor
// may begin, only after that.
func (g *guard) endInherited() {
	switch {
	case g.inheritedAt == 0:
	case g.checkOrphans() == nil:
		g.inheritedAt, g.inheritedDelay = 0, 0
	case past(g.inheritedAt):
		g.killOrphans()
		g.inheritedAt = boottime.Now() + nextDelay(&g.inheritedDelay)
	}
}

// isCleaningUp reports whether work of the dead daemon that has not survived it, or a hook, still runs, or must run, or
// something else that it has left behind still runs. Hooks that are optional only count if optional is true.
func (g *guard) isCleaningUp(optional bool) bool {
	if g.inheritedAt != 0 {
		return true
	}
	for _, l := range g.leaderships {
		runs := l.work != nil && (optional || l.work.hookDeadline == 0 || !l.work.spec.Optional)
		mustRun := slices.ContainsFunc(l.hooks, func(s Spec) bool { return optional || !s.Optional })
		if !l.survivor && (runs || mustRun) {
			return true
		}
	}
	return false
}

// closeSession sends the releases of all leaderships and closes the session, in another goroutine.
func (g *guard) closeSession(c Credentials) {
	g.closingSession = true
	for _, l := range g.leaderships {
		if l.release != nil && !l.survivor {
			c.Releases = append(c.Releases, l.release)
		}
	}
	go func() { // ends with the context's timeout
		ctx, cancel := context.WithTimeout(context.Background(), min(closeTimeout, c.Timeout))
		defer cancel()
		leadership, err := g.opt.Close(ctx, c)
		g.closeResults <- closeResult{leadership, err}
	}()
}

// respawn starts the next daemon, unless the guard is to exit.
func (g *guard) respawn() {
	switch {
	case g.noRespawn:
	case g.stopping:
		g.noRespawn = true
	case g.keeper == nil && len(g.keepers) == 0:
		g.tryStart(g.startKeeper)
	case past(g.respawnAt):
		g.tryStart(g.startDaemon)
	}
}

// tryStart calls start if the respawn delay has passed, and schedules another attempt if it fails.
func (g *guard) tryStart(start func() error) {
	if !past(max(1, g.respawnAt)) {
		return
	}
	if err := start(); err != nil {
		g.respawnDelay = min(max(minRespawnDelay, 2*g.respawnDelay), maxRespawnDelay)
		g.respawnAt = boottime.Now() + g.respawnDelay
		g.log.Error("cannot restart the daemon; retrying", "err", err, "after", g.respawnDelay)
	}
}

// closeResult is what [Options.Close] has returned.
type closeResult struct {
	leadership string
	err        error
}

// sessionClosed handles the end of an attempt to close the dead daemon's session.
func (g *guard) sessionClosed(result closeResult) {
	g.closingSession = false
	c := g.session
	g.session = nil
	if result.err != nil {
		g.log.Warn("cannot close the dead daemon's session; it is left to expire", "err", result.err, "leadership",
			cmp.Or(result.leadership, "none"))
		return
	}
	g.log.Info("closed the dead daemon's session", "session", fmt.Sprintf("0x%x", c.ID), "leadership",
		cmp.Or(result.leadership, "none"))
	RemoveSessionFile(*c)
}

// hooksAtOnce is how many pending hooks run at a time.
const hooksAtOnce = 8

// runPendingHooks starts hooks that the daemon owed (A5 in docs/protocol.md) and that only this process can run now.
// The work of their leadership is dead, and its session is still open, so the group has no other leader yet.
func (g *guard) runPendingHooks() {
	if g.inheritedAt != 0 {
		return
	}
	running := 0
	for _, l := range g.leaderships {
		if l.work != nil && l.work.hookDeadline != 0 {
			running++
		}
	}
	for _, l := range g.leaderships {
		if running == hooksAtOnce {
			return
		}
		if len(l.hooks) > 0 && g.isOrphaned(l) && !g.groupHasWork(l) {
			running++
			spec := l.hooks[0]
			l.hooks = l.hooks[1:]
			w := g.newWork(l, 0, &spec)
			w.hookDeadline = boottime.Now() + max(spec.Timeout, time.Millisecond)
			if err := g.assignKeeper(w); err != nil {
				g.refuse(w, err)
			}
		}
	}
}

// groupHasWork reports whether a leadership has work, or one of the same group runs what may have been promoted for it:
// a standby has no end of its lease.
func (g *guard) groupHasWork(l *leadership) bool {
	return slices.ContainsFunc(g.leaderships, func(other *leadership) bool {
		promoted := other.standby && other.daemon == l.daemon && other.isOfSameGroup(l) &&
			(g.mustEnd(other) || other.lease() != Forever)
		return other.work != nil && (other == l || promoted)
	})
}

// checkHook notices from a keeper's message that a pending hook has failed.
func (g *guard) checkHook(w *work, m message) {
	switch {
	case m.Kind == kindStarted && m.Error != "":
		g.failHook(w, m.Error)
	case m.Kind == kindExited && m.Status != StatusSuccess:
		g.failHook(w, m.Status)
	}
}

// failHook handles the failure of a pending hook. Unless that is optional, the session of a dead daemon is then left to
// expire, so that the successor comes as late as possible.
func (g *guard) failHook(w *work, reason string) {
	if w.leadership.daemon == g.daemon || w.spec.Optional {
		g.log.Error("a pending hook of an ended leadership has failed", "group", w.leadership.name, "command",
			w.spec.Argv[0], "reason", reason)
		return
	}
	g.log.Error("a pending hook has failed; the session of the dead daemon is left to expire", "group",
		w.leadership.name, "command", w.spec.Argv[0], "reason", reason)
	g.leaveSession = g.leaveSession || !w.leadership.survivor
}
