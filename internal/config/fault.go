package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Fault is one thing wrong with a configuration.
type Fault struct {
	// Source is file:line, an environment variable or a flag.
	Source string
	// Key is the setting, empty if the fault is none of a setting.
	Key    string
	Reason string
}

func (f Fault) String() string {
	parts := make([]string, 0, 3)
	for _, p := range []string{f.Source, f.Key, f.Reason} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, ": ")
}

// Faults are all that is wrong, one line each.
type Faults []Fault

func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.String()
	}
	return strings.Join(lines, "\n")
}

func (f *Faults) add(source, key, format string, args ...any) {
	*f = append(*f, Fault{Source: source, Key: key, Reason: fmt.Sprintf(format, args...)})
}

// sorted puts the faults in the order of the reference, those of no setting first.
func (f Faults) sorted() Faults {
	keys := Keys()
	place := func(f Fault) int { return slices.IndexFunc(keys, func(k Key) bool { return k.Name == f.Key }) }
	slices.SortStableFunc(f, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(place(a), place(b)), strings.Compare(a.Reason, b.Reason))
	})
	return f
}

// nearest suggests the known name that is most like an unknown one, "" if none is.
func nearest(name string, known []string) string {
	if len(known) == 0 {
		return ""
	}
	best := slices.MinFunc(known, func(a, b string) int { return cmp.Compare(distance(name, a), distance(name, b)) })
	if distance(name, best) > max(2, len(name)/3) {
		return ""
	}
	return best
}

// distance is Levenshtein's.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
