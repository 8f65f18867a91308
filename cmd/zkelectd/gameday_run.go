package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"zkelectd/internal/boottime"
	"zkelectd/internal/cluster"
	"zkelectd/internal/gameday"
	"zkelectd/internal/operator"
	"zkelectd/internal/request"
	"zkelectd/internal/whatif"
)

// drill is a gameday: the display of [follow] that causes the failure and watches what becomes of the group.
type drill struct {
	notices
	group   group
	opt     gamedayOptions
	out     io.Writer
	before  cluster.Snapshot
	outcome gameday.Outcome
	local   *localLeader // of a drill on the host that leads
	network *networkCut
	step    func() error

	began    time.Time
	begun    bool
	isCut    bool
	blind    bool // nothing can be read at present
	last     observed
	told     string
	away     int64         // the term in which another member leads, once it does
	killed   uint64        // the start of the child that was killed
	killedAt time.Duration // of boottime
}

// observed is a snapshot, and the session that has read it.
type observed struct {
	cluster.Snapshot
	group group
}

// errAborted ends a drill in which nobody is READY for too long.
var errAborted = errors.New("nobody was READY for twice as long as promised")

// moveFor is how long the moves of a drill stay in force; policy then decides again.
const moveFor = time.Minute

// settleTime is how long the group may take until it is as before, besides the times that are promised.
const settleTime = 30 * time.Second

// limit returns how long the drill may take in all.
func (d *drill) limit() time.Duration { return d.opt.cut + 4*d.outcome.Promise + settleTime }

// run runs the drill and reports on it.
func (d *drill) run(ctx context.Context) error {
	d.began = time.Now()
	rec := cluster.GameDay{
		Drill: string(d.outcome.Drill), Slot: d.group.paths.Slot, Node: d.outcome.Leader, Term: d.outcome.Term, By: whoami(),
		Time: d.began.UTC(), Until: d.began.Add(d.limit() + settleTime).UTC(),
	}
	err := record(ctx, d.group, rec, func(past cluster.GameDays) error {
		if other, found := past.UnderWay(time.Now()); found {
			return refuse("nothing was done: %s runs the drill %s", other.By, other.Drill)
		}
		return nil
	})
	if err != nil {
		return err
	}
	watched := func(ctx context.Context, g group) (observed, error) {
		s, err := readWatched(ctx, g)
		return observed{s, g}, err
	}
	d.step = func() error { return d.advance(ctx, time.Now()) }
	err = follow(ctx, d.group, watched, d)
	switch {
	case errors.Is(err, errDone):
		err = nil
	case err != nil:
		rec.Result = gameday.Aborted
	default:
		rec.Result, err = gameday.Interrupted, errors.New("interrupted; see "+cluster.InGroup("'zkelectd status'", d.group.name))
	}
	err = errors.Join(err, d.restore())
	return errors.Join(err, d.report(context.WithoutCancel(ctx), rec))
}

// record writes a report, unless permit returns an error.
func record(ctx context.Context, g group, rec cluster.GameDay, permit func(cluster.GameDays) error) error {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	return operator.RecordGameDay(ctx, g.session, g.paths, rec, permit)
}

func (d *drill) show(o observed) error {
	now := time.Now()
	d.last, d.blind = o, false
	d.outcome.Observer.Observe(o.Snapshot, now)
	if text := progress(o.Snapshot); text != d.told {
		d.told = text
		d.event(text)
	}
	return d.step()
}

func (d *drill) lost(since time.Time, reason error) {
	d.blind = true
	d.outcome.Observer.Lost()
	d.notices.lost(since, reason)
}

func (d *drill) resumed(from, to time.Time) error {
	d.blind = false
	return d.notices.resumed(from, to)
}

func (d *drill) refresh() error {
	if !d.begun {
		return nil // nothing was read yet
	}
	return d.step()
}

// event prints what has happened, with the time since the drill began.
func (d *drill) event(text string) {
	d.say("%8s  %s", time.Since(d.began).Round(time.Millisecond), text)
}

// advance does what is due. It returns errDone when there is nothing left to do.
func (d *drill) advance(ctx context.Context, now time.Time) error {
	if !d.begun {
		d.begun, d.began = true, now
		d.outcome.Observer.Begin(now)
		return d.fail(ctx)
	}
	if err := d.endCut(now); err != nil {
		return err
	}
	switch {
	case !d.blind && d.outcome.Observer.Vacant(now) > 2*d.outcome.Promise:
		return errAborted
	case now.Sub(d.began) > d.limit():
		d.event("the group is not as before; no longer waiting")
		return errDone
	case d.blind:
		return nil
	}
	s := d.last.Snapshot
	leads := s.Ready() && s.Elected.Record.Term > d.outcome.Term
	switch d.outcome.Drill {
	case gameday.Move:
		return d.moveBack(ctx, leads)
	case gameday.Child:
		d.outcome.Restarted = d.local.restarted(d.killed, d.killedAt)
		if leads || d.outcome.Restarted > 0 {
			return errDone
		}
		return nil
	}
	return d.awaitReturn(ctx, s, leads)
}

