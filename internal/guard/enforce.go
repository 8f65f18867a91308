//go:build !noenforcement

package guard

// enforced is what S1 rests on. Only a test build, which shows that the fault campaign would notice, is without.
const enforced = true
