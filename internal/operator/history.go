package operator

import (
	"context"
	"errors"
	"fmt"

	"zkelectd/internal/cluster"
)

// ReadHistory returns the history; it is empty if none has been written yet.
func ReadHistory(ctx context.Context, r cluster.Reader, paths cluster.Paths, watch bool) (cluster.History, error) {
	data, _, err := readHistory(ctx, r, paths, watch)
	if data == nil || err != nil {
		return cluster.History{}, err
	}
	return cluster.DecodeHistory(paths.History(), data)
}

// readHistory returns the history as it was written, nil if there is none.
func readHistory(ctx context.Context, r cluster.Reader, paths cluster.Paths, watch bool) ([]byte, cluster.Stat, error) {
	data, stat, err := r.Get(ctx, paths.History(), watch)
	switch {
	case errors.Is(err, cluster.ErrNoNode):
		return nil, stat, nil
	case err != nil:
		return nil, stat, fmt.Errorf("cannot read znode %s: %w", paths.History(), err)
	case data == nil:
		data = []byte{} // an empty znode is damaged, not missing
	}
	return data, stat, nil
}
