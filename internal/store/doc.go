// Package store connects to ZooKeeper. It provides single-use sessions and, on top of them, snapshots of a group, the
// registration of a daemon, and the ACLs of a group's znodes (docs/protocol.md, Session). No other package uses the
// ZooKeeper client library.
package store
