package daemon

import (
	"context"
	"errors"
	"time"

	"zkelectd/internal/boottime"
	"zkelectd/internal/cluster"
	"zkelectd/internal/history"
)

// historyWriter writes the history while this daemon is the elector. It has no say in anything: what fails is tried again
// later.
type historyWriter struct {
	l     *loop
	core  history.Recorder
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
	w.l.owned.Go(func() {
		err := w.write(terms)
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
func (w *historyWriter) write(terms []cluster.PastTerm) error {
	ctx, cancel := context.WithTimeout(w.l.life, w.l.budget.Session)
	defer cancel()
	path := w.l.d.paths.History()
	for {
		data, stat, err := w.l.s.Get(ctx, path, false)
		op := cluster.Op{Kind: cluster.OpSet, Path: path, Version: stat.Version}
		var h cluster.History
		switch {
		case errors.Is(err, cluster.ErrNoNode):
			op = cluster.Op{Kind: cluster.OpCreate, Path: path}
		case err != nil:
			return err
		default:
			if h, err = cluster.DecodeHistory(path, data); err != nil {
				return err
			}
		}
		before := len(h.Terms)
		for _, t := range terms {
			h.Add(t)
		}
		if len(h.Terms) == before && before < cluster.MaxHistory {
			return nil
		}
		op.Data = cluster.EncodeHistory(&h)
		_, err = w.l.s.Do(ctx, op)
		if !errors.Is(err, cluster.ErrBadVersion) && !errors.Is(err, cluster.ErrNodeExists) {
			return err
		}
	}
}
