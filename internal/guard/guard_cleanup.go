package guard

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"zkelectd/internal/boottime"
)

// cleanUpAndRespawn takes the next step after the death of daemon and work: it runs the pending hooks, closes the session,
// which nothing relies on any more, and starts the next daemon.
func (g *guard) cleanUpAndRespawn() {
	switch {
	case g.closingSession:
	case len(g.pendingHooks) > 0:
		g.runPendingHook()
	case g.session != nil && g.hookFailed:
		g.session, g.hookFailed = nil, false
	case g.session != nil:
		g.closingSession = true
		c := *g.session
		go func() { // ends with the context's timeout
			ctx, cancel := context.WithTimeout(context.Background(), min(closeTimeout, c.Timeout))
			defer cancel()
			leadership, err := g.opt.Close(ctx, c)
			g.closeResults <- closeResult{leadership, err}
		}()
	case g.onlyKeeperLeft():
		g.keeper.requestExit()
	case g.noRespawn:
	case g.stopping:
		g.noRespawn = true
		g.keeper.requestExit()
	case g.keeper == nil:
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
		g.log.Warn("cannot close the dead daemon's session; it is left to expire", "err", result.err, "leadership", cmp.Or(result.leadership, "none"))
		return
	}
	g.log.Info("closed the dead daemon's session", "session", fmt.Sprintf("0x%x", c.ID), "leadership", cmp.Or(result.leadership, "none"))
	RemoveSessionFile(*c)
}

// runPendingHook runs the next of the hooks that a dead daemon owed (A5 in docs/protocol.md). The work is dead and the session
// is still open, so there is no other leader yet.
func (g *guard) runPendingHook() {
	g.hookSeq--
	spec := g.pendingHooks[0]
	g.pendingHooks = g.pendingHooks[1:]
	g.work = &work{seq: g.hookSeq, spec: &spec, hookDeadline: boottime.Now() + max(spec.Timeout, time.Millisecond)}
	var err error
	if g.keeper == nil {
		err = g.startKeeper()
	}
	if err == nil {
		err = g.launch(g.work)
	}
	if err != nil {
		g.failHook(g.work, err.Error())
		g.releaseWork(g.work)
	}
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

// failHook handles the failure of a pending hook: the session is left to expire, so that the successor comes as late as possible.
func (g *guard) failHook(w *work, reason string) {
	g.log.Error("a pending hook has failed; the session of the dead daemon is left to expire", "command", w.spec.Argv[0], "reason", reason)
	g.hookFailed = true
}
