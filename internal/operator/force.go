package operator

import (
	"context"
	"errors"
	"fmt"

	"zkelectd/internal/cluster"
)

// Force declares that no work of the fence's term is left, in a group that is stuck as [cluster.Snapshot.CheckStuck] says. snap must
// show that. noted is set if the history has an entry of the term, which then says so as well.
func Force(ctx context.Context, conn cluster.ReadWriter, paths cluster.Paths, snap cluster.Snapshot, by cluster.Forced) (noted bool, err error) {
	if err := snap.CheckStuck(); err != nil {
		return false, err
	}
	for {
		past, err := readTerm(ctx, conn, paths, snap.Fence.Record.Term, by)
		if err != nil {
			return false, err
		}
		_, err = conn.Do(ctx, paths.ForceTx(snap, by, past)...)
		var failed *cluster.TxError
		switch {
		case err == nil:
			return past != nil, nil
		case errors.As(err, &failed) && failed.Op.Path == paths.History() && errors.Is(err, cluster.ErrBadVersion):
			// An elector has written it meanwhile.
		case errors.Is(err, cluster.ErrBadVersion):
			return false, fmt.Errorf("nothing was changed: the fence has changed since it was read; look at the group again")
		default:
			return false, fmt.Errorf("cannot write znode %s: %w", paths.Leader(), err)
		}
	}
}

// readTerm returns the history with the entry of a term as it is to be; nil if it can't be used, or has no such entry.
func readTerm(ctx context.Context, r cluster.Reader, paths cluster.Paths, term int64, by cluster.Forced) (*cluster.Stored[cluster.History], error) {
	data, stat, err := readHistory(ctx, r, paths, false)
	if data == nil || err != nil {
		return nil, err
	}
	h, err := cluster.DecodeHistory(paths.History(), data)
	if err != nil || !h.Force(term, by) {
		return nil, nil // the fence says it as well
	}
	return &cluster.Stored[cluster.History]{Exists: true, Stat: stat, Record: h}, nil
}
