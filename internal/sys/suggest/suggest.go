// Package suggest finds the known name that a mistyped one was probably meant to be.
package suggest

// Hint returns what an error about an unknown name ends with: a question whether the nearest known name was meant, or "".
func Hint(name string, known []string) string {
	near := Nearest(name, known)
	if near == "" || near == name {
		return ""
	}
	return "; did you mean " + near + "?"
}

// Nearest returns the known name that is most similar to an unknown one. It returns "" if none is similar, or if several are
// equally so.
func Nearest(name string, known []string) string {
	best, least, tied := "", max(2, len(name)/3)+1, false
	for _, k := range known {
		switch d := distance(name, k); {
		case d < least:
			best, least, tied = k, d, false
		case d == least && k != best:
			tied = true
		}
	}
	if tied {
		return ""
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
