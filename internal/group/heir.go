package group

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
	"zkelectd/internal/sys/boottime"
)

// heirRetry is the pause after a write of the heir that failed.
const heirRetry = 10 * time.Second

// heirWriter keeps the published heir true while this member is the elector. No decision depends on it, and no election waits for it.
type heirWriter struct {
	conn       cluster.Writer
	paths      cluster.Paths
	log        *slog.Logger
	timeout    time.Duration
	background *background
	reread     func()
	core       *elector.Elector

	keeper   elector.HeirKeeper
	busy     bool
	settled  time.Duration // when the last write ended: only a newer snapshot counts
	next     time.Duration // not before then, after a failure
	reported string        // the last error, as logged
}

// observe starts at most one write, when nothing else is to be written. It returns when to call it again, 0 for never.
func (w *heirWriter) observe(in elector.Input, now time.Duration) (wake time.Duration) {
	s := in.Snapshot
	switch {
	case w.busy || s.At < w.settled, errors.Is(s.Heir.Err, cluster.ErrNoAuth), errors.Is(s.Heir.Err, cluster.ErrNotSent):
		return 0
	case now < w.next:
		return w.next
	}
	next, wake := w.keeper.Update(w.core, in)
	if next != nil {
		w.write(s, next)
	}
	return wake
}

func (w *heirWriter) write(s cluster.Snapshot, next *cluster.HeirRecord) {
	w.busy = true
	replaced, _ := s.NextLeader()
	var err error
	w.background.run(w.timeout, func(ctx context.Context) { _, err = w.conn.Do(ctx, w.paths.HeirTx(s, *next)...) }, func() {
		w.busy, w.settled = false, boottime.Now()
		w.keeper.Wrote(replaced, next, w.settled)
		w.reread()
		switch {
		case err == nil:
			w.reported = ""
			w.log.Info("published the heir", "heir", next.Node, "term", next.Term)
		case errors.Is(err, cluster.ErrBadVersion), errors.Is(err, cluster.ErrNodeExists), errors.Is(err, cluster.ErrNoNode):
			// It has changed meanwhile, and is being read again; or this member is no longer the elector.
		default:
			w.next = w.settled + heirRetry
			w.logError(err)
		}
	})
}

func (w *heirWriter) logError(err error) {
	if w.reported != err.Error() {
		w.reported = err.Error()
		w.log.Warn("cannot publish the heir; retrying", "znode", w.paths.Heir(), "err", err)
	}
}
