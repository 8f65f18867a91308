package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/cluster/zkstore"
	"zkelectd/internal/config"
	"zkelectd/internal/request"
	"zkelectd/internal/whatif"
)

// Submitter submits operator requests on a session. A read takes at most Read; a write that is not answered within Write
// ends the session.
type Submitter struct {
	Conn        cluster.ReadWriter
	Paths       cluster.Paths
	Config      config.Config
	Read, Write time.Duration
}

// Question returns a forecast's question for snap under the policy in force; the ranking program may be asked for it.
func (w Submitter) Question(ctx context.Context, snap cluster.Snapshot) (whatif.Question, error) {
	q, err := Question(w.Config, snap)
	q.Ask = Asker(ctx, w.Config)
	return q, err
}

// Submit plans a request for the group as it is, and writes the plan. Of two operators at the same time one wins, and the
// other's error says who did. The error matches [cluster.ErrUnknown] if the request may have been submitted all the same.
func (w Submitter) Submit(ctx context.Context, plan func(whatif.Question) (request.Plan, error)) (request.Plan, error) {
	last := int64(-1)
	for {
		snap, err := w.read(ctx)
		if err != nil {
			return request.Plan{}, err
		}
		if c := snap.Control.Record; last >= 0 && c.Last != last {
			return request.Plan{}, &request.RefusedError{Err: fmt.Errorf("not done: there was another request at the same time, %s; "+
				"see 'zkelectd status', and submit yours again if it is still wanted", c.LastRequest)}
		}
		last = snap.Control.Record.Last
		q, err := w.Question(ctx, snap)
		if err != nil {
			return request.Plan{}, err
		}
		plan, err := plan(q)
		if err != nil {
			return plan, err
		}
		err = w.write(ctx, w.Paths.ControlTx("", snap.Control, plan.Control)...)
		switch {
		case err == nil:
			return plan, nil
		case errors.Is(err, cluster.ErrBadVersion), errors.Is(err, cluster.ErrNodeExists):
			// The elector keeps its time in it, or another operator was faster.
		case errors.Is(err, cluster.ErrUnknown):
			return plan, fmt.Errorf("the connection broke while znode %s was written: see 'zkelectd status' whether it was: %w", w.Paths.Control(), err)
		default:
			return plan, fmt.Errorf("cannot write znode %s: %w", w.Paths.Control(), err)
		}
	}
}

func (w Submitter) read(ctx context.Context) (cluster.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, w.Read)
	defer cancel()
	return zkstore.ReadAll(ctx, w.Conn, w.Paths, false)
}

func (w Submitter) write(ctx context.Context, ops ...cluster.Op) error {
	ctx, cancel := context.WithTimeout(ctx, w.Write)
	defer cancel()
	_, err := w.Conn.Do(ctx, ops...)
	return err
}
