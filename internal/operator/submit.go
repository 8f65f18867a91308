package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/operator/request"
	"zkelectd/internal/policy"
)

// Submitter submits operator requests on a session.
type Submitter struct {
	Conn cluster.ReadWriter
	// Paths has the slot that the requests are for, in a group with slots.
	Paths cluster.Paths
	// Slots is set for requests for a whole group with slots.
	Slots  bool
	Config config.Config
	Neighbors
	// Read and Write bound each read and write. A write without a reply by then ends the session.
	Read, Write time.Duration
}

// Question reads the group, and returns the question for a forecast under the policy in force. The forecast may run the
// ranking program.
func (s Submitter) Question(ctx context.Context) (whatif.Question, error) {
	limited, cancel := context.WithTimeout(ctx, s.Read)
	defer cancel()
	g, err := ReadLeaders(limited, s.Conn, s.Group, s.Paths, s.Slots || s.Paths.Slot != "", false)
	if err != nil {
		return whatif.Question{}, err
	}
	q, err := g.Question(s.Config, s.Paths.Slot, Asker(ctx, s.Config), new(policy.Cache))
	if err == nil {
		s.place(ctx, &q)
	}
	return q, err
}

// Submit plans a request for the group as it is, and writes the plan. Of two operators who submit at the same time one
// succeeds; the other's error names the first. The error matches [cluster.ErrUnknown] if the request may have been
// submitted nevertheless.
func (s Submitter) Submit(ctx context.Context, planner func(whatif.Question) (request.Plan, error),
) (request.Plan, error) {
	last := int64(-1)
	for {
		q, err := s.Question(ctx)
		if err != nil {
			return request.Plan{}, err
		}
		snap := q.Snapshot
		if c := snap.Control.Record; last >= 0 && c.Last != last {
			return request.Plan{}, &request.RefusedError{Err: fmt.Errorf("not done: there was another request at the "+
				"same time, %s; "+
				"see %s, and submit yours again if it is still wanted", c.LastRequest,
				cluster.InGroup("'zkelectd status'", cluster.GroupOf(s.Group)))}
		}
		last = snap.Control.Record.Last
		plan, err := planner(q)
		if err != nil {
			return plan, err
		}
		ops := s.Paths.ControlTx("", snap.Control, plan.Control)
		if plan.Roster != nil {
			ops = append(ops, s.Paths.RosterTx("", snap.Roster, *plan.Roster)...)
		}
		limited, cancel := context.WithTimeout(ctx, s.Write)
		_, err = s.Conn.Do(limited, ops...)
		cancel()
		switch {
		case err == nil:
			return plan, nil
		case errors.Is(err, cluster.ErrBadVersion), errors.Is(err, cluster.ErrNodeExists):
			// The elector has updated the remaining times or the roster, or another operator was faster.
		case errors.Is(err, cluster.ErrUnknown):
			return plan, fmt.Errorf("the connection was lost while znode %s was written; %s shows whether it was: %w",
				s.Paths.Control(), cluster.InGroup("'zkelectd status'", cluster.GroupOf(s.Group)), err)
		default:
			return plan, fmt.Errorf("cannot write znode %s: %w", s.Paths.Control(), err)
		}
	}
}
