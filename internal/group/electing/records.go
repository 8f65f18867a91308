package electing

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
	"zkelectd/internal/elector/termlog"
	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/zk"
)

// recordRetry is the pause after a write of a record that failed, and rosterPause the least time between two writes of
// the roster.
const (
	recordRetry = 10 * time.Second
	rosterPause = time.Second
)

// record is what an elector keeps true beside its decisions: the heir, the roster or the history. No decision depends
// on it, and no election waits for it. At most one write of each is under way.
type record struct {
	e        *Elector
	what     string // as in "the heir"
	znode    string
	busy     bool
	settled  time.Duration // when the last write ended
	next     time.Duration // not before then
	reported string        // the last error, as logged
}

// due reports whether the record may be written now, from what a snapshot of that time has of it: one from before the
// last write does not count. If not, wake is when to ask again, 0 for after the next event.
func (r *record) due(at, now time.Duration) (ok bool, wake time.Duration) {
	switch {
	case r.busy, at < r.settled:
		return false, 0
	case now < r.next:
		return false, r.next
	}
	return true, 0
}

// unread reports whether a record was not read, so that nobody knows what to write.
func unread(err error) bool {
	return errors.Is(err, cluster.ErrNoAuth) || errors.Is(err, cluster.ErrNotSent)
}

// write calls do in another goroutine, and then done in the loop. A refused write means that the record has changed
// meanwhile, and is being read again, or that this member is no longer the elector.
func (r *record) write(do func(context.Context) error, done func(err error)) {
	r.busy = true
	var err error
	r.e.opt.Run(r.e.opt.Budget.Session, func(ctx context.Context) { err = do(ctx) }, func() {
		r.busy, r.settled = false, boottime.Now()
		switch {
		case err == nil:
			r.reported = ""
		case errors.Is(err, cluster.ErrBadVersion), errors.Is(err, cluster.ErrNodeExists), errors.Is(err, cluster.ErrNoNode):
		default:
			r.next = r.settled + recordRetry
			r.warn("cannot write "+r.what+"; retrying", err)
		}
		done(err)
	})
}

// warn logs an error unless it was logged last.
func (r *record) warn(text string, err error) {
	if r.reported != err.Error() {
		r.reported = err.Error()
		r.e.opt.Log.Warn(text, "znode", r.znode, "err", err)
	}
}

// heir keeps the published heir true.
type heir struct {
	record
	keeper elector.HeirKeeper
}

// observe starts at most one write, when nothing else is to be written. It returns when to call it again, 0 for never.
func (h *heir) observe(in elector.Input, now time.Duration) (wake time.Duration) {
	s, e := in.Snapshot, h.e
	if ok, wake := h.due(s.At, now); !ok || unread(s.Heir.Err) {
		return wake
	}
	next, wake := h.keeper.Update(e.core, in)
	if next == nil {
		return wake
	}
	replaced, _ := s.NextLeader()
	h.write(func(ctx context.Context) error {
		_, err := e.opt.Conn.Do(ctx, e.opt.Paths.HeirTx(s, *next)...)
		return err
	}, func(err error) {
		h.keeper.Wrote(replaced, next, h.settled)
		e.opt.Reread()
		if err == nil {
			e.opt.Log.Info("published the heir", "heir", next.Node, "term", next.Term)
		}
	})
	return wake
}

// rollCall calls the roll.
type rollCall struct{ record }

// CallRoll makes all members measure their scores, and answer within a timeout, unless this member has just called the
// roll. It is also for a member that is about to act as a deputy. lease is [cluster.RollCall.Lease].
func (e *Elector) CallRoll(s *cluster.Snapshot, timeout time.Duration, lease int64, now time.Duration) {
	r := &e.rollCall
	if ok, _ := r.due(s.At, now); !ok || s.RollCall.Newer() != nil || unread(s.RollCall.Err) {
		return
	}
	elected, _ := s.Terms()
	next := cluster.RollCall{
		Header: s.RollCall.Record.Header, Term: elected, Number: cluster.NewInstance(rand.Uint64()),
		Lease: lease, Timeout: cluster.Duration(timeout), By: s.Self.Name, Time: time.Now(),
	}
	ops := e.opt.Paths.RollCallTx(s.Self.Name, s.RollCall, next)
	r.write(func(ctx context.Context) error {
		_, err := e.opt.Conn.Do(zk.WithPriority(ctx, zk.PriorityRecovery), ops...)
		return err
	}, func(err error) {
		if err == nil {
			e.opt.Log.Info("called the roll: each member measures its score", "term", next.Term, "timeout", timeout)
		}
	})
}

