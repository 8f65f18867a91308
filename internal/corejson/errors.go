package corejson

import (
	"errors"
	"reflect"

	"zkelectd/internal/cluster"
)

// sentinels are the errors that the core looks for with errors.Is, by the names in a recording.
var sentinels = map[string]error{
	"no-node": cluster.ErrNoNode, "node-exists": cluster.ErrNodeExists, "bad-version": cluster.ErrBadVersion, "not-empty": cluster.ErrNotEmpty,
	"ephemeral-leaf": cluster.ErrEphemeralLeaf, "no-auth": cluster.ErrNoAuth, "invalid": cluster.ErrInvalid, "not-sent": cluster.ErrNotSent,
	"unknown": cluster.ErrUnknown, "session-ended": cluster.ErrSessionEnded, "never-written": cluster.ErrNeverWritten, "no-slots": cluster.ErrNoSlots,
	"foreign-current": cluster.ErrForeignCurrent,
}

// recordedError stands for an error. It is what the core can learn of it.
type recordedError struct {
	Text string
	// Is has the sentinel errors that it wraps.
	Is map[string]bool
	// Refused is set if it wraps a [cluster.TxError], and Index is its operation.
	Refused bool
	Index   int
	Newer   *cluster.NewerVersionError
}

func appendError(b []byte, v reflect.Value) []byte {
	if v.IsNil() {
		return append(b, "null"...)
	}
	return appendStruct(b, reflect.ValueOf(describe(v.Interface().(error))))
}

func describe(err error) recordedError {
	var known *replayedError
	if errors.As(err, &known) {
		return known.recordedError
	}
	r := recordedError{Text: err.Error()}
	for name, sentinel := range sentinels {
		if errors.Is(err, sentinel) {
			if r.Is == nil {
				r.Is = make(map[string]bool)
			}
			r.Is[name] = true
		}
	}
	var refusal *cluster.TxError
	if errors.As(err, &refusal) {
		r.Refused, r.Index = true, refusal.Index
	}
	errors.As(err, &r.Newer)
	return r
}

// replayedError is an error that was decoded.
type replayedError struct{ recordedError }

func (e *replayedError) Error() string { return e.Text }

// Is reports whether the recorded error wrapped a sentinel error.
func (e *replayedError) Is(target error) bool {
	for name, sentinel := range sentinels {
		if target == sentinel { //nolint:errorlint // this is what errors.Is calls
			return e.recordedError.Is[name]
		}
	}
	return false
}

// As sets the error types that the core looks for.
func (e *replayedError) As(target any) bool {
	switch t := target.(type) {
	case **cluster.TxError:
		if e.Refused {
			*t = &cluster.TxError{Index: e.Index, Err: e}
		}
		return e.Refused
	case **cluster.NewerVersionError:
		if e.Newer != nil {
			*t = e.Newer
		}
		return e.Newer != nil
	}
	return false
}
