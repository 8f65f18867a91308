// Package request plans operator requests: it turns a request into the next control record, which the elector acts on,
// or refuses it with the reason. It is pure; package operator writes the record.
package request

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/sys/suggest"
)

// Kind is the kind of a request: the name of the command, and the last element of the HTTP path.
type Kind string

// The kinds of requests.
const (
	KindMove         Kind = "move"
	KindReelect      Kind = "reelect"
	KindCordon       Kind = "cordon"
	KindDrain        Kind = "drain"
	KindUncordon     Kind = "uncordon"
	KindPause        Kind = "pause"
	KindResume       Kind = "resume"
	KindClearStrikes Kind = "clear-strikes"
	KindForget       Kind = "forget"
	KindApprove      Kind = "approve"
)

// The fields that a request may have besides its kind and a reason.
const (
	FieldNode  = "node"
	FieldSite  = "site"
	FieldAll   = "all"
	FieldHard  = "hard"
	FieldFor   = "for"
	FieldForce = "force"
	// FieldReject answers a proposal with no.
	FieldReject = "reject"
)

// fields maps each kind to the fields that it takes.
var fields = map[Kind][]string{
	KindMove:         {FieldNode, FieldSite, FieldFor, FieldForce},
	KindReelect:      {},
	KindCordon:       {FieldNode, FieldSite, FieldFor},
	KindDrain:        {FieldNode, FieldSite, FieldFor, FieldForce},
	KindUncordon:     {FieldNode, FieldSite, FieldAll},
	KindPause:        {FieldHard, FieldFor},
	KindResume:       {},
	KindClearStrikes: {FieldNode, FieldAll},
	KindForget:       {FieldNode, FieldAll},
	KindApprove:      {FieldNode, FieldReject},
}

// Kinds returns all kinds.
func Kinds() []Kind { return slices.Sorted(maps.Keys(fields)) }

// Takes reports whether requests of a kind have a field.
func (k Kind) Takes(field string) bool { return slices.Contains(fields[k], field) }

// OfSlot reports whether requests of a kind concern one leader: in a group with slots, they need a slot. The others
// concern a whole group.
func (k Kind) OfSlot() bool { return k == KindMove || k == KindReelect || k == KindApprove }

// BestMoveFor is how long the target of a move to the best other member ranks first by default.
const BestMoveFor = 10 * time.Minute

// MaxReason bounds a reason, in bytes: every daemon keeps it in memory.
const MaxReason = 500

// Request is an operator request.
type Request struct {
	Kind Kind
	// Node or Site is the target, All stands for every one; for [KindForget] that is every lost member. Target is a
	// node or a site, whichever the group has.
	Node, Site, Target string
	All                bool
	// Best is set for a move to the best other member, without a target: an empty name is a mistake.
	Best bool
	// Hard makes a pause hard, Reject an approval a rejection.
	Hard    bool
	Reject  bool
	Options Options
}

// Check returns an error if the request is invalid in itself, in any group.
func (r Request) Check() error {
	if len(r.Options.Reason) > MaxReason {
		return fmt.Errorf("the reason has %d bytes: at most %d", len(r.Options.Reason), MaxReason)
	}
	if r.Options.For < 0 {
		return errors.New("a request cannot be in force for a negative time")
	}
	if r.Options.For > cluster.MaxRequestTime {
		return fmt.Errorf("a request can be in force for at most %s", cluster.MaxRequestTime)
	}
	names := 0
	for _, name := range []string{r.Node, r.Site, r.Target} {
		if name != "" {
			names++
		}
	}
	if names > 1 {
		return errTarget
	}
	named := names == 1
	switch {
	case r.Kind.Takes(FieldAll) && named == r.All:
		if r.Kind.Takes(FieldSite) {
			return errors.New("name exactly one of node, site and all")
		}
		return errors.New("name exactly one of node and all")
	case r.Kind == KindApprove: // without a name, the member that is proposed
	case !r.Kind.Takes(FieldAll) && r.Kind.Takes(FieldNode) && named == r.Best:
		return errTarget
	}
	return nil
}

var errTarget = errors.New("name exactly one of node and site")

// RefusedError is the error for a request that cannot be met in the group as it is.
type RefusedError struct{ Err error }

func (e *RefusedError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *RefusedError) Unwrap() error { return e.Err }

// NotAffectedError is the reason why a request would change nothing in a group, such as the drain of a node that is no
// member. Of a request for many groups, those groups have no part.
type NotAffectedError struct {
	Reason string
	// Done is set if the group is already as the request wants it. A node or site that the group does not know is a
	// mistake.
	Done bool
}

func (e *NotAffectedError) Error() string { return e.Reason }

// Plan plans the request for the group in question. The error is a *[RefusedError].
func (r Request) Plan(q whatif.Question) (Plan, error) {
	plan, err := r.plan(q)
	if err != nil {
		return Plan{}, &RefusedError{err}
	}
	return plan, nil
}

func (r Request) plan(q whatif.Question) (Plan, error) {
	if err := errors.Join(r.Check(), r.checkScope(q)); err != nil {
		return Plan{}, err
	}
	r, err := r.resolve(q.Snapshot)
	if err != nil {
		return Plan{}, err
	}
	d, err := newDraft(q, r.Options)
	if err != nil {
		return Plan{}, err
	}
	switch r.Kind {
	case KindMove:
		return d.planMove(r)
	case KindReelect:
		return d.reelect()
	case KindCordon, KindDrain:
		return d.cordon(r.Node, r.Site, r.Kind == KindDrain)
	case KindUncordon:
		return d.uncordon(r.Node, r.Site, r.All)
	case KindPause:
		return d.pause(r.Hard)
	case KindResume:
		return d.resume()
	case KindClearStrikes:
		return d.clearStrikes(r.Node)
	case KindForget:
		return d.forget(r.Node)
	case KindApprove:
		return d.approve(r.Node, r.Reject)
	}
	return Plan{}, fmt.Errorf("unknown kind of request %q", r.Kind)
}

