package group

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/store"
	"zkelectd/internal/sys/boottime"
)

// rosterPause is the least time between two writes of the roster, and rosterRetry the pause after a failed one.
const (
	rosterPause = time.Second
	rosterRetry = 10 * time.Second
)

// rosterWriter keeps the roster up to date while this member is the elector. No decision depends on it. It writes only when the members
// have changed.
type rosterWriter struct {
	conn       cluster.Writer
	paths      cluster.Paths
	self       string
	log        *slog.Logger
	timeout    time.Duration
	background *background
	reread     func()

	seen     time.Duration // At of the last snapshot that needed no write
	settled  time.Duration // when the last write ended: only a newer snapshot counts
	next     time.Duration // not before then
	busy     bool
	reported string // the last error, as logged
}

// observe starts at most one write. It returns when to call it again, 0 for never.
func (w *rosterWriter) observe(s cluster.Snapshot, now time.Duration) (wake time.Duration) {
	switch {
	case w.busy || s.At == w.seen || s.At < w.settled:
		return 0
	case now < w.next:
		return w.next
	case s.Roster.Newer() != nil, errors.Is(s.Roster.Err, cluster.ErrNoAuth), errors.Is(s.Roster.Err, cluster.ErrNotSent):
		return 0
	}
	if s.Roster.Err != nil {
		w.logError("the roster was damaged: starting a new one", s.Roster.Err)
	}
	roster, changed := s.Roster.Record.Update(s.Members, time.Now())
	if !changed && s.Roster.Readable() {
		w.seen = s.At
		return 0
	}
	w.logLost(s.Roster.Record, roster)
	w.write(s, roster)
	return 0
}

func (w *rosterWriter) write(s cluster.Snapshot, roster cluster.Roster) {
	w.busy = true
	var err error
	w.background.run(w.timeout, func(ctx context.Context) { _, err = w.conn.Do(ctx, w.paths.RosterTx(w.self, s.Roster, roster)...) }, func() {
		w.busy, w.settled = false, boottime.Now()
		w.reread()
		w.next = w.settled + rosterPause
		switch {
		case err == nil:
			w.reported = ""
		case errors.Is(err, cluster.ErrBadVersion), errors.Is(err, cluster.ErrNodeExists), errors.Is(err, cluster.ErrNoNode):
			// It has changed meanwhile, and is being read again; or this member is no longer the elector.
		default:
			w.next = w.settled + rosterRetry
			w.logError("cannot write the roster; retrying", err)
		}
	})
}

func (w *rosterWriter) logError(text string, err error) {
	if w.reported != err.Error() {
		w.reported = err.Error()
		w.log.Warn(text, "znode", w.paths.Roster(), "err", err)
	}
}

// logLost logs the members that are lost.
func (w *rosterWriter) logLost(before, after cluster.Roster) {
	known := make(map[string]bool, len(before.Nodes))
	for _, n := range before.Nodes {
		known[n.ID] = n.Left != nil
	}
	for _, n := range after.Nodes {
		if n.Left != nil && n.Left.How == cluster.LeftLost && !known[n.ID] {
			w.log.Warn("a member is lost", "node", n.ID, "site", n.Site)
		}
	}
}

// leavingTimeout bounds how long a member that leaves takes to say so.
const leavingTimeout = time.Second

// RecordLeaving writes into the roster that the instance is about to leave on purpose. Its work is dead, and its leaderships are
// released. A failure only means that the group shows this node as lost.
func (g *Group) RecordLeaving(ctx context.Context, conn cluster.ReadWriter, instance *Instance, how cluster.LeftHow) {
	ctx, cancel := context.WithTimeout(ctx, leavingTimeout)
	defer cancel()
	left := cluster.Left{How: how, Time: time.Now(), Incarnation: instance.Incarnation()}
	if err := store.RecordLeaving(ctx, conn, g.opt.Paths, g.settings.Node.ID, g.settings.Node.Site, left); err != nil {
		g.log.Info("could not record that this node leaves on purpose: the group shows it as lost", "err", err)
	}
}
