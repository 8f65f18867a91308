package guard

import (
	"errors"
	"time"

	"zkelectd/internal/boottime"
)

var (
	errNoLease  = errors.New("the lease is over")
	errNoKeeper = errors.New("the keeper is being started again")
)

// runUndo runs the next of what undoes a dead daemon's leadership (A5 in docs/protocol.md): the work is dead, the session is
// not closed yet, so nobody else leads.
func (g *guard) runUndo() {
	g.undone--
	spec := g.undo[0]
	g.undo = g.undo[1:]
	g.work = &work{seq: g.undone, spec: &spec, limit: boottime.Now() + max(spec.Timeout, time.Millisecond)}
	var err error
	if g.keeper == nil {
		err = g.keep()
	}
	if err == nil {
		err = g.launch(g.work)
	}
	if err != nil {
		g.undoFailed(g.work, err.Error())
		g.finish(g.work)
	}
}

// hearUndo takes in what the keeper says of an undo.
func (g *guard) hearUndo(w *work, m message) {
	switch {
	case m.Kind == kindStarted && m.Error != "":
		g.undoFailed(w, m.Error)
	case m.Kind == kindExited && m.Status != StatusSuccess:
		g.undoFailed(w, m.Status)
	}
}

// undoFailed leaves the session to expire: the successor comes as late as it can.
func (g *guard) undoFailed(w *work, how string) {
	g.log.Error("what undoes leadership has failed; the session of the dead daemon is left to expire", "command", w.spec.Argv[0], "how", how)
	g.unclean = true
}
