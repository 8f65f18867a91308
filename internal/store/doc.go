// Package store keeps a group in ZooKeeper: snapshots of it, the registration of a daemon, its records, and its tree
// (docs/protocol.md, Znodes).
package store
