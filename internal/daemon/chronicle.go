package daemon

import (
	"context"
	"errors"
	"time"

	"zkelectd/internal/boottime"
	"zkelectd/internal/cluster"
	"zkelectd/internal/history"
)

// chronicle writes the history while this daemon is the elector. It has no say in anything: what fails is tried again
// later.
type chronicle struct {
	l     *loop
	core  history.Recorder
	busy  bool
	retry time.Duration
	said  string // the last failure
}

func (c *chronicle) observe(s cluster.Snapshot, now time.Duration) {
	c.core.Observe(s, now)
	for _, t := range c.core.Witnessed() {
		c.l.d.tally.transition(t)
	}
	terms := c.core.Take()
	if c.busy || now < c.retry || len(terms) == 0 {
		return
	}
	c.busy = true
	c.l.owned.Go(func() {
		err := c.write(terms)
		c.l.later(func() {
			c.busy = false
			if err != nil {
				c.retry = boottime.Now() + 10*time.Second
				if c.said != err.Error() {
					c.said = err.Error()
					c.l.d.log.Warn("the history is not written", "znode", c.l.d.paths.History(), "err", err)
				}
				return
			}
			c.said = ""
			c.core.Written(terms)
		})
	})
}

// write adds terms to what is there. Another elector may do the same.
func (c *chronicle) write(terms []cluster.PastTerm) error {
	ctx, cancel := context.WithTimeout(c.l.life, c.l.budget.Session)
	defer cancel()
	path := c.l.d.paths.History()
	for {
		data, stat, err := c.l.s.Get(ctx, path, false)
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
		_, err = c.l.s.Do(ctx, op)
		if !errors.Is(err, cluster.ErrBadVersion) && !errors.Is(err, cluster.ErrNodeExists) {
			return err
		}
	}
}
