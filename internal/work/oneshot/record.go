package oneshot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"zkelectd/internal/cluster"
)

// SkippedError says why a job is not run on this host.
type SkippedError struct{ Reason string }

func (e *SkippedError) Error() string { return e.Reason }

// Rule says when a job is run again.
type Rule struct {
	// OncePer is how long after the start of a run that has ended there is no other one; 0 for no limit.
	OncePer time.Duration
	// AtMostOnce also counts a run that has not ended: the job was killed, or its host has failed.
	AtMostOnce bool
}

// ClockError says that the servers' clock has gone back behind the start of the last run, so that it is not known how
// long ago that was.
type ClockError struct {
	Node         string
	Started, Now time.Time
}

func (e *ClockError) Error() string {
	return fmt.Sprintf("the clock of the ZooKeeper servers has gone back: it is %s, and the last run, on %s, has "+
		"started at %s, "+
		"so --once-per cannot be checked. Correct the clocks of the servers; to run the job now, use --once-per "+
		"0s on one host",
		e.Now.UTC().Format(time.RFC3339), e.Node, e.Started.UTC().Format(time.RFC3339))
}

// maxClockStep is how far the servers' clock may go back because another server orders the writes now: their clocks
// agree so well.
const maxClockStep = time.Second

// check returns a [SkippedError] if the last run is recent at a time of the servers' clock, and a [ClockError] if that
// cannot be known.
func (r Rule) check(last cluster.Stored[cluster.Run], now time.Time) error {
	run := last.Record
	ago := now.Sub(cluster.StartOf(last))
	if !last.Exists || r.OncePer == 0 || ago >= r.OncePer || !run.Ended && !r.AtMostOnce {
		return nil
	}
	if ago < -maxClockStep {
		return &ClockError{run.Node, cluster.StartOf(last), now}
	}
	ago = max(ago, 0)
	how := "it did not end"
	if run.Ended {
		how = fmt.Sprintf("it ended with status %d", run.Status)
	}
	return &SkippedError{fmt.Sprintf("%s has run the job %s ago, and %s; the next run may start %s after that one",
		run.Node, ago.Round(time.Second), how, r.OncePer)}
}

// Ledger reads and writes the record of the last run. With a slot in Paths, that is the one that was started last in
// any slot.
type Ledger struct {
	Conn  cluster.ReadWriter
	Paths cluster.Paths
	Node  string
}

// retryPause is how long Begin and End wait before they try again.
const retryPause = 200 * time.Millisecond

// Begin records that the job starts in a term, which this host must hold. It returns a [SkippedError] if there must be
// no run now, and a [ClockError] if that is not known. It tries until ctx ends.
func (l Ledger) Begin(ctx context.Context, term int64, rule Rule) error {
	return l.retry(ctx, func() error {
		last, err := l.read(ctx)
		if err != nil {
			return err
		}
		if last.Readable() && last.Record.Term == term && last.Record.Node == l.Node {
			return nil // an earlier attempt was applied
		}
		held, now, err := l.held(ctx, term)
		if err != nil {
			return err
		}
		if err := rule.check(last, now); err != nil {
			return err
		}
		return l.write(ctx, last, held, cluster.Run{Term: term, Node: l.Node, OncePer: cluster.Duration(rule.OncePer),
			AtMostOnce: rule.AtMostOnce})
	})
}

// End records that the job of a term has ended by itself.
func (l Ledger) End(ctx context.Context, term int64, status int) error {
	return l.retry(ctx, func() error {
		last, err := l.read(ctx)
		if err != nil {
			return err
		}
		if !last.Readable() || last.Record.Term != term || last.Record.Node != l.Node || last.Record.Ended {
			return nil // it was applied, or the record is another one's now
		}
		held, _, err := l.held(ctx, term)
		if err != nil {
			return err
		}
		run := last.Record
		run.Ended, run.Status, run.Started = true, status, cluster.StartOf(last)
		return l.write(ctx, last, held, run)
	})
}

func (l Ledger) read(ctx context.Context) (cluster.Stored[cluster.Run], error) {
	s, err := ReadRun(ctx, l.Conn, l.Paths)
	if err != nil {
		return s, err
	}
	return s, s.Newer() // a damaged one is replaced
}

// ReadRun reads the record of the last run. It does not exist in a group that is not that of a job.
func ReadRun(ctx context.Context, conn cluster.Reader, p cluster.Paths) (cluster.Stored[cluster.Run], error) {
	data, stat, err := conn.Get(ctx, p.Run(), false)
	if err != nil && !errors.Is(err, cluster.ErrNoNode) {
		return cluster.Stored[cluster.Run]{}, err
	}
	return cluster.ReadStored[cluster.Run](p.Run(), data, stat, err == nil), nil
}

// held returns the operations that check that this host still holds a term, and the servers' time of the last step of
// its takeover.
func (l Ledger) held(ctx context.Context, term int64) ([]cluster.Op, time.Time, error) {
	data, stat, err := l.Conn.Get(ctx, l.Paths.Elected(), false)
	if err != nil {
		return nil, time.Time{}, err
	}
	elected := cluster.ReadStored[cluster.Elected](l.Paths.Elected(), data, stat, true)
	_, current, err := l.Conn.Get(ctx, l.Paths.Current(), false)
	if err != nil && !errors.Is(err, cluster.ErrNoNode) {
		return nil, time.Time{}, err
	}
	if err != nil || !elected.Readable() || elected.Record.Term != term {
		return nil, time.Time{}, &SkippedError{fmt.Sprintf("this host does not hold term %d any more", term)}
	}
	return []cluster.Op{
		{Kind: cluster.OpCheck, Path: l.Paths.Elected(), Version: stat.Version},
		{Kind: cluster.OpCheck, Path: l.Paths.Current(), Version: cluster.AnyVersion},
	}, current.Time, nil
}

func (l Ledger) write(ctx context.Context, last cluster.Stored[cluster.Run], held []cluster.Op, run cluster.Run) error {
	op := cluster.Op{Kind: cluster.OpSet, Path: l.Paths.Run(), Version: last.Stat.Version, Data: cluster.Encode(&run)}
	if !last.Exists {
		op.Kind = cluster.OpCreate
	}
	_, err := l.Conn.Do(ctx, append(held, op)...)
	return err
}

// retry calls f until it succeeds, refuses for good, or ctx ends.
func (l Ledger) retry(ctx context.Context, f func() error) error {
	for {
		err := f()
		var skipped *SkippedError
		var clock *ClockError
		if err == nil || errors.As(err, &skipped) || errors.As(err, &clock) || errors.Is(err, cluster.ErrNoAuth) {
			return err
		}
		t := time.NewTimer(retryPause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return fmt.Errorf("cannot write znode %s: %w", l.Paths.Run(), err)
		}
	}
}
