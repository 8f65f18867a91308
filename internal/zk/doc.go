// Package zk connects to ZooKeeper: single-use sessions, which several groups may share, their identities and ACLs
// (docs/protocol.md, Session). No other package uses the ZooKeeper client library.
package zk