// roster keeps the roster up to date. It is written only when the members have changed.
type roster struct {
	record
	seen time.Duration // At of the last snapshot that needed no write then
}

// observe starts at most one write. It returns when to call it again, 0 for never.
func (r *roster) observe(s cluster.Snapshot, now time.Duration) (wake time.Duration) {
	wall := time.Now()
	until := time.Duration(0) // a node is to be forgotten
	if at := s.Roster.Record.NextForgotten(); !at.IsZero() {
		until = now + min(at.Sub(wall), time.Hour) // a forged time may be any
	}
	if s.At == r.seen && (until == 0 || now < until) {
		return until
	}
	if ok, wake := r.due(s.At, now); !ok || s.Roster.Newer() != nil || unread(s.Roster.Err) {
		return wake
	}
	if s.Roster.Err != nil {
		r.warn("the roster was damaged: starting a new one", s.Roster.Err)
	}
	next, changed := s.Roster.Record.Update(s.Members, wall)
	if !changed && s.Roster.Readable() {
		r.seen = s.At
		return until
	}
	r.logLost(s.Roster.Record, next)
	o := &r.e.opt
	r.write(func(ctx context.Context) error {
		_, err := o.Conn.Do(ctx, o.Paths.RosterTx(o.Self.Name, s.Roster, next)...)
		return err
	}, func(error) {
		r.next = max(r.next, r.settled+rosterPause)
		o.Reread()
	})
	return 0
}

// logLost logs the members that are lost.
func (r *roster) logLost(before, after cluster.Roster) {
	known := make(map[string]bool, len(before.Nodes))
	for _, n := range before.Nodes {
		known[n.ID] = n.Left != nil
	}
	for _, n := range after.Nodes {
		if n.Left != nil && n.Left.How == cluster.LeftLost && !known[n.ID] {
			r.e.opt.Log.Warn("a member is lost", "node", n.ID, "site", n.Site)
		}
	}
}

// history keeps the terms that have ended. A failed write is repeated later.
type history struct {
	record
	core termlog.Recorder
}

func (h *history) observe(s cluster.Snapshot, now time.Duration) {
	h.core.Observe(s, now)
	for _, t := range h.core.Witnessed() {
		h.e.opt.Count(t)
	}
	terms := h.core.Take()
	if ok, _ := h.due(now, now); !ok || len(terms) == 0 {
		return
	}
	newest := max(h.e.opt.Elector.LastKnown.Term, terms[len(terms)-1].Term)
	h.write(func(ctx context.Context) error { return h.add(ctx, terms, newest) }, func(err error) {
		if err == nil {
			h.core.Written(terms)
		}
	})
}

// add adds terms to the history. Another elector may do so at the same time.
func (h *history) add(ctx context.Context, terms []cluster.PastTerm, newest int64) error {
	o := &h.e.opt
	for {
		data, stat, err := o.Conn.Get(ctx, h.znode, false)
		exists := err == nil
		var old cluster.History
		switch {
		case errors.Is(err, cluster.ErrNoNode):
		case err != nil:
			return err
		default:
			var newer *cluster.NewerVersionError
			if old, err = cluster.DecodeHistory(h.znode, data); errors.As(err, &newer) {
				return err
			} else if err != nil {
				o.Log.Warn("the history was damaged: starting a new one", "znode", h.znode, "err", err)
				old = cluster.History{}
			}
		}
		if !old.Merge(terms, newest) {
			return nil
		}
		_, err = o.Conn.Do(ctx, o.Paths.HistoryTx(o.Self.Name, stat, exists, old)...)
		if !errors.Is(err, cluster.ErrBadVersion) && !errors.Is(err, cluster.ErrNodeExists) {
			return err
		}
	}
}
