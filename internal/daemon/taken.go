package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"zkelectd/internal/cluster/zkstore"
)

// Timing of the wait for an id that is taken.
const (
	takenFirst = 2 * time.Second // after this the wait is mentioned again, then at growing intervals
	takenMost  = time.Minute
	takenLive  = 2 // writes by the holder that prove that it lives, after its session timeout has passed
)

// holderWatch watches a registration of this daemon's id by another session. How long a session may last can't be told
// from outside: each change of ZooKeeper's own leader gives every session its whole timeout anew. So the wait ends only
// with the registration, or with a proof that another daemon lives.
type holderWatch struct {
	d *Daemon

	session int64 // whose registration it is
	since   time.Time
	next    time.Time // when to mention the wait again
	pause   time.Duration
	changed int64 // the last change of the record that was seen
	writes  int   // by the holder, since its session would have ended had it been dead
}

// saw takes in who holds the id, and returns when to look again. It returns an error if another daemon has the id, proven
// to be alive.
func (w *holderWatch) saw(ctx context.Context, taken *zkstore.TakenError, own time.Duration) (time.Duration, error) {
	rec := taken.Node.Record
	if w.d.me.lives(rec) {
		return 0, fmt.Errorf("%w: that process is running; give this daemon another node.id (--id)", taken)
	}
	now := time.Now()
	if w.session != taken.Session {
		*w = holderWatch{d: w.d, session: taken.Session, since: now, next: now, pause: takenFirst, changed: taken.Node.Stat.Modified}
	}
	waited := now.Sub(w.since)
	if m := taken.Node.Stat.Modified; m != w.changed {
		w.changed = m
		if waited > 2*max(time.Duration(rec.SessionTimeout), own) {
			w.writes++
		}
	}
	if w.writes >= takenLive && !w.d.me.former(rec) {
		return 0, fmt.Errorf("%w; it is alive, as it still writes its record: stop that daemon, or give this one another node.id (--id)", taken)
	}
	if now.Before(w.next) {
		return w.next.Sub(now), nil
	}
	what := "if that daemon lives, stop it or give this one another node.id (--id)"
	if w.d.me.former(rec) {
		what = "it is this daemon's own past"
	}
	w.d.log.Warn("this node id is still registered: waiting for that session to end", "host", rec.Host, "pid", rec.PID,
		"session", fmt.Sprintf("0x%x", taken.Session), "znode", taken.Path, "waited", waited.Round(time.Second), "hint", what)
	w.d.closeLeft(ctx, taken.Session)
	w.next = now.Add(w.pause)
	next := w.pause
	w.pause = min(2*w.pause, takenMost)
	return next, nil
}

// closeLeft closes a session of this process that was not closed in time when it ended: nothing works on the strength of it
// any more, or the next one would not have begun.
func (d *Daemon) closeLeft(ctx context.Context, session int64) {
	if d.left.Session != session || session == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, closeLimit)
	defer cancel()
	if err := zkstore.CloseSession(ctx, d.left); err != nil && !errors.Is(err, zkstore.ErrNoSuchSession) {
		d.log.Warn("the old session cannot be closed yet", "err", err)
	}
}
