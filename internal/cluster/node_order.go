package cluster

import "strings"

// CompareNodes compares two node ids in their natural order, which people expect: a number in an id counts as a number,
// so that n2 comes before n10. Everything else is compared by bytes. It is a total order, and the same on every host.
func CompareNodes(a, b string) int {
	x, y := a, b
	for x != "" && y != "" {
		if !isDigit(x[0]) || !isDigit(y[0]) {
			if x[0] != y[0] {
				return strings.Compare(x, y)
			}
			x, y = x[1:], y[1:]
			continue
		}
		var m, n string
		m, x = cutNumber(x)
		n, y = cutNumber(y)
		if len(m) != len(n) {
			return len(m) - len(n)
		}
		if m != n {
			return strings.Compare(m, n)
		}
	}
	if x != "" || y != "" {
		return len(x) - len(y)
	}
	return strings.Compare(a, b) // n1 and n01
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// cutNumber returns the number that s begins with, without leading zeros, and the rest.
func cutNumber(s string) (number, rest string) {
	n := 0
	for n < len(s) && isDigit(s[n]) {
		n++
	}
	return strings.TrimLeft(s[:n], "0"), s[n:]
}