// fail has the leader fail.
func (d *drill) fail(ctx context.Context) error {
	switch d.outcome.Drill {
	case gameday.Move:
		d.event("moving leadership away")
		return d.move(ctx, "")
	case gameday.Daemon:
		d.event("killing the daemon")
		return killFound(d.local.daemon)
	case gameday.Child:
		d.event("killing the child")
		d.killedAt = boottime.Now()
		return killFound(func() (pid int, err error) {
			pid, d.killed, err = d.local.child()
			return pid, err
		})
	}
	d.event(fmt.Sprintf("cutting this host off from the servers, for %s", d.opt.cut))
	d.isCut = true
	return d.network.begin(d.opt.cut)
}

// endCut restores the path to the servers when it is time.
func (d *drill) endCut(now time.Time) error {
	if !d.isCut || now.Sub(d.began) < d.opt.cut {
		return nil
	}
	d.event("restoring the path to the servers")
	return d.restore()
}

// restore undoes what is left of the failure.
func (d *drill) restore() error {
	if !d.isCut {
		return nil
	}
	err := d.network.end()
	d.isCut = err != nil
	return err
}

// move moves leadership to a node, or away from the leader.
func (d *drill) move(ctx context.Context, node string) error {
	r := request.Request{Kind: request.KindMove, Node: node, Best: node == ""}
	r.Options = request.Options{By: whoami(), Reason: "gameday: the drill move", For: moveFor}
	_, err := d.group.submitter().Submit(ctx, r.Plan)
	return err
}

// moveBack moves leadership back once another member leads.
func (d *drill) moveBack(ctx context.Context, leads bool) error {
	e := d.last.Elected.Record
	switch {
	case !leads:
	case d.away == 0 && e.Node != d.outcome.Leader:
		d.away = e.Term
		d.event("moving leadership back")
		return d.move(ctx, d.outcome.Leader)
	case d.away != 0 && e.Term > d.away && e.Node == d.outcome.Leader:
		return errDone
	}
	return nil
}

// awaitReturn waits until the leader's host is a member again, and the member leads that policy prefers then.
func (d *drill) awaitReturn(ctx context.Context, s cluster.Snapshot, leads bool) error {
	if d.isCut || !s.Ready() || d.outcome.Drill == gameday.Daemon && !leads {
		return nil
	}
	d.outcome.Again = false
	for _, m := range s.Members {
		// A member whose daemon was killed registers anew; after a cut its session may still be the same.
		same := m.Name == d.before.Current.Record.Incarnation
		d.outcome.Again = d.outcome.Again || m.ID == d.outcome.Leader && (!same || d.outcome.Drill == gameday.Network)
	}
	if !d.outcome.Again {
		return nil
	}
	q, err := d.last.group.submitter().Question(ctx)
	if err != nil {
		return nil // tried again
	}
	d.outcome.Forecast = whatif.Run(q).Leader.ID
	if q.Snapshot.Ready() && q.Snapshot.Current.Record.Node == d.outcome.Forecast {
		d.outcome.Now = d.outcome.Forecast
		return errDone
	}
	return nil
}

// report compares what has happened with what was promised, writes it down and prints it. The error has the exit status.
func (d *drill) report(ctx context.Context, rec cluster.GameDay) error {
	g, err := d.reopened(ctx)
	if err != nil {
		return fmt.Errorf("the report was not recorded: %w", err)
	}
	defer closeQuietly(ctx, g.session)
	d.evaluate(ctx, g, &rec)
	if err = record(ctx, g, rec, func(cluster.GameDays) error { return nil }); err != nil {
		err = fmt.Errorf("the report was not recorded: %w", err)
	}
	if d.opt.output == "json" {
		err = errors.Join(err, printJSON(d.out, rec))
	} else {
		fmt.Fprintln(d.out)
		err = errors.Join(err, printGameDay(d.out, rec))
	}
	if err == nil && rec.Result == gameday.Late {
		return exitError{statusNo, nil}
	}
	return err
}

// reopened returns the group with a new session: the first one may have ended.
func (d *drill) reopened(ctx context.Context) (group, error) {
	g := d.group
	limit := time.Now().Add(settleTime)
	for {
		s, err := connect(ctx, g.cfg, g.from)
		if err == nil {
			g.session = s
			return g, g.adoptACL(ctx)
		}
		if time.Now().After(limit) {
			return g, err
		}
	}
}

// evaluate adds what was seen to the report.
func (d *drill) evaluate(ctx context.Context, g group, rec *cluster.GameDay) {
	if s, err := g.read(ctx); err == nil {
		now := time.Now()
		d.outcome.Observer.Observe(s, now)
		if s.Ready() {
			rec.Leader = s.Current.Record.Node
			if s.Current.Record.Term > d.outcome.Term {
				pastTerm(ctx, g, s.Current.Record.Term) // waits until it is in the history
			}
		}
	}
	d.outcome.Now = cmp.Or(d.outcome.Now, rec.Leader)
	if h, err := g.history(ctx, false); err == nil {
		for _, t := range h.Terms {
			if t.Term > d.outcome.Term && t.Outcome == string(cluster.CurrentReady) {
				d.outcome.History = append(d.outcome.History, t)
			}
		}
	}
	rec.Checks = d.outcome.Checks(time.Now())
	if rec.Result == "" {
		rec.Result = gameday.Result(rec.Checks)
	}
}
