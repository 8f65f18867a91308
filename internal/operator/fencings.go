package operator

import (
	"context"
	"errors"
	"fmt"

	"zkelectd/internal/cluster"
)

// ReadFencings returns the record of what people have fenced.
func ReadFencings(ctx context.Context, r cluster.Reader, paths cluster.Paths) (cluster.Stored[cluster.Fencings], error) {
	path := paths.Fencings()
	data, stat, err := r.Get(ctx, path, false)
	if err != nil && !errors.Is(err, cluster.ErrNoNode) {
		return cluster.Stored[cluster.Fencings]{}, fmt.Errorf("cannot read znode %s: %w", path, err)
	}
	return cluster.ReadStored[cluster.Fencings](path, data, stat, err == nil), nil
}

// RecordFencing writes an act, or its outcome. It replaces a record that is damaged.
func RecordFencing(ctx context.Context, conn cluster.ReadWriter, paths cluster.Paths, act cluster.FencingAct) error {
	for {
		read, err := ReadFencings(ctx, conn, paths)
		if err == nil {
			err = read.Newer()
		}
		if err != nil {
			return err
		}
		next := read.Record
		next.Put(act)
		_, err = conn.Do(ctx, paths.FencingsTx(read, next)...)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, cluster.ErrBadVersion), errors.Is(err, cluster.ErrNodeExists):
			// Another act was recorded meanwhile.
		default:
			return fmt.Errorf("cannot write znode %s: %w", paths.Fencings(), err)
		}
	}
}
