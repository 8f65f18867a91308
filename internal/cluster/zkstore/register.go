package zkstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"zkelectd/internal/cluster"
)

// TakenError is returned by [Register] while another session holds the node id.
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

// EnsureTree creates the persistent znodes of the group that do not exist yet.
func EnsureTree(ctx context.Context, conn cluster.ReadWriter, p cluster.Paths) error {
	for _, path := range p.Skeleton() {
		_, err := conn.Do(ctx, cluster.Op{Kind: cluster.OpCreate, Path: path, Data: []byte{}})
		if err == nil || errors.Is(err, cluster.ErrNodeExists) {
			continue
		}
		// Without write permission for the parent it is enough that the znode exists: an administrator has created it.
		_, _, readErr := conn.Get(ctx, path, false)
		if readErr == nil {
			continue
		}
		if errors.Is(readErr, cluster.ErrNoAuth) {
			return fmt.Errorf("cannot read znode %s: %w", path, readErr)
		}
		return fmt.Errorf("cannot create znode %s: %w; create it, or grant this user the permission to create it", path, err)
	}
	return nil
}

// registrar is the part of a session that [Register] uses.
type registrar interface {
	cluster.ReadWriter
	cluster.Owner
}

// Register performs REGISTER and returns the new incarnation. It returns a *[TakenError] while another session holds the id.
// If an earlier call has registered but lost the reply, it returns that incarnation.
func Register(ctx context.Context, conn registrar, p cluster.Paths, node cluster.Node) (cluster.Incarnation, error) {
	results, err := conn.Do(ctx, p.RegisterTx(node)...)
	switch {
	case err == nil:
		name := strings.TrimPrefix(results[1].Path, p.Election()+"/")
		return cluster.ParseIncarnation(name)
	case errors.Is(err, cluster.ErrNodeExists):
		return findRegistration(ctx, conn, p, node.ID)
	default:
		return cluster.Incarnation{}, fmt.Errorf("cannot register below %s: %w", p.Root, err)
	}
}

// findRegistration determines which session holds the id: this one, by a REGISTER whose reply was lost, or another.
func findRegistration(ctx context.Context, conn registrar, p cluster.Paths, id string) (cluster.Incarnation, error) {
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
		case errors.Is(err, cluster.ErrNoNode), errors.Is(err, cluster.ErrNoAuth): // not this session's: that one can be read
		case err != nil:
			return cluster.Incarnation{}, fmt.Errorf("cannot read znode %s: %w", path, err)
		case stat.Owner == conn.SessionID():
			return i, nil
		}
	}
	return cluster.Incarnation{}, fmt.Errorf("this session owns znode %s, but its incarnation was deleted", path)
}

// retryable reports whether a request that failed with err may succeed if it is repeated.
func retryable(err error) bool {
	return errors.Is(err, cluster.ErrNotSent) || errors.Is(err, cluster.ErrUnknown)
}
