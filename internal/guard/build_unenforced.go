//go:build noenforcement

package guard

const enforced = false
