// Package corejson encodes values of the pure core as JSON, with their unexported fields, and decodes them again: what the core was
// given, what it returned, and what it remembers. A field that is added to the core is included without further code. Zero values,
// functions and channels are left out. The encoding is canonical: equal values have equal text.
package corejson
