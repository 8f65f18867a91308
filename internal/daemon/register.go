package daemon

import (
	"context"
	"errors"
	"os"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/cluster/zkstore"
	"zkelectd/internal/procinfo"
)

// FatalError is a failure that trying again would not mend: the daemon ends with it.
type FatalError struct{ Err error }

func (e *FatalError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *FatalError) Unwrap() error { return e.Err }

// register makes this daemon a member. An id that is taken may be that of this daemon's own past, whose session the
// server has not given up yet: that is waited for, however long it takes. A daemon that lives is never pushed aside.
func (d *Daemon) register(ctx context.Context, s *zkstore.Session) (cluster.Incarnation, error) {
	if err := zkstore.EnsureTree(ctx, s, d.paths); err != nil {
		if refused(err) {
			err = &FatalError{err}
		}
		return cluster.Incarnation{}, err
	}
	d.audit(ctx, s)
	w := holderWatch{d: d}
	for {
		in, err := zkstore.Register(ctx, s, d.paths, d.record(s))
		var taken *zkstore.TakenError
		if !errors.As(err, &taken) {
			if refused(err) {
				err = &FatalError{err}
			}
			return in, err
		}
		next, err := w.saw(ctx, taken, s.Timeout())
		if err != nil {
			return in, &FatalError{err}
		}
		again := time.NewTimer(next)
		select {
		case <-s.Wake(): // Register has left a watch on what is in the way
			s.TakeHints()
		case <-again.C:
		case <-s.Done():
			err = s.Err()
		case <-ctx.Done():
			err = ctx.Err()
		}
		again.Stop()
		if err != nil {
			return in, err
		}
	}
}

// refused tells that the server will never do what was asked of it.
func refused(err error) bool {
	return errors.Is(err, cluster.ErrNoAuth) || errors.Is(err, cluster.ErrInvalid) || errors.Is(err, cluster.ErrEphemeralLeaf)
}

// lives tells that a record is of another zkelectd on this host that is running. Of other hosts this can't be told.
func (me identity) lives(n cluster.Node) bool {
	if n.Host != me.host || n.Boot != me.boot || n.PID == me.pid {
		return false
	}
	started, err := procinfo.StartTime(n.PID)
	return err == nil && started == n.Started
}

// former reports whether a record is of this daemon's own past: of this guard, or of a process of this host that is dead.
func (me identity) former(n cluster.Node) bool {
	switch {
	case n.Host != me.host:
		return false
	case n.Boot != me.boot || n.PID == me.pid:
		return true
	}
	started, err := procinfo.StartTime(n.PID)
	return err == nil && started != n.Started || errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrProcessDone)
}

// record is what this daemon says of itself.
func (d *Daemon) record(s *zkstore.Session) cluster.Node {
	c := d.config().Node
	n := cluster.Node{
		ID: c.ID, Site: c.Site, Priority: c.Priority, Labels: c.Labels,
		Host: d.me.host, PID: d.me.pid, Boot: d.me.boot, Started: d.me.started,
		SessionTimeout: cluster.Duration(s.Timeout()), API: d.config().HTTP.Public(d.opt.Secure), PolicyDigest: d.config().Rules().Digest(), Version: d.opt.Version,
		Reloads: d.loads, Refused: d.refused, Reloaded: d.reloaded, Since: time.Now(),
		ACL: d.config().ZooKeeper.ACL, Identities: s.Tags(), OpenTree: d.openTree.Load(),
	}
	if c.Observer {
		n.Ineligible = "an observer: node.observer is set"
	}
	d.vitals.fill(&n)
	return n
}
