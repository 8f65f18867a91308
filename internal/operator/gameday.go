package operator

import (
	"context"
	"errors"
	"fmt"

	"zkelectd/internal/cluster"
)

// ReadGameDays returns the record of the drills.
func ReadGameDays(ctx context.Context, r cluster.Reader, paths cluster.Paths) (cluster.Stored[cluster.GameDays], error) {
	path := paths.GameDays()
	data, stat, err := r.Get(ctx, path, false)
	if err != nil && !errors.Is(err, cluster.ErrNoNode) {
		return cluster.Stored[cluster.GameDays]{}, fmt.Errorf("cannot read znode %s: %w", path, err)
	}
	return cluster.ReadStored[cluster.GameDays](path, data, stat, err == nil), nil
}

// RecordGameDay writes the report of a drill, unless permit returns an error for the drills that are recorded. It replaces a record
// that is damaged.
func RecordGameDay(ctx context.Context, conn cluster.ReadWriter, paths cluster.Paths, drill cluster.GameDay, permit func(cluster.GameDays) error) error {
	for {
		read, err := ReadGameDays(ctx, conn, paths)
		if err == nil {
			err = read.Newer()
		}
		if err == nil {
			err = permit(read.Record)
		}
		if err != nil {
			return err
		}
		next := read.Record
		next.Put(drill)
		_, err = conn.Do(ctx, paths.GameDaysTx(read, next)...)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, cluster.ErrBadVersion), errors.Is(err, cluster.ErrNodeExists):
			// Another drill was recorded meanwhile.
		default:
			return fmt.Errorf("cannot write znode %s: %w", paths.GameDays(), err)
		}
	}
}
