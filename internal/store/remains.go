package store

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"zkelectd/internal/cluster"
)

// ReadRemains reads all znodes of the group name, whose name is recorded below base, for its deletion. There are none
// if the root does not exist. It is an error if the root is none of a group.
func ReadRemains(ctx context.Context, conn cluster.Reader, base, name string, p cluster.Paths,
) (cluster.Remains, error) {
	r := cluster.Remains{Paths: p}
	if err := collectRemains(ctx, conn, &r, p.Root); err != nil {
		return r, err
	}
	if len(r.Znodes) > 0 && !r.IsGroup() {
		return r, fmt.Errorf("znode %s is not the root of a group", p.Root)
	}
	record := cluster.IdentityPath(base, name)
	if record == p.Root {
		return r, nil
	}
	data, stat, err := conn.Get(ctx, record, false)
	switch {
	case errors.Is(err, cluster.ErrNoNode):
		return r, nil
	case err != nil:
		return r, fmt.Errorf("cannot read znode %s: %w", record, err)
	}
	if id := cluster.ReadIdentity(record, data, stat, true); id.Readable() && id.Record.Root == p.Root {
		r.Name = &cluster.RemainingZnode{Path: record, Data: data, Stat: stat}
	}
	return r, nil
}

// collectRemains adds a znode and those below it that can be a group's. The children of a foreign znode are not read.
func collectRemains(ctx context.Context, conn cluster.Reader, r *cluster.Remains, znode string) error {
	data, stat, err := conn.Get(ctx, znode, false)
	switch {
	case errors.Is(err, cluster.ErrNoNode):
		return nil // it is gone: the deletion of its parent is refused if it comes again
	case err != nil:
		return fmt.Errorf("cannot read znode %s: %w", znode, err)
	}
	r.Znodes = append(r.Znodes, cluster.RemainingZnode{Path: znode, Data: data, Stat: stat})
	if !r.Paths.IsParent(znode) {
		return nil
	}
	names, _, err := conn.Children(ctx, znode, false)
	if err != nil && !errors.Is(err, cluster.ErrNoNode) {
		return fmt.Errorf("cannot list znode %s: %w", znode, err)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := collectRemains(ctx, conn, r, path.Join(znode, name)); err != nil {
			return err
		}
	}
	return nil
}

// DeleteRemains deletes a group in one transaction, or nothing: see [cluster.Remains.DeleteTx].
func DeleteRemains(ctx context.Context, conn cluster.Writer, r cluster.Remains) error {
	ops, err := r.DeleteTx()
	if err == nil && len(ops) > 0 {
		_, err = conn.Do(ctx, ops...)
	}
	return err
}
