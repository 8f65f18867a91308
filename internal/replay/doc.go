// Package replay reads the recordings of a fleet and checks them: whether the core, given the same input, returns the same with this
// binary, whether two works of a group ran at once (S1), whether only elected incarnations held leadership (S2), and whether terms
// grew. What a recording does not show is reported, not assumed.
package replay
