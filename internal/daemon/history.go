package daemon

import (
	"context"
	"errors"
	"time"

	"zkelectd/internal/boottime"
	"zkelectd/internal/cluster"
	"zkelectd/internal/termlog"
)

// historyWriter writes the history while this daemon is the elector. It has no say in anything: what fails is tried again
// later.
type historyWriter struct {
	l     *loop
	core  termlog.Recorder
	busy  bool
	retry time.Duration
	said  string // the last failure
}

func (w *historyWriter) observe(s cluster.Snapshot, now time.Duration) {
	w.core.Observe(s, now)
	for _, t := range w.core.Witnessed() {
		w.l.d.tally.transition(t)
	}
	terms := w.core.Take()
	if w.busy || now < w.retry || len(terms) == 0 {
		return
	}
	w.busy = true
	newest := max(w.l.d.memory.Term, terms[len(terms)-1].Term)
	w.l.owned.Go(func() {
		err := w.write(terms, newest)
		w.l.later(func() {
			w.busy = false
			if err != nil {
				w.retry = boottime.Now() + 10*time.Second
				if w.said != err.Error() {
					w.said = err.Error()
					w.l.d.log.Warn("the history is not written", "znode", w.l.d.paths.History(), "err", err)
				}
				return
			}
			w.said = ""
			w.core.Written(terms)
		})
	})
}

// write adds terms to what is there. Another elector may do the same.
func (w *historyWriter) write(terms []cluster.PastTerm, newest int64) error {
	ctx, cancel := context.WithTimeout(w.l.life, w.l.budget.Session)
	defer cancel()
	path := w.l.d.paths.History()
	for {
		data, stat, err := w.l.s.Get(ctx, path, false)
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
				w.l.d.log.Warn("the history was damaged and begins anew", "znode", path, "err", err)
				h = cluster.History{}
			}
		}
		if !h.Merge(terms, newest) {
			return nil
		}
		_, err = w.l.s.Do(ctx, w.l.d.paths.HistoryTx(w.l.self.Name, stat, exists, h)...)
		if !errors.Is(err, cluster.ErrBadVersion) && !errors.Is(err, cluster.ErrNodeExists) {
			return err
		}
	}
}
