// Package arch has tests of the architecture: which packages may import which others, and that SECURITY.md and the licenses are
// complete.
package arch
