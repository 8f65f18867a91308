package faults

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// The group as a lock with a fencing token. It is acquired only while nobody holds it, with a term that is not less than any
// before, and released by its holder.
type (
	lockState struct {
		term int64
		held bool
	}
	lockStep struct {
		acquire bool
		term    int64
	}
)

var lockModel = porcupine.Model{
	Init: func() any { return lockState{} },
	Step: func(state, input, _ any) (bool, any) {
		l, s := state.(lockState), input.(lockStep)
		switch {
		case s.acquire:
			return !l.held && s.term >= l.term, lockState{s.term, true}
		default:
			return l.held && s.term == l.term, lockState{l.term, false}
		}
	},
	Equal: func(a, b any) bool { return a == b },
}

// operations converts tenures to lock operations. A child acquires the lock within one beat before its first line, and releases
// it within one beat after its last.
func operations(all []tenure) []porcupine.Operation {
	const beat = 10 * time.Millisecond
	var ops []porcupine.Operation
	for i, t := range all {
		ops = append(ops,
			porcupine.Operation{ClientId: 2 * i, Input: lockStep{true, t.term}, Call: int64(t.start - beat), Return: int64(t.start)},
			porcupine.Operation{ClientId: 2*i + 1, Input: lockStep{false, t.term}, Call: int64(t.end), Return: int64(t.end + beat)})
	}
	return ops
}

func linearizable(all []tenure) bool { return porcupine.CheckOperations(lockModel, operations(all)) }

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
			t.Errorf("%s: check returns %v", name, ok)
		}
		if ok := linearizable(c.all); ok != c.ok {
			t.Errorf("%s: porcupine returns %v", name, ok)
		}
	}
	if len(check([]tenure{{"a", 1, "1", 100 * ms, 200 * ms}, {"b", 1, "2", 220 * ms, 300 * ms}})) == 0 {
		t.Error("a term with two nodes is not noticed")
	}
}

// A line that a child is writing is not there yet; one that is damaged is an error.
func TestLedgerIsReadWhileItIsWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	for text, ok := range map[string]bool{
		"1 n1 1 start r\n2 n1 1 ru":            true,
		"1 n1 1 start r\n2 n1\n3 n1 1 run r\n": false,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if all, err := readLedger(path); (err == nil) != ok || ok && len(all) != 1 {
			t.Errorf("%q: tenures %v, error %v", text, all, err)
		}
	}
}
