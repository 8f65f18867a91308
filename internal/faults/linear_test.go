package faults

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// The group as a lock with a fencing token: it is acquired with a term greater than every one before, and only while
// nobody holds it; it is released by its holder.
type (
	lock struct {
		term int64
		held bool
	}
	step struct {
		acquire bool
		term    int64
	}
)

var lockModel = porcupine.Model{
	Init: func() any { return lock{} },
	Step: func(state, input, _ any) (bool, any) {
		l, s := state.(lock), input.(step)
		switch {
		case s.acquire:
			return !l.held && s.term >= l.term, lock{s.term, true}
		default:
			return l.held && s.term == l.term, lock{l.term, false}
		}
	},
	Equal: func(a, b any) bool { return a == b },
}

// history makes operations of the tenures. A child holds the lock before it writes its first line, and may hold it for one
// beat after its last: those are the intervals in which the operations take effect.
func history(all []tenure) []porcupine.Operation {
	const beat = 10 * time.Millisecond
	var ops []porcupine.Operation
	for i, t := range all {
		ops = append(ops,
			porcupine.Operation{ClientId: 2 * i, Input: step{true, t.term}, Call: int64(t.start - beat), Return: int64(t.start)},
			porcupine.Operation{ClientId: 2*i + 1, Input: step{false, t.term}, Call: int64(t.end), Return: int64(t.end + beat)})
	}
	return ops
}

func linearizable(all []tenure) bool { return porcupine.CheckOperations(lockModel, history(all)) }

// The checkers can fail.
func TestCheckers(t *testing.T) {
	ms := time.Millisecond
	for name, c := range map[string]struct {
		all []tenure
		ok  bool
	}{
		"one after the other": {[]tenure{{"a", 1, "1", 100 * ms, 200 * ms}, {"b", 2, "2", 220 * ms, 300 * ms}}, true},
		"restarted in place":  {[]tenure{{"a", 1, "1", 100 * ms, 200 * ms}, {"a", 1, "2", 220 * ms, 300 * ms}}, true},
		"two at work":         {[]tenure{{"a", 1, "1", 100 * ms, 400 * ms}, {"b", 2, "2", 220 * ms, 500 * ms}}, false},
		"one inside another":  {[]tenure{{"a", 1, "1", 100 * ms, 900 * ms}, {"b", 2, "2", 220 * ms, 500 * ms}}, false},
		"falling terms":       {[]tenure{{"a", 2, "1", 100 * ms, 200 * ms}, {"b", 1, "2", 220 * ms, 300 * ms}}, false},
	} {
		if ok := len(check(c.all)) == 0; ok != c.ok {
			t.Errorf("%s: the ledger's check says %v", name, ok)
		}
		if ok := linearizable(c.all); ok != c.ok {
			t.Errorf("%s: porcupine says %v", name, ok)
		}
	}
	if len(check([]tenure{{"a", 1, "1", 100 * ms, 200 * ms}, {"b", 1, "2", 220 * ms, 300 * ms}})) == 0 {
		t.Error("a term of two nodes goes unnoticed")
	}
}
