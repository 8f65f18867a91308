package zkstore

import (
	"context"

	"zkelectd/internal/cluster"
)

// followed is a session that reads with watches.
type followed interface {
	cluster.Reader
	cluster.Watcher
	cluster.Lifetime
}

// Follow calls f with a snapshot of the whole group as it is, and again whenever it changes, until ctx or the session is
// over or f fails. It is for people who look on: every change of every member wakes it.
func Follow(ctx context.Context, conn followed, p cluster.Paths, f func(cluster.Snapshot) error) error {
	for {
		snap, err := ReadAll(ctx, conn, p, true)
		if err == nil {
			if err = f(snap); err != nil {
				return err
			}
		} else if conn.Err() == nil && ctx.Err() == nil && !transient(err) {
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
