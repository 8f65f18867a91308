package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"zkelectd/internal/cluster"
)

// leavingPause is the longest pause before another attempt, after another member has written the roster at the same
// time.
const leavingPause = 50 * time.Millisecond

// RecordLeaving writes into the roster that a member is about to leave on purpose. Otherwise the elector records that
// the member is lost. It gives up when ctx is done, or if the roster is damaged, which the elector repairs.
func RecordLeaving(ctx context.Context, conn cluster.ReadWriter, p cluster.Paths, id, site string,
	left cluster.Left) error {
	for {
		read, err := readRecord(ctx, conn, p.Roster(), false, cluster.ReadRoster)
		if err = errors.Join(err, read.Err); err != nil {
			return err
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