// maxControl bounds the record as requests leave it: readers refuse more than MaxRecord, and an elector still adds to
// it.
const maxControl = cluster.MaxRecord * 3 / 4

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
	r := d.next.Next(cluster.Request{By: d.options.By, Reason: d.options.Reason, For: cluster.Duration(d.options.For),
		Time: d.q.Wall})
	d.plan.ID = r.ID
	return r
}

func (d *draft) addMessage(format string, args ...any) {
	d.plan.Messages = append(d.plan.Messages, fmt.Sprintf(format, args...))
}

// finish completes the plan. It records what was requested, for an operator whose own request fails because of this
// one.
func (d *draft) finish(what string) (Plan, error) {
	adds := d.plan.ID != 0
	if !adds {
		d.newRequest()
	}
	d.next.LastRequest = fmt.Sprintf("%s by %s", what, d.options.By)
	if whole := d.next.Whole(); adds && len(cluster.Encode(&whole)) > maxControl {
		return Plan{}, fmt.Errorf("there are too many requests with long reasons: uncordon some of the nodes and "+
			"sites that %s lists first", d.inGroup("'zkelectd status'"))
	}
	d.plan.Control = d.next
	return d.plan, nil
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
		return fmt.Errorf("the group is paused hard %s; run %s first", p.Request, d.inGroup("'zkelectd resume'"))
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
func (d *draft) leader() (node, site string) { return whatif.LeaderOf(d.q.Snapshot) }

// resolve replaces Target by the node or the site of that name.
func (r Request) resolve(s cluster.Snapshot) (Request, error) {
	name := r.Target
	if name == "" {
		return r, nil
	}
	nodes, sites := members(s)
	if r.Kind == KindUncordon {
		nodes, sites = cordoned(s)
	}
	node, site := slices.Contains(nodes, name), slices.Contains(sites, name)
	r.Target = ""
	switch {
	case node && site:
		return r, fmt.Errorf("%s is a node and a site: write which one you mean, %s %[1]s or --site %[1]s", name,
			r.Kind.nodeFlag())
	case node, !r.Kind.Takes(FieldSite):
		r.Node = name
	case site:
		r.Site = name
	case r.Kind == KindUncordon:
		return r, notCordoned(s, name)
	default:
		return r, &NotAffectedError{Reason: fmt.Sprintf("no member has the node or site %q; there are the nodes %s "+
			"and the sites %s%s",
			name, list(nodes), list(sites), suggest.DidYouMean(name, slices.Concat(nodes, sites)))}
	}
	return r, nil
}

// nodeFlag returns the flag of the command that names a node.
func (k Kind) nodeFlag() string {
	if k == KindMove {
		return "--to"
	}
	return "--node"
}

// members returns the node ids and the sites of the members, sorted.
func members(s cluster.Snapshot) (nodes, sites []string) {
	for _, m := range s.Members {
		nodes, sites = append(nodes, m.ID), append(sites, m.Node.Record.Site)
	}
	return sorted(nodes), sorted(sites)
}

// cordoned returns the nodes and sites that have cordons, sorted.
func cordoned(s cluster.Snapshot) (nodes, sites []string) {
	for _, c := range s.Control.Record.Cordons {
		if c.Site != "" {
			sites = append(sites, c.Site)
		} else {
			nodes = append(nodes, c.Node)
		}
	}
	return sorted(nodes), sorted(sites)
}

func sorted(names []string) []string {
	slices.SortFunc(names, cluster.CompareNodes)
	return slices.Compact(names)
}

// checkTarget returns an error unless a member has the node id, or is at the site.
func (d *draft) checkTarget(node, site string) error {
	nodes, sites := members(d.q.Snapshot)
	kind, known, others, other := "node", nodes, sites, "it is a site: use --site"
	if site != "" {
		kind, known, others, other = "site", sites, nodes, "it is a node"
	}
	name := node + site
	if slices.Contains(known, name) {
		return nil
	}
	advice := suggest.DidYouMean(name, known)
	if slices.Contains(others, name) {
		advice = "; " + other
	}
	return &NotAffectedError{Reason: fmt.Sprintf("no member has the %s %q; there are %s%s", kind, name,
		list(known), advice)}
}

// notCordoned is the error for a request to end a cordon of name, empty for all, that is not in force.
func notCordoned(s cluster.Snapshot, name string) error {
	nodes, sites := cordoned(s)
	known := slices.Concat(nodes, sites)
	reason := "there is no such cordon"
	if len(known) > 0 {
		reason += "; there are cordons of " + list(known)
	}
	return &NotAffectedError{Reason: reason + suggest.DidYouMean(name, known), Done: name == "" || knows(s, name)}
}

// knows reports whether a name is that of a node or site of the group: of a member, or of one that has left.
func knows(s cluster.Snapshot, name string) bool {
	nodes, sites := members(s)
	absent, _ := s.Absent()
	for _, n := range absent {
		nodes, sites = append(nodes, n.ID), append(sites, n.Site)
	}
	return slices.Contains(nodes, name) || slices.Contains(sites, name)
}

// maxListed bounds the names in an error.
const maxListed = 20

func list(names []string) string { return suggest.List(names, maxListed) }
