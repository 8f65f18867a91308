//go:build race

package testhelper

// Race reports whether this program has the race detector.
const Race = true
