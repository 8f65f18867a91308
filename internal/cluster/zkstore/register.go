package zkstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"zkelectd/internal/cluster"
)

// TakenError says that another session holds the id.
type TakenError struct {
	Path    string
	Node    cluster.Slot[cluster.Node]
	Session int64
}

func (e *TakenError) Error() string {
	n := e.Node.Record
	if e.Node.Err != nil {
		return fmt.Sprintf("%v (session 0x%x holds it)", e.Node.Err, e.Session)
	}
	return fmt.Sprintf("node id %q is taken: %s belongs to host %s, pid %d, session 0x%x", n.ID, e.Path, n.Host, n.PID, e.Session)
}

// Prepare creates the persistent znodes that must exist before anything else.
func Prepare(ctx context.Context, conn cluster.ReadWriter, p cluster.Paths) error {
	for _, path := range p.Skeleton() {
		_, err := conn.Do(ctx, cluster.Op{Kind: cluster.OpCreate, Path: path, Data: []byte{}})
		if err == nil || errors.Is(err, cluster.ErrNodeExists) {
			continue
		}
		// Where the parent may not be written but the znode is there, its owner has prepared it.
		_, _, readErr := conn.Get(ctx, path, false)
		if readErr == nil {
			continue
		}
		if errors.Is(readErr, cluster.ErrNoAuth) {
			return fmt.Errorf("cannot read znode %s: %w", path, readErr)
		}
		return fmt.Errorf("cannot create znode %s: %w; create it, or let this user create it", path, err)
	}
	return nil
}

// owner is a session that can be told from others by its ephemerals.
type owner interface {
	cluster.ReadWriter
	cluster.Owner
}

// Register is REGISTER: it returns the new incarnation, or a *[TakenError] while another session holds the id. A reply
// that was lost is read back, so that a registration is never left behind unnoticed.
func Register(ctx context.Context, conn owner, p cluster.Paths, node cluster.Node) (cluster.Incarnation, error) {
	results, err := conn.Do(ctx, p.RegisterTx(node)...)
	switch {
	case err == nil:
		name := strings.TrimPrefix(results[1].Path, p.Election()+"/")
		return cluster.ParseIncarnation(name)
	case errors.Is(err, cluster.ErrNodeExists):
		return registered(ctx, conn, p, node.ID)
	default:
		return cluster.Incarnation{}, fmt.Errorf("cannot register below %s: %w", p.Root, err)
	}
}

// registered finds out who holds the id: this very session, by a REGISTER whose reply was lost, or another.
func registered(ctx context.Context, conn owner, p cluster.Paths, id string) (cluster.Incarnation, error) {
	path := p.Node(id)
	data, stat, err := conn.Get(ctx, path, true)
	if err != nil {
		return cluster.Incarnation{}, fmt.Errorf("cannot read znode %s: %w", path, err)
	}
	if stat.Owner != conn.SessionID() {
		return cluster.Incarnation{}, &TakenError{Path: path, Session: stat.Owner, Node: cluster.ReadSlot[cluster.Node](path, data, stat, true)}
	}
	names, _, err := conn.Children(ctx, p.Election(), false)
	if err != nil {
		return cluster.Incarnation{}, fmt.Errorf("cannot list znode %s: %w", p.Election(), err)
	}
	in, _ := cluster.ParseIncarnations(names)
	for _, i := range in {
		if i.ID != id {
			continue
		}
		path := p.Incarnation(i.Name)
		_, stat, err := conn.Get(ctx, path, false)
		switch {
		case errors.Is(err, cluster.ErrNoNode), errors.Is(err, cluster.ErrNoAuth): // its own may be read
		case err != nil:
			return cluster.Incarnation{}, fmt.Errorf("cannot read znode %s: %w", path, err)
		case stat.Owner == conn.SessionID():
			return i, nil
		}
	}
	return cluster.Incarnation{}, fmt.Errorf("znode %s is of this session, but no incarnation is: it was deleted", path)
}

// ReadAll reads everything once, for people who look on, with watches if asked. Like a daemon's, the snapshot has the
// fence before current and both before the members.
func ReadAll(ctx context.Context, conn cluster.Reader, p cluster.Paths, watch bool) (cluster.Snapshot, error) {
	s := cluster.Snapshot{Leadership: true, Elector: true}
	type take func(data []byte, stat cluster.Stat, exists bool)
	read := func(path string, take take) error {
		data, stat, err := conn.Get(ctx, path, watch)
		if err != nil && !errors.Is(err, cluster.ErrNoNode) {
			return fmt.Errorf("cannot read znode %s: %w", path, err)
		}
		take(data, stat, err == nil)
		return nil
	}
	err := errors.Join(
		read(p.Elected(), func(d []byte, st cluster.Stat, ok bool) {
			s.Elected = cluster.ReadSlot[cluster.Elected](p.Elected(), d, st, ok)
		}),
		read(p.Leader(), func(d []byte, st cluster.Stat, ok bool) { s.Fence = cluster.ReadFence(p.Leader(), d, st, ok) }),
		read(p.Current(), func(d []byte, st cluster.Stat, ok bool) {
			s.Current = cluster.ReadSlot[cluster.Current](p.Current(), d, st, ok)
		}),
		read(p.Policy(), func(d []byte, st cluster.Stat, ok bool) {
			s.Policy = cluster.ReadSlot[cluster.Policy](p.Policy(), d, st, ok)
		}),
		read(p.Control(), func(d []byte, st cluster.Stat, ok bool) {
			s.Control = cluster.ReadSlot[cluster.Control](p.Control(), d, st, ok)
		}),
	)
	if err != nil {
		return s, err
	}
	names, _, err := conn.Children(ctx, p.Election(), watch)
	if errors.Is(err, cluster.ErrNoNode) {
		return s, fmt.Errorf("znode %s does not exist: no zkelectd has run with this root; check zookeeper.root (--root)", p.Election())
	} else if err != nil {
		return s, fmt.Errorf("cannot list znode %s: %w", p.Election(), err)
	}
	in, _ := cluster.ParseIncarnations(names)
	nodes := make(map[string]cluster.Slot[cluster.Node], len(in))
	for _, i := range in {
		path := p.Node(i.ID)
		err := read(path, func(d []byte, st cluster.Stat, ok bool) {
			nodes[i.ID] = nodeSlot(path, d, st, ok)
		})
		if errors.Is(err, cluster.ErrNoAuth) {
			nodes[i.ID], err = closed(err), nil
		}
		if err != nil {
			return s, err
		}
	}
	s.Members = members(in, nodes)
	return s, nil
}

// nodeSlot is the record of a member. One that no session owns is of no daemon: it would never take over, nor go away.
func nodeSlot(path string, data []byte, stat cluster.Stat, exists bool) cluster.Slot[cluster.Node] {
	s := cluster.ReadSlot[cluster.Node](path, data, stat, exists)
	if exists && s.Err == nil && stat.Owner == 0 {
		s.Record, s.Err = cluster.Node{}, fmt.Errorf("znode %s belongs to no session: not made by zkelectd, delete it", path)
	}
	return s
}

// closed is the record of a member that may not be read. It must not keep the group from being seen, nor from electing
// another.
func closed(err error) cluster.Slot[cluster.Node] {
	return cluster.Slot[cluster.Node]{Exists: true, Err: err}
}

// transient tells that trying again may help.
func transient(err error) bool {
	return errors.Is(err, cluster.ErrNotSent) || errors.Is(err, cluster.ErrUnknown)
}
