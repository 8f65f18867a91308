package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/cluster/zkstore"
)

// FatalError is a failure that trying again would not mend: the daemon ends with it.
type FatalError struct{ Err error }

func (e *FatalError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *FatalError) Unwrap() error { return e.Err }

// register makes this daemon a member. An id that is taken may be that of this daemon's own past, whose session the
// server has not given up yet: that is waited for. A daemon that lives is never pushed aside.
func (d *Daemon) register(ctx context.Context, s *zkstore.Session) (cluster.Incarnation, error) {
	if err := zkstore.Prepare(ctx, s, d.paths); err != nil {
		if refused(err) {
			err = &FatalError{err}
		}
		return cluster.Incarnation{}, err
	}
	d.audit(ctx, s)
	var limit <-chan time.Time
	for {
		in, err := zkstore.Register(ctx, s, d.paths, d.record(s))
		var taken *zkstore.TakenError
		if !errors.As(err, &taken) {
			if refused(err) {
				err = &FatalError{err}
			}
			return in, err
		}
		if d.me.lives(taken.Node.Record) {
			return in, &FatalError{fmt.Errorf("%w: that process is running; give this daemon another node.id (--id)", taken)}
		}
		if limit == nil {
			wait := max(time.Duration(taken.Node.Record.SessionTimeout), s.Timeout())*3/2 + time.Second
			d.log.Warn("this node id is still registered: waiting for that session to end", "id", d.cfg.Node.ID,
				"host", taken.Node.Record.Host, "pid", taken.Node.Record.PID, "session", fmt.Sprintf("0x%x", taken.Session), "wait", wait)
			timer := time.NewTimer(wait)
			defer timer.Stop()
			limit = timer.C
		}
		select {
		case <-s.Wake(): // Register has left a watch on what is in the way
			s.TakeHints()
		case <-s.Done():
			return in, s.Err()
		case <-ctx.Done():
			return in, ctx.Err()
		case <-limit:
			return in, &FatalError{fmt.Errorf("%w; it is alive: stop that daemon, or give this one another node.id (--id)", taken)}
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
	started, err := processStart(n.PID)
	return err == nil && started == n.Started
}

// record is what this daemon says of itself.
func (d *Daemon) record(s *zkstore.Session) cluster.Node {
	c := d.cfg.Node
	n := cluster.Node{
		ID: c.ID, Site: c.Site, Priority: c.Priority, Labels: c.Labels,
		Host: d.me.host, PID: d.me.pid, Boot: d.me.boot, Started: d.me.started,
		SessionTimeout: cluster.Duration(s.Timeout()), API: d.cfg.HTTP.Public(d.opt.Secure), PolicyDigest: d.cfg.Rules().Digest(), Version: d.opt.Version,
		Reloads: d.loads, Refused: d.refused, Reloaded: d.reloaded, Since: time.Now(),
	}
	if c.Never {
		n.Ineligible = "an observer: node.never is set"
	}
	d.vitals.fill(&n)
	return n
}

// audit tells people when the tree is more open, or less, than the configuration says.
func (d *Daemon) audit(ctx context.Context, s *zkstore.Session) {
	odd, err := s.Audit(ctx, d.paths)
	switch {
	case err != nil:
		d.log.Warn("the tree's ACLs can't be compared with zookeeper.acl", "err", err)
	case len(odd.Znodes) > 0:
		d.log.Warn("znodes have other ACLs than zookeeper.acl says, from before it was set or from other hosts",
			"zookeeper.acl", d.cfg.ZooKeeper.ACL, "znodes", odd.Znodes, "advice", odd.Advice)
	}
}
