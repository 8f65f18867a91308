// Package request plans operator requests: it turns a request into the next control record, which the elector acts on, or
// refuses it with the reason. It is pure; package operator writes the record.
package request

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector/whatif"
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
)

// The fields that a request may have besides its kind and a reason.
const (
	FieldNode  = "node"
	FieldSite  = "site"
	FieldAll   = "all"
	FieldHard  = "hard"
	FieldFor   = "for"
	FieldForce = "force"
	// FieldAt is when a move is due, FieldCancel makes the request cancel the one that is scheduled.
	FieldAt     = "at"
	FieldCancel = "cancel"
)

// fields maps each kind to the fields that it takes.
var fields = map[Kind][]string{
	KindMove:         {FieldNode, FieldSite, FieldFor, FieldForce, FieldAt, FieldCancel},
	KindReelect:      {},
	KindCordon:       {FieldNode, FieldSite, FieldFor},
	KindDrain:        {FieldNode, FieldSite, FieldFor, FieldForce},
	KindUncordon:     {FieldNode, FieldSite, FieldAll},
	KindPause:        {FieldHard, FieldFor},
	KindResume:       {},
	KindClearStrikes: {FieldNode, FieldAll},
	KindForget:       {FieldNode, FieldAll},
}

// Kinds returns all kinds.
func Kinds() []Kind { return slices.Sorted(maps.Keys(fields)) }

// Takes reports whether requests of a kind have a field.
func (k Kind) Takes(field string) bool { return slices.Contains(fields[k], field) }

// OfSlot reports whether requests of a kind concern one leader: in a group with slots, they need a slot. The others concern a whole
// group.
func (k Kind) OfSlot() bool { return k == KindMove || k == KindReelect }

// BestMoveFor is how long the target of a move to the best other member ranks first by default.
const BestMoveFor = 10 * time.Minute

// MaxReason bounds a reason, in bytes: every daemon keeps it in memory.
const MaxReason = 500

// Request is an operator request.
type Request struct {
	Kind Kind
	// Node or Site is the target, All stands for every one; for [KindForget] that is every lost member. Target is a node or a site,
	// whichever the group has.
	Node, Site, Target string
	All                bool
	// Best is set for a move to the best other member, without a target: an empty name is a mistake.
	Best bool
	// Hard makes a pause hard.
	Hard bool
	// At is when a move is due; zero for now. Cancel is set to cancel the one that is scheduled.
	At      time.Time
	Cancel  bool
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
	case r.Cancel:
		return r.checkCancel(named)
	case r.Kind.Takes(FieldAll) && named == r.All:
		if r.Kind.Takes(FieldSite) {
			return errors.New("name exactly one of node, site and all")
		}
		return errors.New("name exactly one of node and all")
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

// NotAffectedError is the reason why a request would change nothing in a group, such as the drain of a node that is no member.
// Of a request for many groups, those groups have no part.
type NotAffectedError struct {
	Reason string
	// Done is set if the group is already as the request wants it.
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
	switch options := r.Options; r.Kind {
	case KindMove:
		return r.planMove(q)
	case KindReelect:
		return Reelect(q, options)
	case KindCordon, KindDrain:
		return Cordon(q, options, r.Node, r.Site, r.Kind == KindDrain)
	case KindUncordon:
		return Uncordon(q, options, r.Node, r.Site, r.All)
	case KindPause:
		return Pause(q, options, r.Hard)
	case KindResume:
		return Resume(q, options)
	case KindClearStrikes:
		return ClearStrikes(q, options, r.Node)
	case KindForget:
		return Forget(q, options, r.Node)
	}
	return Plan{}, fmt.Errorf("unknown kind of request %q", r.Kind)
}

// maxControl bounds the record as requests leave it: readers refuse more than MaxRecord, and an elector still adds to it.
const maxControl = cluster.MaxRecord * 3 / 4
