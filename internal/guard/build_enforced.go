//go:build !noenforcement

package guard

// enforced switches on the enforcement of leases, which S1 depends on. A test build turns it off to show that the fault
// campaign detects its absence.
const enforced = true
