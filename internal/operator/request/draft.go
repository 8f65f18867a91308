package request

import (
	"fmt"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector/whatif"
)

// Options are the options that all requests have.
type Options struct {
	// By is user@host, Reason is in that person's words.
	By, Reason string
	// For is how long the request stays in force, 0 if it has no end.
	For time.Duration
	// Force submits a request that would be refused otherwise.
	Force bool
}

// Plan is the change that a request makes to the control record.
type Plan struct {
	// Control is the record to write.
	Control cluster.Control
	// Roster is written together with it; nil if it stays as it is.
	Roster *cluster.Roster
	// ID is the request's number, Messages describes what will happen.
	ID       int64
	Messages []string
}

// draft is a plan in the making.
type draft struct {
	q       whatif.Question
	options Options
	next    cluster.Control
	plan    Plan
}

func newDraft(q whatif.Question, o Options) (*draft, error) {
	const cannot = "requests cannot be submitted"
	repair := cluster.InGroup("'zkelectd repair control'", cluster.GroupOf(q.Options.Group)) + " empties the record"
	if control := q.Snapshot.Control; control.Newer() != nil {
		return nil, fmt.Errorf("%s: %w", cannot, control.Err)
	} else if control.Err != nil {
		return nil, fmt.Errorf("%s: %w; %s", cannot, control.Err, repair)
	}
	d := &draft{q: q, options: o, next: q.Snapshot.Control.Record.Clone()}
	d.next.FixSchedule(q.Snapshot.Control.Stat)
	for _, decided := range append([]whatif.Question{q}, q.Slots...) {
		d.next.Continue(decided.Snapshot.Elected.Record.Request)
	}
	if err := d.next.Exhausted(); err != nil {
		return nil, fmt.Errorf("%s: %w; %s", cannot, err, repair)
	}
	return d, nil
}

// newRequest returns the request with the next number.
func (d *draft) newRequest() cluster.Request {
	r := d.next.Next(cluster.Request{By: d.options.By, Reason: d.options.Reason, For: cluster.Duration(d.options.For), Time: d.q.Wall})
	d.plan.ID = r.ID
	return r
}

func (d *draft) addMessage(format string, args ...any) {
	d.plan.Messages = append(d.plan.Messages, fmt.Sprintf(format, args...))
}

// finish completes the plan. It records what was requested, for an operator whose own request fails because of this one.
func (d *draft) finish(what string) (Plan, error) {
	adds := d.plan.ID != 0
	if !adds {
		d.newRequest()
	}
	d.next.LastRequest = fmt.Sprintf("%s by %s", what, d.options.By)
	if adds && tooLarge(d.next) {
		return Plan{}, fmt.Errorf("there are too many requests with long reasons: uncordon some of the nodes and sites that %s lists first", d.inGroup("'zkelectd status'"))
	}
	d.plan.Control = d.next
	return d.plan, nil
}

func tooLarge(c cluster.Control) bool {
	c = c.Whole()
	return len(cluster.Encode(&c)) > maxControl
}

// forecast returns what would happen if the plan so far were in force.
func (d *draft) forecast() whatif.Outcome {
	q := d.q
	q.Snapshot.Control.Exists, q.Snapshot.Control.Record = true, d.next.Clone()
	return whatif.Run(q)
}

// checkNoHardPause returns an error if a hard pause would keep the request from having an effect.
func (d *draft) checkNoHardPause() error {
	if p := d.next.Pause; p != nil && p.Hard {
		return fmt.Errorf("the group is paused hard %s; run %s first", p.Request, d.resumeHint())
	}
	return nil
}

// duration returns how long the request stays in force, as the end of a message.
func (d *draft) duration() string {
	if d.options.For == 0 {
		return ""
	}
	return fmt.Sprintf(" for %s", d.options.For)
}

// leader returns the node that leads or has been elected.
func (d *draft) leader() (node, site string) { return leaderOf(&d.q.Snapshot) }

func leaderOf(s *cluster.Snapshot) (node, site string) {
	if s.Current.Readable() {
		return s.Current.Record.Node, s.Current.Record.Site
	}
	if s.Elected.Readable() {
		if _, alive := s.Member(s.Elected.Record.Incarnation); alive {
			return s.Elected.Record.Node, s.Elected.Record.Site
		}
	}
	return "", ""
}
