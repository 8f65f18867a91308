// Package arch has tests of the architecture: which packages may import which others, that SECURITY.md and the licenses
// are complete, and that what the packages and the code refer to in the documents exists.
package arch
