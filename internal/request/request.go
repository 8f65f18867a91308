package request

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/whatif"
)

// Kind is what a request asks for: the name of the command, and the last part of the path over HTTP.
type Kind string

// The kinds of requests.
const (
	KindMove         Kind = "move"
	KindStepDown     Kind = "step-down"
	KindReelect      Kind = "reelect"
	KindCordon       Kind = "cordon"
	KindDrain        Kind = "drain"
	KindUncordon     Kind = "uncordon"
	KindPause        Kind = "pause"
	KindResume       Kind = "resume"
	KindClearStrikes Kind = "clear-strikes"
)

// The fields that a request may have beside its kind and a reason.
const (
	FieldNode  = "node"
	FieldSite  = "site"
	FieldAll   = "all"
	FieldHard  = "hard"
	FieldFor   = "for"
	FieldForce = "force"
)

// takes are all kinds, with the fields that each takes.
var takes = map[Kind][]string{
	KindMove:         {FieldNode, FieldSite, FieldFor, FieldForce},
	KindStepDown:     {FieldFor},
	KindReelect:      {},
	KindCordon:       {FieldNode, FieldSite, FieldFor},
	KindDrain:        {FieldNode, FieldSite, FieldFor, FieldForce},
	KindUncordon:     {FieldNode, FieldSite, FieldAll},
	KindPause:        {FieldHard, FieldFor},
	KindResume:       {},
	KindClearStrikes: {FieldNode, FieldAll},
}

// Kinds lists what can be asked for.
func Kinds() []Kind { return slices.Sorted(maps.Keys(takes)) }

// Takes tells whether requests of a kind have a field.
func (k Kind) Takes(field string) bool { return slices.Contains(takes[k], field) }

// StepDownFor is how long a node that has stepped down is not chosen, unless something else is said.
const StepDownFor = 10 * time.Minute

// MaxReason bounds an operator's words, in bytes: every daemon keeps them.
const MaxReason = 500

// Request is what an operator asks for, by whatever way.
type Request struct {
	Kind Kind
	// Node or Site is who is meant, All whoever there is.
	Node, Site string
	All        bool
	// Hard is of a pause.
	Hard    bool
	Options Options
}

// Check finds what is wrong with the request itself, whatever the group is like.
func (r Request) Check() error {
	if len(r.Options.Reason) > MaxReason {
		return fmt.Errorf("the reason has %d bytes: at most %d", len(r.Options.Reason), MaxReason)
	}
	if r.Options.For < 0 {
		return errors.New("a request cannot hold for less than no time")
	}
	if r.Options.For > cluster.MaxRequestTime {
		return fmt.Errorf("a request cannot hold for longer than %s", cluster.MaxRequestTime)
	}
	if r.Node != "" && r.Site != "" {
		return errNamed
	}
	named := r.Node != "" || r.Site != ""
	switch {
	case r.Kind.Takes(FieldAll) && named == r.All:
		if r.Kind.Takes(FieldSite) {
			return errors.New("name a node, a site or all, one of them")
		}
		return errors.New("name a node or all, one of them")
	case !r.Kind.Takes(FieldAll) && r.Kind.Takes(FieldNode) && !named:
		return errNamed
	}
	return nil
}

var errNamed = errors.New("name a node or a site, one of them")

// RefusedError is a request that cannot be met as the group is.
type RefusedError struct{ Err error }

func (e *RefusedError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *RefusedError) Unwrap() error { return e.Err }

// Plan makes the request out. The error is a *[RefusedError].
func (r Request) Plan(q whatif.Question) (Plan, error) {
	plan, err := r.plan(q)
	if err != nil {
		return Plan{}, &RefusedError{err}
	}
	return plan, nil
}

func (r Request) plan(q whatif.Question) (Plan, error) {
	if err := r.Check(); err != nil {
		return Plan{}, err
	}
	switch o := r.Options; r.Kind {
	case KindMove:
		return Move(q, o, r.Node, r.Site)
	case KindStepDown:
		return StepDown(q, o)
	case KindReelect:
		return Reelect(q, o)
	case KindCordon, KindDrain:
		return Cordon(q, o, r.Node, r.Site, r.Kind == KindDrain)
	case KindUncordon:
		return Uncordon(q, o, r.Node, r.Site, r.All)
	case KindPause:
		return Pause(q, o, r.Hard)
	case KindResume:
		return Resume(q, o)
	case KindClearStrikes:
		return ClearStrikes(q, o, r.Node)
	}
	return Plan{}, fmt.Errorf("there is no request %q", r.Kind)
}

// maxControl bounds what requests may make of the record, which an elector still adds to; readers refuse more than MaxRecord.
const maxControl = cluster.MaxRecord * 3 / 4
