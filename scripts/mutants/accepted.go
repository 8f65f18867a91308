package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

// accepted maps the key of each survivor that need not be killed to the reason.
type accepted map[string]string

// readAccepted reads the list of accepted survivors: a line with the key of a mutant, then an indented line with the
// reason. Several keys in a row share the reason below them. Empty lines and lines that begin with # are ignored.
func readAccepted(name string) (accepted, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	list := make(accepted)
	var keys []string
	s := bufio.NewScanner(f)
	for n := 1; s.Scan(); n++ {
		line := s.Text()
		reason := strings.TrimSpace(line)
		switch {
		case reason == "", strings.HasPrefix(line, "#"):
		case line[0] != ' ' && line[0] != '\t':
			if _, twice := list[line]; twice {
				return nil, fmt.Errorf("%s:%d: listed twice: %s", name, n, line)
			}
			list[line] = ""
			keys = append(keys, line)
		case len(keys) == 0:
			return nil, fmt.Errorf("%s:%d: a reason without a mutant above it", name, n)
		default:
			for _, k := range keys {
				list[k] = reason
			}
			keys = nil
		}
	}
	if len(keys) > 0 {
		return nil, fmt.Errorf("%s: no reason is given for %s", name, keys[0])
	}
	return list, s.Err()
}

// stale returns the entries for the files of packages that no mutant has: the code has changed.
func (a accepted) stale(files map[string]bool, all []mutant) []string {
	known := make(map[string]bool)
	for _, m := range all {
		known[m.key()] = true
	}
	var out []string
	for k := range a {
		if file, _, _ := strings.Cut(k, ": "); files[file] && !known[k] {
			out = append(out, k)
		}
	}
	return out
}
