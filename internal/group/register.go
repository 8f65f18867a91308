package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/cluster/zkstore"
)

// PermanentError is an error that a retry cannot resolve.
type PermanentError struct{ Err error }

func (e *PermanentError) Error() string { return e.Err.Error() }

// Unwrap returns the wrapped error.
func (e *PermanentError) Unwrap() error { return e.Err }

// permanent wraps a permanent refusal in a [PermanentError].
func permanent(err error) error {
	if refused(err) {
		return &PermanentError{err}
	}
	return err
}

// refused reports whether err is a permanent refusal.
func refused(err error) bool {
	return errors.Is(err, cluster.ErrNoAuth) || errors.Is(err, cluster.ErrInvalid) || errors.Is(err, cluster.ErrEphemeralLeaf)
}

// Register registers this host as a member of the group on session s, and applies settings. If the node id is still registered by
// an earlier run of this daemon, Register waits until the servers end that session, without a time limit. It never replaces a
// running daemon. The error is a [PermanentError] if a retry cannot resolve it.
func (g *Group) Register(ctx context.Context, s Session, settings Settings, budget cluster.Budget) (*Member, error) {
	g.settings = settings
	if err := zkstore.EnsureTree(ctx, s, g.opt.Paths); err != nil {
		return nil, permanent(err)
	}
	g.audit(ctx, s)
	w := holderWatch{me: g.opt.Identity, log: g.log, closeOld: g.opt.CloseOld}
	for {
		self, err := zkstore.Register(ctx, s, g.opt.Paths, g.record(s))
		var taken *zkstore.TakenError
		if err == nil {
			return g.newMember(ctx, s, self, budget), nil
		} else if !errors.As(err, &taken) {
			return nil, permanent(err)
		}
		next, err := w.observe(ctx, taken, s.Timeout())
		if err != nil {
			return nil, &PermanentError{err}
		}
		again := time.NewTimer(next)
		select {
		case <-s.Wake(): // Register has set a watch on the existing registration
			s.TakeHints()
		case <-again.C:
		case <-s.Done():
			err = s.Err()
		case <-ctx.Done():
			err = ctx.Err()
		}
		again.Stop()
		if err != nil {
			return nil, err
		}
	}
}

// Limits of the wait for an id that another session has registered.
const (
	takenLogFirst = 2 * time.Second // after this the wait is logged again, then at growing intervals
	takenLogMax   = time.Minute
	takenWrites   = 2 // how many writes after its session timeout prove that the holder is alive
)

// holderWatch watches a registration of this daemon's id by another session. When that session expires cannot be computed,
// because each change of ZooKeeper's own leader restarts the timeout of every session. So the wait ends only when the
// registration is deleted, or when another daemon is proven to be alive.
type holderWatch struct {
	me       Identity
	log      *slog.Logger
	closeOld func(ctx context.Context, session int64)

	session int64 // the holder
	since   time.Time
	next    time.Time // when to log the wait again
	pause   time.Duration
	changed int64 // the last change of the record that was seen
	writes  int   // by the holder, after its session would have expired if it were dead
}

// observe returns how long to wait before the next attempt. It returns an error if another daemon with the id is proven to be
// alive.
func (w *holderWatch) observe(ctx context.Context, taken *zkstore.TakenError, own time.Duration) (time.Duration, error) {
	rec := taken.Node.Record
	if w.me.otherAlive(rec) {
		return 0, fmt.Errorf("%w: that process is running; give this daemon another node.id (--id)", taken)
	}
	now := time.Now()
	if w.session != taken.Session {
		w.session, w.since, w.next, w.pause = taken.Session, now, now, takenLogFirst
		w.changed, w.writes = taken.Node.Stat.Modified, 0
	}
	waited := now.Sub(w.since)
	if m := taken.Node.Stat.Modified; m != w.changed {
		w.changed = m
		if waited > 2*max(time.Duration(rec.SessionTimeout), own) {
			w.writes++
		}
	}
	if w.writes >= takenWrites && !w.me.isOwnPast(rec) {
		return 0, fmt.Errorf("%w; it is alive, as it still writes its record: stop that daemon, or give this one another node.id (--id)", taken)
	}
	if now.Before(w.next) {
		return w.next.Sub(now), nil
	}
	hint := "if that daemon is running, stop it or give this one another node.id (--id)"
	if w.me.isOwnPast(rec) {
		hint = "it is an earlier run of this daemon"
	}
	w.log.Warn("this node id is still registered: waiting for that session to end", "host", rec.Host, "pid", rec.PID,
		"session", fmt.Sprintf("0x%x", taken.Session), "znode", taken.Path, "waited", waited.Round(time.Second), "hint", hint)
	w.closeOld(ctx, taken.Session)
	w.next = now.Add(w.pause)
	next := w.pause
	w.pause = min(2*w.pause, takenLogMax)
	return next, nil
}
