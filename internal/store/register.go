package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"zkelectd/internal/cluster"
)

// TakenError is returned by [Register] while another session holds the node id, or a znode that no session owns.
type TakenError struct {
	Path    string
	Node    cluster.Stored[cluster.Node]
	Session int64
	// Err is why that znode could not be deleted, if Session is 0.
	Err error
}

func (e *TakenError) Error() string {
	n := e.Node.Record
	if e.Session == 0 {
		return fmt.Sprintf("no session owns znode %s, so no daemon uses it, but it cannot be deleted (%v): delete it "+
			"with 'deleteall %s' in zkCli.sh",
			e.Path, e.Err, e.Path)
	}
	if e.Node.Err != nil {
		return fmt.Sprintf("%v (session 0x%x holds it)", e.Node.Err, e.Session)
	}
	return fmt.Sprintf("node id %q is taken: %s belongs to host %s, pid %d, session 0x%x", n.ID, e.Path, n.Host,
		n.PID, e.Session)
}

// OlderInstanceError is returned by [Register] while an older registration of the same session holds the node id: its
// LEAVE must be confirmed first.
type OlderInstanceError struct {
	Path string
	Node cluster.Stored[cluster.Node]
}

func (e *OlderInstanceError) Error() string {
	if e.Node.Err != nil {
		return fmt.Sprintf("this session already holds its node id: %v", e.Node.Err)
	}
	return fmt.Sprintf("this session already holds its node id: znode %s belongs to instance %q, which has not "+
		"left the group yet", e.Path, e.Node.Record.Instance)
}

// EnsureTree creates the persistent znodes of the group that do not exist yet.
func EnsureTree(ctx context.Context, conn cluster.ReadWriter, p cluster.Paths) error {
	for _, path := range p.Skeleton() {
		if err := ensureZnode(ctx, conn, path); err != nil {
			return err
		}
	}
	return nil
}

// ensureZnode creates a persistent znode without data if it does not exist. It reads first: a create is a write through
// the quorum even if it fails, and many groups start at the same time.
func ensureZnode(ctx context.Context, conn cluster.ReadWriter, path string) error {
	_, _, readErr := conn.Get(ctx, path, false)
	denied := errors.Is(readErr, cluster.ErrNoAuth)
	if readErr == nil {
		return nil
	} else if !denied && !errors.Is(readErr, cluster.ErrNoNode) {
		return fmt.Errorf("cannot read znode %s: %w", path, readErr)
	}
	_, err := conn.Do(ctx, cluster.Op{Kind: cluster.OpCreate, Path: path, Data: []byte{}})
	switch {
	case err == nil, errors.Is(err, cluster.ErrNodeExists):
		return nil
	case denied:
		return fmt.Errorf("cannot read znode %s: %w", path, readErr)
	}
	return creationError(ctx, conn, path, err)
}

// registrar is the part of a session that [Register] uses.
type registrar interface {
	cluster.ReadWriter
	cluster.Owner
}

// Register performs REGISTER and returns the new incarnation. It returns a *[TakenError] while another session holds
// the id, and an *[OlderInstanceError] while another instance of this session does. If an earlier call with the same
// instance has registered but lost the reply, it returns that incarnation. checks are those of REGISTER.
func Register(ctx context.Context, conn registrar, p cluster.Paths, node cluster.Node,
	checks ...cluster.Op) (cluster.Incarnation, error) {
	in, err := register(ctx, conn, p, p.RegisterTx(node, checks...))
	if errors.Is(err, cluster.ErrNodeExists) {
		return findRegistration(ctx, conn, p, node, checks)
	}
	return in, err
}

// register sends a transaction that ends with REGISTER.
func register(ctx context.Context, conn registrar, p cluster.Paths, ops []cluster.Op) (cluster.Incarnation, error) {
	results, err := conn.Do(ctx, ops...)
	if err != nil {
		return cluster.Incarnation{}, fmt.Errorf("cannot register below %s: %w", p.Root, err)
	}
	return cluster.ParseIncarnation(strings.TrimPrefix(results[len(results)-1].Path, p.Election()+"/"))
}

// replaceRecord performs REGISTER over a record of the node that no session owns, such as one in a copy of the data:
// nobody uses it, and it would never go away.
func replaceRecord(ctx context.Context, conn registrar, p cluster.Paths, node cluster.Node, checks []cluster.Op,
	found cluster.Stored[cluster.Node]) (cluster.Incarnation, error) {
	path := p.Node(node.ID)
	in, err := register(ctx, conn, p,
		append([]cluster.Op{{Kind: cluster.OpDelete, Path: path, Version: found.Stat.Version}},
			p.RegisterTx(node, checks...)...))
	if refused, ok := errors.AsType[*cluster.TxError](err); ok && refused.Index == 0 {
		return in, &TakenError{Path: path, Node: found, Err: refused.Err}
	}
	return in, err
}

// findRegistration determines who holds the id: this instance, by a REGISTER whose reply was lost, or another one.
func findRegistration(ctx context.Context, conn registrar, p cluster.Paths, node cluster.Node,
	checks []cluster.Op) (cluster.Incarnation, error) {
	path := p.Node(node.ID)
	data, stat, err := conn.Get(ctx, path, true)
	if err != nil {
		return cluster.Incarnation{}, fmt.Errorf("cannot read znode %s: %w", path, err)
	}
	found := cluster.ReadStored[cluster.Node](path, data, stat, true)
	switch {
	case stat.Owner == 0:
		return replaceRecord(ctx, conn, p, node, checks, found)
	case stat.Owner != conn.SessionID():
		return cluster.Incarnation{}, &TakenError{Path: path, Session: stat.Owner, Node: found}
	case !found.Readable() || found.Record.Instance != node.Instance:
		// Two instances with one incarnation would each take the other's term for their own (S1).
		return cluster.Incarnation{}, &OlderInstanceError{Path: path, Node: found}
	}
	names, _, err := conn.Children(ctx, p.Election(), false)
	if err != nil {
		return cluster.Incarnation{}, fmt.Errorf("cannot list znode %s: %w", p.Election(), err)
	}
	in, _ := cluster.ParseIncarnations(names)
	for _, i := range in {
		if !node.Registered(i) {
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
