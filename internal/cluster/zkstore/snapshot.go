package zkstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"zkelectd/internal/cluster"
)

// storeFunc stores what a znode contains.
type storeFunc func(data []byte, stat cluster.Stat, exists bool)

// ReadAll returns a snapshot of the whole group, for displays. If watch is true, it sets watches. As in a daemon, it reads the
// fence before current, and both before the members.
func ReadAll(ctx context.Context, conn cluster.Reader, p cluster.Paths, watch bool) (cluster.Snapshot, error) {
	s := cluster.Snapshot{Leadership: true, Elector: true, Slot: p.Slot}
	read := func(path string, store storeFunc) error {
		data, stat, err := conn.Get(ctx, path, watch)
		if err != nil && !errors.Is(err, cluster.ErrNoNode) {
			return fmt.Errorf("cannot read znode %s: %w", path, err)
		}
		store(data, stat, err == nil)
		return nil
	}
	var err error
	if p.Slot != "" {
		err = read(p.Slots(), func(d []byte, st cluster.Stat, ok bool) { s.Slots = cluster.ReadSlots(p.Slots(), d, st, ok) })
	}
	err = errors.Join(err,
		read(p.Elected(), func(d []byte, st cluster.Stat, ok bool) {
			s.Elected = cluster.ReadStored[cluster.Elected](p.Elected(), d, st, ok)
		}),
		read(p.Leader(), func(d []byte, st cluster.Stat, ok bool) { s.Fence = cluster.ReadFence(p.Leader(), d, st, ok) }),
		read(p.Current(), func(d []byte, st cluster.Stat, ok bool) {
			s.Current = cluster.ReadStored[cluster.Current](p.Current(), d, st, ok)
		}),
		read(p.Policy(), func(d []byte, st cluster.Stat, ok bool) {
			s.Policy = cluster.ReadStored[cluster.Policy](p.Policy(), d, st, ok)
		}),
		read(p.Control(), func(d []byte, st cluster.Stat, ok bool) { s.Control = p.ReadControl(d, st, ok) }),
	)
	if err != nil {
		return s, err
	}
	if err := readForPeople(&s, p, read); err != nil {
		return s, err
	}
	names, _, err := conn.Children(ctx, p.Election(), watch)
	if errors.Is(err, cluster.ErrNoNode) {
		return s, fmt.Errorf("znode %s does not exist: no zkelectd has run with this root; check zookeeper.root (--root)", p.Election())
	} else if err != nil {
		return s, fmt.Errorf("cannot list znode %s: %w", p.Election(), err)
	}
	in, _ := cluster.ParseIncarnations(names)
	nodes := make(map[string]cluster.Stored[cluster.Node], len(in))
	for _, i := range in {
		path := p.Node(i.ID)
		err := read(path, func(d []byte, st cluster.Stat, ok bool) {
			nodes[i.ID] = storedNode(path, d, st, ok)
		})
		if errors.Is(err, cluster.ErrNoAuth) {
			nodes[i.ID], err = deniedNode(err), nil
		}
		if err != nil {
			return s, err
		}
	}
	s.Members, err = withLoads(ctx, conn, p, joinMembers(in, nodes))
	return s, err
}

// withLoads adds to the members the latencies and scores that their hosts publish for all groups.
func withLoads(ctx context.Context, conn cluster.Reader, p cluster.Paths, members []cluster.Member) ([]cluster.Member, error) {
	published, _, err := conn.Children(ctx, p.Loads(), false)
	if err != nil && !errors.Is(err, cluster.ErrNoNode) && !errors.Is(err, cluster.ErrNoAuth) {
		return nil, fmt.Errorf("cannot list znode %s: %w", p.Loads(), err)
	}
	loads := make(map[string]cluster.Load)
	for _, m := range members {
		if n := m.Node; !slices.Contains(published, m.ID) || !n.Readable() || n.Record.Latency != nil || n.Record.Score != nil {
			continue
		}
		path := p.Loads() + "/" + m.ID
		data, stat, err := conn.Get(ctx, path, false)
		switch {
		case errors.Is(err, cluster.ErrNoNode), errors.Is(err, cluster.ErrNoAuth): // not known
		case err != nil:
			return nil, fmt.Errorf("cannot read znode %s: %w", path, err)
		default:
			if l := cluster.ReadStored[cluster.Load](path, data, stat, true); l.Readable() {
				loads[m.ID] = l.Record
			}
		}
	}
	return cluster.WithLoads(members, loads), nil
}

// storedNode returns the record of a member. A znode that no session owns belongs to no daemon: that member would never take
// over and never go away, so its record is reported as an error.
func storedNode(path string, data []byte, stat cluster.Stat, exists bool) cluster.Stored[cluster.Node] {
	s := cluster.ReadStored[cluster.Node](path, data, stat, exists)
	if exists && s.Err == nil && stat.Owner == 0 {
		s.Record, s.Err = cluster.Node{}, fmt.Errorf("no session owns znode %s: it was not created by zkelectd, delete it", path)
	}
	return s
}

// deniedNode returns the record of a member that may not be read. Such a member must not prevent others from being seen or
// elected.
func deniedNode(err error) cluster.Stored[cluster.Node] {
	return cluster.Stored[cluster.Node]{Exists: true, Err: err}
}

// readForPeople reads what nothing is decided by. Missing permissions are no error.
func readForPeople(s *cluster.Snapshot, p cluster.Paths, read func(path string, store storeFunc) error) error {
	err := read(p.Roster(), func(d []byte, st cluster.Stat, ok bool) { s.Roster = cluster.ReadRoster(p.Roster(), d, st, ok) })
	if errors.Is(err, cluster.ErrNoAuth) {
		s.Roster, err = unreadRoster(err), nil
	}
	if err != nil {
		return err
	}
	err = read(p.Heir(), func(d []byte, st cluster.Stat, ok bool) {
		s.Heir = cluster.ReadStored[cluster.HeirRecord](p.Heir(), d, st, ok)
	})
	if errors.Is(err, cluster.ErrNoAuth) {
		s.Heir, err = cluster.Stored[cluster.HeirRecord]{Err: err}, nil
	}
	return err
}

// unreadRoster returns the roster that may not be read. Only people miss it.
func unreadRoster(err error) cluster.Stored[cluster.Roster] {
	return cluster.Stored[cluster.Roster]{Exists: true, Err: err}
}

// followSession is the part of a session that [Follow] uses.
type followSession interface {
	cluster.Reader
	cluster.Watcher
	cluster.Lifetime
}

// Follow calls f with a snapshot of the whole group, and again after each change, until ctx is done, the session has ended
// or f returns an error. It returns nil if ctx is done. It is meant for displays, not for daemons: every change of every
// member wakes it.
func Follow(ctx context.Context, conn followSession, p cluster.Paths, f func(cluster.Snapshot) error) error {
	for {
		snap, err := ReadAll(ctx, conn, p, true)
		if err == nil {
			if err = f(snap); err != nil {
				return err
			}
		} else if conn.Err() == nil && ctx.Err() == nil && !retryable(err) {
			return err
		}
		select {
		case <-conn.Wake():
			conn.TakeHints()
		case <-conn.Done():
			return conn.Err()
		case <-ctx.Done():
			return nil
		}
	}
}
