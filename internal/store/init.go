package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"zkelectd/internal/cluster"
)

// Init creates a group whose first leader need not serve the lease wait: its persistent znodes and a clean fence. It
// relies on the assurance of by (user@host) that the group has no leader, and returns a *[cluster.InUseError] if it
// finds traces of use. It leaves an initialized group unchanged.
func Init(ctx context.Context, conn cluster.ReadWriter, p cluster.Paths, by string) error {
	if err := EnsureTree(ctx, conn, p); err != nil {
		return err
	}
	snap, err := ReadAll(ctx, conn, p, false)
	if err != nil {
		return err
	}
	nodes, _, err := conn.Children(ctx, p.Nodes(), false)
	if err != nil {
		return fmt.Errorf("cannot list znode %s: %w", p.Nodes(), err)
	}
	incarnations, _, err := conn.Children(ctx, p.Election(), false)
	if err != nil {
		return fmt.Errorf("cannot list znode %s: %w", p.Election(), err)
	}
	_, _, err = conn.Get(ctx, p.History(), false)
	if err != nil && !errors.Is(err, cluster.ErrNoNode) {
		return fmt.Errorf("cannot read znode %s: %w", p.History(), err)
	}
	found := cluster.UsageEvidence{Snapshot: snap, Nodes: nodes, Incarnations: incarnations, History: err == nil}
	if in := p.InUse(found); in != nil {
		return in
	}
	if snap.Fence.Readable() {
		return nil // initialized already
	}
	err = DoSplit(ctx, conn, p, p.InitTx(snap.Fence, by, time.Now()))
	switch {
	case errors.Is(err, cluster.ErrBadVersion), errors.Is(err, cluster.ErrNodeExists):
		return fmt.Errorf("znode %s changed in the meantime because a daemon started electing: the first leader will "+
			"serve the lease wait", p.Leader())
	case errors.Is(err, cluster.ErrUnknown):
		return fmt.Errorf("lost the connection while writing znode %s: run the command again to see whether it "+
			"was written: %w", p.Leader(), err)
	case err != nil:
		return fmt.Errorf("cannot write znode %s: %w", p.Leader(), err)
	}
	return nil
}

// DoSplit performs the transactions of [cluster.Paths.Split], up to the first that fails.
func DoSplit(ctx context.Context, conn cluster.Writer, p cluster.Paths, ops []cluster.Op) error {
	for _, tx := range p.Split(ops) {
		if _, err := conn.Do(ctx, tx...); err != nil {
			return err
		}
	}
	return nil
}
