package replay

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Ledger is what the works of one group have written themselves, on one machine.
type Ledger struct {
	Name string
	Runs []LedgerRun
}

// LedgerRun is the time between the first and the last line of one run of the work.
type LedgerRun struct {
	Node       string
	Term       int64
	Start, End time.Duration
	line       int // of the start
}

// ReadLedger reads lines of "boottime-ns node term event [run]". Lines without a run belong to the run of their node and term that the
// last event "start" began. A last line without its end is ignored, since its writer may have been killed.
func ReadLedger(name string, r io.Reader) (Ledger, error) {
	l := Ledger{Name: name}
	index := make(map[string]int)
	in := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := in.ReadString('\n')
		if err != nil {
			break
		}
		f := strings.Fields(line)
		if len(f) != 4 && len(f) != 5 {
			return Ledger{}, fmt.Errorf("%s:%d: %.60q is neither a recording nor a ledger line: boottime-ns node term event [run]", name, n, line)
		}
		at, err := strconv.ParseInt(f[0], 10, 64)
		if err != nil {
			return Ledger{}, fmt.Errorf("%s:%d: %w", name, n, err)
		}
		term, err := strconv.ParseInt(f[2], 10, 64)
		if err != nil {
			return Ledger{}, fmt.Errorf("%s:%d: %w", name, n, err)
		}
		key := strings.Join(append([]string{f[1], f[2]}, f[4:]...), " ")
		i, known := index[key]
		if !known || len(f) == 4 && f[3] == "start" {
			i = len(l.Runs)
			index[key] = i
			l.Runs = append(l.Runs, LedgerRun{Node: f[1], Term: term, Start: time.Duration(at), End: time.Duration(at), line: n})
		}
		run := &l.Runs[i]
		run.Start, run.End = min(run.Start, time.Duration(at)), max(run.End, time.Duration(at))
	}
	slices.SortStableFunc(l.Runs, func(a, b LedgerRun) int { return cmp.Compare(a.Start, b.Start) })
	return l, nil
}

func (l Ledger) text(r LedgerRun) string {
	return fmt.Sprintf("%s:%d: %s in term %d from boottime %s until %s", l.Name, r.line, r.Node, r.Term, r.Start, r.End)
}

// overlaps checks S1.
func (l Ledger) overlaps() (faults []string) {
	for i, b := range l.Runs {
		for _, a := range l.Runs[:i] {
			if b.Start < a.End {
				faults = append(faults, fmt.Sprintf("two works ran at once for %s:\n    %s\n    %s", min(a.End, b.End)-b.Start, l.text(a), l.text(b)))
			}
		}
	}
	return faults
}

// checkTerms checks that terms grow, and that each belongs to one node.
func (l Ledger) checkTerms() (faults []string) {
	var last LedgerRun
	for i, r := range l.Runs {
		if i > 0 && (r.Term < last.Term || r.Term == last.Term && r.Node != last.Node) {
			faults = append(faults, fmt.Sprintf("term %d of %s follows term %d of %s:\n    %s\n    %s", r.Term, r.Node, last.Term, last.Node, l.text(last), l.text(r)))
		}
		last = r
	}
	return faults
}
