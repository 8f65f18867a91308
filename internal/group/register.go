package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/store"
	"zkelectd/internal/sys/procinfo"
)

// PermanentError is an error that a retry cannot resolve.
type PermanentError struct{ Err error }

func (e *PermanentError) Error() string { return e.Err.Error() }

// Unwrap returns the wrapped error.
func (e *PermanentError) Unwrap() error { return e.Err }

// permanent wraps a permanent refusal in a [PermanentError].
func permanent(err error) error {
	if cluster.IsRefusal(err) {
		return &PermanentError{err}
	}
	return err
}

// Registration is what an instance of a group registers with.
type Registration struct {
	// Members are what those of all slots need, in their order, or the only one of a group without slots. The first one
	// registers.
	Members  []MemberSetup
	Settings Settings
	Budget   cluster.Budget
	// Slots is the record of slots; none for a group without.
	Slots cluster.Stored[cluster.Slots]
}

// Register registers this host as a member of a group that exists. If the node id is still registered by an earlier
// run of this daemon, Register waits until the servers end that session, without a time limit. It never replaces a
// running daemon. The error is a [PermanentError] if a retry cannot resolve it; then nothing is registered.
func Register(ctx context.Context, r Registration) (*Instance, error) {
	g, s, id := r.Members[0].Group, r.Members[0].Session, cluster.NewInstance(rand.Uint64())
	for _, l := range r.Members {
		l.Group.settings = r.Settings
		g.lastTerm = max(g.lastTerm, l.Group.memory.Term)
	}
	g.audit(ctx, s)
	w := holderWatch{me: g.opt.Identity, log: g.log}
	for {
		rec := g.record(s, id)
		self, err := store.Register(ctx, s, g.opt.Paths, rec, g.opt.Paths.CheckSlots(r.Slots)...)
		var taken *store.TakenError
		if err == nil {
			if self.AtSequenceEnd() {
				g.log.Error("ZooKeeper's counter of registrations has reached its end: the group works on, but each "+
					"new member may become its elector",
					"znode", g.opt.Paths.Election(), "advice", "when an interruption is possible, stop all daemons "+
						"of the group, delete that znode, and start them again")
			}
			return newInstance(ctx, r, rec, self), nil
		} else if !errors.As(err, &taken) {
			return nil, permanent(err)
		}
		next, err := w.observe(taken, s.Timeout())
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

// holderWatch watches a registration of this daemon's id by another session. When that session expires cannot be
// computed, because each change of ZooKeeper's own leader restarts the timeout of every session. So the wait ends only
// when the registration is deleted, or when another daemon is proven to be alive.
type holderWatch struct {
	me  Identity
	log *slog.Logger

	session int64 // the holder
	since   time.Time
	next    time.Time // when to log the wait again
	pause   time.Duration
	changed int64 // the last change of the record that was seen
	writes  int   // by the holder, after its session would have expired if it were dead
}

// observe returns how long to wait before the next attempt. It returns an error if another daemon with the id is proven
// to be alive.
func (w *holderWatch) observe(taken *store.TakenError, own time.Duration) (time.Duration, error) {
	rec := taken.Node.Record
	if taken.Session == 0 {
		w.log.Error("this node id cannot be registered yet", "err", taken)
		w.pause = min(max(2*w.pause, takenLogFirst), takenLogMax)
		return w.pause, nil
	}
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
		return 0, fmt.Errorf("%w; it is alive, as it still writes its record: stop that daemon, or give this one "+
			"another node.id (--id)", taken)
	}
	if now.Before(w.next) {
		return w.next.Sub(now), nil
	}
	advice := "if that daemon is running, stop it or give this one another node.id (--id)"
	if w.me.isOwnPast(rec) {
		advice = "it is an earlier run of this daemon"
	}
	w.log.Warn("this node id is still registered: waiting for that session to end", "host", rec.Host, "pid", rec.PID,
		"session", fmt.Sprintf("0x%x", taken.Session), "znode", taken.Path, "waited", waited.Round(time.Second),
		"advice", advice)
	w.next = now.Add(w.pause)
	next := w.pause
	w.pause = min(2*w.pause, takenLogMax)
	return next, nil
}

// IsTransient reports whether err says that ZooKeeper has not answered, so that a retry may succeed.
func IsTransient(err error) bool {
	transient := []error{cluster.ErrNotSent, cluster.ErrUnknown, cluster.ErrSessionEnded, context.Canceled,
		context.DeadlineExceeded}
	return slices.ContainsFunc(transient, func(t error) bool { return errors.Is(err, t) })
}

// Identity identifies a zkelectd by its host and its guard's process.
type Identity struct {
	Host    string
	PID     int
	Boot    string
	Started uint64
}

// Identify returns the identity of the zkelectd whose guard is process pid.
func Identify(pid int) Identity {
	started, _ := procinfo.StartTime(pid)
	boot, _ := procinfo.BootID()
	return Identity{Host: procinfo.Hostname(), PID: pid, Boot: boot, Started: started}
}

// otherAlive reports whether n is the record of another zkelectd that is running on this host. It returns false for
// records of other hosts, because their processes are unknown.
func (me Identity) otherAlive(n cluster.Node) bool {
	if n.Host != me.Host || n.Boot != me.Boot || n.PID == me.PID {
		return false
	}
	started, err := procinfo.StartTime(n.PID)
	return err == nil && started == n.Started
}

// isOwnPast reports whether n is the record of an earlier run: of this guard, or of a process on this host that is
// dead.
func (me Identity) isOwnPast(n cluster.Node) bool {
	switch {
	case n.Host != me.Host:
		return false
	case n.Boot != me.Boot || n.PID == me.PID:
		return true
	}
	started, err := procinfo.StartTime(n.PID)
	return err == nil && started != n.Started || errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrProcessDone)
}
