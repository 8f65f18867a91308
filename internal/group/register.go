package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
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
	// Leaderships are those of all slots, in their order, or the only one of a group without slots. The first one registers.
	Leaderships []Leadership
	Settings    Settings
	Budget      cluster.Budget
	// Slots is what [Prepare] has returned.
	Slots cluster.Stored[cluster.Slots]
}

// Preparation is what must be known before an instance registers.
type Preparation struct {
	Session interface {
		cluster.ReadWriter
		store.SyncReader
	}
	// Missing describes the group if there is none. MayCreate then returns nil if this host may create it, and else why not.
	Missing   store.MissingError
	MayCreate func(context.Context) error
	Log       *slog.Logger
	// Name is the group's name, and Base the znode below which groups are recorded by their names.
	Name, Base string
	Root       string
	// ID is the group's id, for a root that has none.
	ID string
	// Slots is how many slots the configuration proposes; zero for a group without slots. By is the node's id.
	Slots cluster.SlotSize
	By    string
}

// identity returns what this host records of the group.
func (p Preparation) identity() cluster.Identity {
	kind := cluster.KindSingle
	if p.Slots.Count > 0 {
		kind = cluster.KindSlots
	}
	return cluster.Identity{Root: p.Root, Kind: kind, ID: p.ID}
}

// Restore writes the records that [Prepare] has checked again if they have been damaged since, and returns their znodes. An instance
// must be registered.
func Restore(ctx context.Context, p Preparation) (restored []string, err error) {
	return store.RestoreIdentity(ctx, p.Session, p.Base, p.Name, p.identity())
}

// Prepare checks that this host agrees with the others about the group, and creates those persistent znodes of it that do not exist.
// It returns the record of slots; none for a group without slots. The error is a [store.MissingError] if there is no group and this host
// may not create it, and a [PermanentError] if a retry cannot resolve it.
func Prepare(ctx context.Context, p Preparation) (slots cluster.Stored[cluster.Slots], err error) {
	own, paths := p.identity(), cluster.Paths{Root: p.Root}
	err = store.RequireCreated(ctx, p.Session, own.Kind, p.Missing)
	if missing, ok := errors.AsType[*store.MissingError](err); ok {
		switch missing.Reason = p.MayCreate(ctx); {
		case missing.Reason == nil:
			p.Log.Warn("creating the group, as these servers have none: if they have lost no data, its root or one of them is mistyped", "root", p.Root)
			err = nil
		case IsTransient(missing.Reason):
			err = fmt.Errorf("there is no group at %s, and it is not known yet whether this host may create it: %w", p.Root, missing.Reason)
		}
	}
	if err != nil {
		return slots, err
	}
	if err := store.EnsureIdentity(ctx, p.Session, p.Base, p.Name, own); err != nil {
		return slots, identityError(err)
	}
	if own.Kind == cluster.KindSingle {
		return slots, permanent(store.EnsureTree(ctx, p.Session, paths))
	}
	slots, err = store.EnsureSlots(ctx, p.Session, paths, p.Slots, p.By)
	if _, ok := errors.AsType[*cluster.NewerVersionError](err); ok {
		return slots, &PermanentError{err}
	}
	return slots, permanent(err)
}

// Register registers this host as a member of the group, after [Prepare]. If the node id is still registered by an earlier run of this daemon,
// Register waits until the servers end that session, without a time limit. It never replaces a running daemon. The error is a
// [PermanentError] if a retry cannot resolve it; then nothing is registered.
func Register(ctx context.Context, r Registration) (*Instance, error) {
	g, s, id := r.Leaderships[0].Group, r.Leaderships[0].Session, cluster.NewInstance(rand.Uint64())
	for _, l := range r.Leaderships {
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
				g.log.Error("ZooKeeper's counter of registrations has reached its end: the group works on, but each new member may become its elector",
					"znode", g.opt.Paths.Election(), "advice", "when an interruption is possible, stop all daemons of the group, delete that znode, and start them again")
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

// holderWatch watches a registration of this daemon's id by another session. When that session expires cannot be computed,
// because each change of ZooKeeper's own leader restarts the timeout of every session. So the wait ends only when the
// registration is deleted, or when another daemon is proven to be alive.
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

// observe returns how long to wait before the next attempt. It returns an error if another daemon with the id is proven to be
// alive.
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
	w.next = now.Add(w.pause)
	next := w.pause
	w.pause = min(2*w.pause, takenLogMax)
	return next, nil
}

// identityError wraps an error in a [PermanentError] unless a retry may succeed.
func identityError(err error) error {
	if IsTransient(err) {
		return err
	}
	return &PermanentError{err}
}

// IsTransient reports whether err says that ZooKeeper has not answered, so that a retry may succeed.
func IsTransient(err error) bool {
	for _, transient := range []error{cluster.ErrNotSent, cluster.ErrUnknown, cluster.ErrSessionEnded, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, transient) {
			return true
		}
	}
	return false
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

// otherAlive reports whether n is the record of another zkelectd that is running on this host. It returns false for records of
// other hosts, because their processes are unknown.
func (me Identity) otherAlive(n cluster.Node) bool {
	if n.Host != me.Host || n.Boot != me.Boot || n.PID == me.PID {
		return false
	}
	started, err := procinfo.StartTime(n.PID)
	return err == nil && started == n.Started
}

// isOwnPast reports whether n is the record of an earlier run: of this guard, or of a process on this host that is dead.
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
