// Package faults is the fault campaign: real daemons with real children on a real ensemble of three servers, under seeded
// faults, and a ledger that the children write, in which S1 can be read. It holds tests only.
package faults
