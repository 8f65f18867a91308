package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"zkelectd/internal/cluster"
)

// leavingPause is the longest pause before another attempt, after another member has written the roster at the same time.
const leavingPause = 50 * time.Millisecond

// RecordLeaving writes into the roster that a member is about to leave on purpose. Otherwise the elector records that the member is
// lost. It gives up when ctx is done, or if the roster is damaged, which the elector repairs.
func RecordLeaving(ctx context.Context, conn cluster.ReadWriter, p cluster.Paths, id, site string, left cluster.Left) error {
	for {
		data, stat, err := conn.Get(ctx, p.Roster(), false)
		if err != nil && !errors.Is(err, cluster.ErrNoNode) {
			return fmt.Errorf("cannot read znode %s: %w", p.Roster(), err)
		}
		read := cluster.ReadRoster(p.Roster(), data, stat, err == nil)
		if read.Err != nil {
			return read.Err
		}
		_, err = conn.Do(ctx, p.RosterTx("", read, read.Record.Leaving(id, site, left))...)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, cluster.ErrBadVersion) && !errors.Is(err, cluster.ErrNodeExists):
			return fmt.Errorf("cannot write znode %s: %w", p.Roster(), err)
		}
		t := time.NewTimer(rand.N(leavingPause))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return fmt.Errorf("cannot write znode %s, which others keep writing: %w", p.Roster(), ctx.Err())
		}
	}
}
