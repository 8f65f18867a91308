package guard

import (
	"errors"
	"time"

	"zkelectd/internal/boottime"
)

var (
	errNoLease  = errors.New("there is no lease")
	errNoKeeper = errors.New("the keeper is being restarted")
)

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
