//go:build brokenpromises

package failsafe

const kept = false
