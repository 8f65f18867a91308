package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/cluster/zkstore"
	"zkelectd/internal/request"
)

// arrival tells whether what was asked for has come about; the error is that it never will.
type arrival func(s cluster.Snapshot, g request.Plan) (bool, error)

var errArrived = errors.New("arrived")

// await follows a request until it has come about, with a line for each step on the way.
func await(ctx context.Context, g group, plan request.Plan, limit time.Duration, arrived arrival, r *report) error {
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	last := ""
	var end cluster.Snapshot
	err := zkstore.Follow(limited, g.session, g.paths, func(s cluster.Snapshot) error {
		if now := stage(s); now != last {
			last = now
			r.say(fmt.Sprintf("%8s  %s", time.Since(began).Round(time.Millisecond), now))
		}
		done, err := arrived(s, plan)
		if !done || err != nil {
			return err
		}
		// What was read first may be older than what tells of the arrival.
		if end, err = g.read(limited); err == nil {
			if done, err = arrived(end, plan); done {
				return errArrived
			}
		}
		return err
	})
	switch {
	case errors.Is(err, errArrived):
	case err != nil:
		return err
	case ctx.Err() != nil:
		return errors.New("no longer waited for; the request stands")
	default:
		return fmt.Errorf("not there after %s (--timeout); the request stands: %s", limit, last)
	}
	rec := end.Current.Record
	r.Leader, r.Site, r.Term, r.Took = rec.Node, rec.Site, rec.Term, cluster.Duration(time.Since(began))
	if t, ok := pastTerm(ctx, g, rec.Term); ok && t.Leaderless != nil {
		r.Leaderless = t.Leaderless
		r.say(fmt.Sprintf("%s (%s) leads in term %d, %s without a leader", rec.Node, rec.Site, rec.Term, time.Duration(*t.Leaderless).Round(100*time.Microsecond)))
		return nil
	}
	r.say(fmt.Sprintf("%s (%s) leads in term %d", rec.Node, rec.Site, rec.Term))
	return nil
}

// stage is where a handover stands.
func stage(s cluster.Snapshot) string {
	e, c := s.Elected.Record, s.Current
	switch {
	case s.Ready():
		return fmt.Sprintf("%s is READY in term %d", e.Node, e.Term)
	case c.Readable() && c.Record.Term != e.Term:
		return fmt.Sprintf("%s is elected in term %d (%s); %s stops and lets go", e.Node, e.Term, e.Cause, c.Record.Node)
	case c.Readable():
		return fmt.Sprintf("%s takes over in term %d", e.Node, e.Term)
	case !s.Elected.Readable():
		return "nobody is elected"
	}
	return fmt.Sprintf("%s is elected in term %d (%s), and nobody leads", e.Node, e.Term, e.Cause)
}

// pastTerm waits a moment for a term to be in the history, which the elector writes when the leader is READY.
func pastTerm(ctx context.Context, g group, term int64) (cluster.PastTerm, bool) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	for {
		h, err := g.history(ctx, true)
		if t, ok := h.Find(term); err == nil && ok {
			return t, true
		}
		select {
		case <-g.session.Wake():
			g.session.TakeHints()
		case <-ctx.Done():
			return cluster.PastTerm{}, false
		}
	}
}

// ended finds how a request has ended, or whether another has taken its place.
func ended(s cluster.Snapshot, g request.Plan, stands bool) error {
	if d, over := s.Control.Record.Ended(g.ID); over {
		return fmt.Errorf("the request is over: %s: %s", d.What, d.Outcome)
	}
	if s.Control.Readable() && !stands {
		return fmt.Errorf("another request has taken its place: %s", s.Control.Record.LastRequest)
	}
	return nil
}
