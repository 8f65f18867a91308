package group

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector/termlog"
	"zkelectd/internal/sys/boottime"
)

// historyRetry is the pause after a failed write of the history.
const historyRetry = 10 * time.Second

// historyWriter writes the history while this member is the elector. No decision depends on it. A failed write is repeated later.
type historyWriter struct {
	conn       cluster.ReadWriter
	paths      cluster.Paths
	self       string
	log        *slog.Logger
	timeout    time.Duration
	background *background
	memory     *cluster.LastKnown
	count      func(cluster.PastTerm) // called for each term that has ended

	core     termlog.Recorder
	busy     bool
	retryAt  time.Duration
	reported string // the last error, as logged
}

func (w *historyWriter) observe(s cluster.Snapshot, now time.Duration) {
	w.core.Observe(s, now)
	for _, t := range w.core.Witnessed() {
		w.count(t)
	}
	terms := w.core.Take()
	if w.busy || now < w.retryAt || len(terms) == 0 {
		return
	}
	w.busy = true
	newest := max(w.memory.Term, terms[len(terms)-1].Term)
	var err error
	w.background.run(w.timeout, func(ctx context.Context) { err = w.write(ctx, terms, newest) }, func() {
		w.busy = false
		if err != nil {
			w.retryAt = boottime.Now() + historyRetry
			if w.reported != err.Error() {
				w.reported = err.Error()
				w.log.Warn("cannot write the history; retrying", "znode", w.paths.History(), "err", err)
			}
			return
		}
		w.reported = ""
		w.core.Written(terms)
	})
}

// write adds terms to the history. Another elector may do so at the same time.
func (w *historyWriter) write(ctx context.Context, terms []cluster.PastTerm, newest int64) error {
	path := w.paths.History()
	for {
		data, stat, err := w.conn.Get(ctx, path, false)
		exists := err == nil
		var h cluster.History
		switch {
		case errors.Is(err, cluster.ErrNoNode):
		case err != nil:
			return err
		default:
			var newer *cluster.NewerVersionError
			if h, err = cluster.DecodeHistory(path, data); errors.As(err, &newer) {
				return err
			} else if err != nil {
				w.log.Warn("the history was damaged: starting a new one", "znode", path, "err", err)
				h = cluster.History{}
			}
		}
		if !h.Merge(terms, newest) {
			return nil
		}
		_, err = w.conn.Do(ctx, w.paths.HistoryTx(w.self, stat, exists, h)...)
		if !errors.Is(err, cluster.ErrBadVersion) && !errors.Is(err, cluster.ErrNodeExists) {
			return err
		}
	}
}
