// Package guard is the small parent process that keeps S1 whatever becomes of the daemon (docs/protocol.md, Leading, and
// the lease). The guard owns the leader-only work, kills it at the lease's end, and, once the daemon and the work are
// dead, has the session closed, so that the successor need not wait for its timeout. [Run] is the guard, [Client] the
// daemon's side of the socket between them.
package guard
