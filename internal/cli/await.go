package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/guard"
	"zkelectd/internal/operator"
	"zkelectd/internal/operator/request"
)

// completion reports whether a request has taken effect. An error means that it never will.
type completion func(s cluster.Snapshot, plan request.Plan) (bool, error)

var errDone = errors.New("done")

// interruptible returns a context that ends with the first signal that asks this process to end; a second one ends it
// at once.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, guard.NotIgnored(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)...)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// unfinished returns the error of a request that has not taken effect before the timeout, or before the end of ctx. It
// says how to end what stays in force.
func unfinished(ctx context.Context, g group, plan request.Plan, timeout time.Duration, last string) error {
	why := fmt.Sprintf("not done after %s (--timeout)", timeout)
	if ctx.Err() != nil {
		why = "interrupted"
	}
	end := ""
	if m := plan.Control.Move; m != nil && m.ID == plan.ID {
		end = "; to end it: " + cluster.InGroup("'zkelectd reelect'", g.name)
	}
	for _, c := range plan.Control.Cordons {
		switch {
		case c.ID != plan.ID:
		case c.Node != "":
			end = "; to end it: " + cluster.InGroup("'zkelectd uncordon --node %s'", g.name, c.Node)
		default:
			end = "; to end it: " + cluster.InGroup("'zkelectd uncordon --site %s'", g.name, c.Site)
		}
	}
	if last != "" { // what was read by then
		last = " (" + last + ")"
	}
	return exitError{statusTimedOut, fmt.Errorf("%s; the request stays in force%s%s", why, end, last)}
}

// await follows a request until it has taken effect, in a group with slots in all of them, and reports each step.
func await(ctx context.Context, g group, plan request.Plan, timeout time.Duration, done completion, r *report) error {
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	p := handover{notices: notices{w: os.Stderr}, report: r, began: began, plan: plan, done: done}
	read := func(ctx context.Context, g group) (operator.Leaders, error) {
		all, err := g.readLeaders(ctx, true)
		if _, over, _ := p.progress(all); over && err == nil {
			return g.readLeaders(ctx, false) // parts may have been read before the others changed
		}
		return all, err
	}
	switch err := follow(limited, g, began, read, &p); {
	case errors.Is(err, errDone):
	case err != nil:
		return err
	default:
		return unfinished(ctx, g, plan, timeout, p.last)
	}
	if r.Took = cluster.Duration(time.Since(began)); !g.manyLeaders() && p.leader.Node != "" {
		r.sayLeader(ctx, g, p.leader)
	}
	return nil
}

// handover is the display of a request that takes effect. It ends with errDone.
type handover struct {
	notices
	report *report
	began  time.Time
	plan   request.Plan
	done   completion
	last   string          // what it has said last
	leader cluster.Current // at the end, of the only leader
}

func (h *handover) show(read operator.Leaders) error {
	now, over, err := h.progress(read)
	if err != nil {
		return err
	}
	if now != h.last {
		h.last = now
		h.report.step("%8s  %s", time.Since(h.began).Round(time.Millisecond), now)
	}
	if over {
		h.leader = read.Shared.Current.Record
		return errDone
	}
	return nil
}

// sayLeader reports who leads at the end, and how long the group had no leader.
func (r *report) sayLeader(ctx context.Context, g group, rec cluster.Current) {
	r.Leader, r.Site, r.Term = rec.Node, rec.Site, rec.Term
	if r.before != 0 && rec.Term == r.before {
		r.step("%s (%s) still leads in term %d", rec.Node, rec.Site, rec.Term)
		return
	}
	text := fmt.Sprintf("%s (%s) leads in term %d", rec.Node, rec.Site, rec.Term)
	if t, ok := pastTerm(ctx, g, rec.Term); ok && t.Leaderless != nil {
		r.Leaderless = t.Leaderless
		text += fmt.Sprintf(", %s without a leader", t.Leaderless.Rounded())
	}
	r.step("%s", text)
}

// progress describes the handovers that are not over, of one leader or in slots, and reports whether none is left.
func (h *handover) progress(read operator.Leaders) (now string, over bool, err error) {
	var pending []string
	for _, s := range read.Snapshots {
		ok, err := h.done(s, h.plan)
		switch {
		case err != nil:
			return "", false, err
		case s.Slot == "" || len(read.Snapshots) == 1:
			return progress(s), ok, nil
		case !ok:
			pending = append(pending, fmt.Sprintf("slot %s: %s", s.Slot, progress(s)))
		}
	}
	if len(pending) == 0 {
		return "done in all slots", true, nil
	}
	return some(pending), false, nil
}

// progress describes the state of a handover.
func progress(s cluster.Snapshot) string {
	e, c := s.Elected.Record, s.Current
	switch {
	case s.Ready():
		return fmt.Sprintf("%s is READY in term %d", e.Node, e.Term)
	case c.Readable() && c.Record.Term != e.Term:
		return fmt.Sprintf("%s is elected in term %d (%s); %s stops and releases", e.Node, e.Term, e.Cause, c.Record.Node)
	case c.Readable():
		return fmt.Sprintf("%s takes over in term %d", e.Node, e.Term)
	case !s.Elected.Readable():
		return "no leader is elected"
	}
	return fmt.Sprintf("%s is elected in term %d (%s); there is no leader", e.Node, e.Term, e.Cause)
}

// pastTerm reads a term of the history. It waits a moment for it, since the elector writes it when the leader is READY.
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

// checkEnded returns an error if a request has ended, or if another has replaced it.
func checkEnded(s cluster.Snapshot, plan request.Plan, inForce bool) error {
	if d, over := s.Control.Record.Ended(plan.ID); over {
		return exitError{statusFailed, fmt.Errorf("the request has ended: %s: %s", d.What, d.Outcome)}
	}
	if s.Control.Readable() && !inForce {
		return exitError{statusFailed, fmt.Errorf("another request has replaced it: %s", s.Control.Record.LastRequest)}
	}
	return nil
}
