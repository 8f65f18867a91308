package faults

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// tenure is the lifetime of one child and its descendants, according to the ledger.
type tenure struct {
	node       string
	term       int64
	run        string
	start, end time.Duration
}

// readLedger returns the tenures, ordered by their start.
func readLedger(path string) ([]tenure, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all []tenure
	index := make(map[string]int) // by run
	for line := range strings.Lines(string(data)) {
		if !strings.HasSuffix(line, "\n") {
			break // read while a child wrote it
		}
		fields := strings.Fields(line)
		if len(fields) != 5 {
			return nil, fmt.Errorf("ledger line %q", line)
		}
		at, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("ledger line %q: %w", line, err)
		}
		term, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("ledger line %q: %w", line, err)
		}
		i, ok := index[fields[4]]
		if !ok {
			i = len(all)
			index[fields[4]] = i
			all = append(all, tenure{node: fields[1], term: term, run: fields[4], start: time.Duration(at)})
		}
		all[i].end = max(all[i].end, time.Duration(at))
	}
	slices.SortStableFunc(all, func(a, b tenure) int { return cmp.Compare(a.start, b.start) })
	return all, nil
}

// check checks S1 in the ledger: no two tenures overlap, terms increase, and each term belongs to one node.
func check(all []tenure) []string {
	var faults []string
	owner := make(map[int64]string)
	for i, t := range all {
		if o, ok := owner[t.term]; ok && o != t.node {
			faults = append(faults, fmt.Sprintf("term %d belongs to both %s and %s", t.term, o, t.node))
		}
		owner[t.term] = t.node
		for _, before := range all[:i] {
			if t.start < before.end {
				faults = append(faults, fmt.Sprintf("two children run for %s: %s in term %d, run %s until %d, %s in term %d, run %s from %d",
					before.end-t.start, before.node, before.term, before.run, before.end, t.node, t.term, t.run, t.start))
			}
			if t.term < before.term {
				faults = append(faults, fmt.Sprintf("term %d of %s follows term %d of %s", t.term, t.node, before.term, before.node))
			}
		}
	}
	return faults
}

// The check can fail.
func TestCheck(t *testing.T) {
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
		"a term of two nodes": {[]tenure{{"a", 1, "1", 100 * ms, 200 * ms}, {"b", 1, "2", 220 * ms, 300 * ms}}, false},
	} {
		if ok := len(check(c.all)) == 0; ok != c.ok {
			t.Errorf("%s: %v", name, ok)
		}
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
