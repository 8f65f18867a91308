// Package zkstore is the only way to ZooKeeper: single-use sessions on the wire, and on top of them the reading of
// snapshots and the registration of a daemon (docs/protocol.md, Session).
package zkstore
