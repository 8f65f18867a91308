// Package cluster is the vocabulary of zkelectd: the znodes and their records, the snapshot of a cluster, and the
// transactions that change it (docs/protocol.md). It is pure: it reaches no network, no process and no clock.
package cluster
