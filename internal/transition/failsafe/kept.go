//go:build !brokenpromises

package failsafe

// kept is whether this daemon keeps its promises, which S1 depends on. A test build breaks them to show that the fault
// campaign notices that.
const kept = true
