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

// Submitter submits operator requests on a session.
type Submitter struct {
	Conn   cluster.ReadWriter
	Paths  cluster.Paths
	Config config.Config
	// Read and Write bound each read and write. A write without a reply by then ends the session.
	Read, Write time.Duration
}

// Question returns the question for a forecast of snap under the policy in force. The forecast may run the ranking program.
func (s Submitter) Question(ctx context.Context, snap cluster.Snapshot) (whatif.Question, error) {
	q, err := Question(s.Config, snap)
	q.Ask = Asker(ctx, s.Config)
	return q, err
}

// Submit plans a request for the group as it is, and writes the plan. Of two operators who submit at the same time one
// succeeds; the other's error names the first. The error matches [cluster.ErrUnknown] if the request may have been submitted
// nevertheless.
func (s Submitter) Submit(ctx context.Context, planner func(whatif.Question) (request.Plan, error)) (request.Plan, error) {
	last := int64(-1)
	for {
		snap, err := s.read(ctx)
		if err != nil {
			return request.Plan{}, err
		}
		if c := snap.Control.Record; last >= 0 && c.Last != last {
			return request.Plan{}, &request.RefusedError{Err: fmt.Errorf("not done: there was another request at the same time, %s; "+
				"see 'zkelectd status', and submit yours again if it is still wanted", c.LastRequest)}
		}
		last = snap.Control.Record.Last
		q, err := s.Question(ctx, snap)
		if err != nil {
			return request.Plan{}, err
		}
		plan, err := planner(q)
		if err != nil {
			return plan, err
		}
		err = s.write(ctx, s.Paths.ControlTx("", snap.Control, plan.Control)...)
		switch {
		case err == nil:
			return plan, nil
		case errors.Is(err, cluster.ErrBadVersion), errors.Is(err, cluster.ErrNodeExists):
			// The elector has updated the remaining times, or another operator was faster.
		case errors.Is(err, cluster.ErrUnknown):
			return plan, fmt.Errorf("the connection was lost while znode %s was written; 'zkelectd status' shows whether it was: %w", s.Paths.Control(), err)
		default:
			return plan, fmt.Errorf("cannot write znode %s: %w", s.Paths.Control(), err)
		}
	}
}

func (s Submitter) read(ctx context.Context) (cluster.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Read)
	defer cancel()
	return zkstore.ReadAll(ctx, s.Conn, s.Paths, false)
}

func (s Submitter) write(ctx context.Context, ops ...cluster.Op) error {
	ctx, cancel := context.WithTimeout(ctx, s.Write)
	defer cancel()
	_, err := s.Conn.Do(ctx, ops...)
	return err
}
