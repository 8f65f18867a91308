package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Error is one error in a configuration.
type Error struct {
	// Source is file:line, an environment variable or a flag.
	Source string
	// Key is the setting; empty if the error does not concern a single setting.
	Key    string
	Reason string
}

func (e Error) Error() string {
	parts := make([]string, 0, 3)
	for _, p := range []string{e.Source, e.Key, e.Reason} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, ": ")
}

// Errors are all errors in a configuration. Its text has one line for each.
type Errors []Error

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

func (e *Errors) add(source, key, format string, args ...any) {
	*e = append(*e, Error{Source: source, Key: key, Reason: fmt.Sprintf(format, args...)})
}

// sorted sorts the errors in the order of the reference; those without a setting come first.
func (e Errors) sorted() Errors {
	keys := Keys()
	place := func(e Error) int {
		name := strings.TrimPrefix(e.Key, defaultsSection+".")
		return slices.IndexFunc(keys, func(k Key) bool { return k.Name == name })
	}
	slices.SortStableFunc(e, func(a, b Error) int {
		return cmp.Or(cmp.Compare(place(a), place(b)), strings.Compare(a.Reason, b.Reason))
	})
	return e
}
