// Package suggest finds the known name that a mistyped one was probably meant to be, and lists names for people.
package suggest

import (
	"fmt"
	"slices"
	"strings"
)

// DidYouMean returns what an error about an unknown name ends with: a question whether the nearest known name was
// meant, or "".
func DidYouMean(name string, known []string) string {
	near := Nearest(name, known)
	if near == "" || near == name {
		return ""
	}
	return "; did you mean " + near + "?"
}

// Nearest returns the known name that is most similar to an unknown one, or that begins with it. It returns "" if there
// is none, or if there are several.
func Nearest(name string, known []string) string {
	best, least, tied := "", max(2, len(name)/3)+1, false
	for _, k := range known {
		switch d := distance(name, k); {
		case d < least:
			best, least, tied = k, d, false
		case d == least && best != "" && k != best:
			tied = true
		}
	}
	if tied {
		return ""
	}
	if best == "" && len(name) > 2 {
		longer := slices.DeleteFunc(slices.Clone(known), func(k string) bool { return !strings.HasPrefix(k, name) })
		if len(longer) == 1 {
			return longer[0]
		}
	}
	return best
}

// distance returns the Levenshtein distance of two names.
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

// List returns a list of names, at most that many, and how many more there are.
func List(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
