// Package cluster defines the znodes and their records, the snapshot of a group, and the transactions that change it
// (docs/protocol.md). It is pure: it uses no network, no process and no clock.
package cluster
