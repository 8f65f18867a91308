package zkstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"zkelectd/internal/cluster"
)

// Init creates a group whose first leader need not wait: the skeleton, and a clean fence. It rests on the word of by,
// user@host, that nobody leads in this group. The error is a *[cluster.InUseError] where something says otherwise. A group
// that is initialized already is left as it is.
func Init(ctx context.Context, conn cluster.ReadWriter, p cluster.Paths, by string) error {
	if err := Prepare(ctx, conn, p); err != nil {
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
	found := cluster.Traces{Snapshot: snap, Nodes: nodes, Incarnations: incarnations, History: err == nil}
	if in := p.InUse(found); in != nil {
		return in
	}
	if snap.Fence.Readable() {
		return nil // initialized already
	}
	_, err = conn.Do(ctx, p.InitTx(snap.Fence, by, time.Now())...)
	switch {
	case errors.Is(err, cluster.ErrBadVersion), errors.Is(err, cluster.ErrNodeExists):
		return fmt.Errorf("znode %s has changed meanwhile, so that a daemon has begun to elect: the first leader waits", p.Leader())
	case errors.Is(err, cluster.ErrUnknown):
		return fmt.Errorf("the connection broke while znode %s was written: run it again, it says what is there: %w", p.Leader(), err)
	case err != nil:
		return fmt.Errorf("cannot write znode %s: %w", p.Leader(), err)
	}
	return nil
}
