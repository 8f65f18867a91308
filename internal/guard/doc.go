// Package guard provides the small parent process that enforces S1 (never two leaders; see docs/protocol.md, Leading,
// and the lease) even if the daemon crashes or hangs. The guard starts the leader-only work of many groups through
// keeper processes, kills each work when its lease ends, and closes the ZooKeeper session once the daemon and all works
// are dead, so that a successor does not have to wait for the session timeout.
//
// [Run] is the guard, [MaybeRunKeeper] the keeper, [Client] the daemon's end of the socket to the guard, and
// [Leadership] what one instance of a group may run.
//
// Deadlines travel on the board, memory that the three share. A process that may have to end work has a [Container].
//
// The name of a file says in which process it runs:
//   - client*.go in the daemon, guard*.go in the guard, keeper*.go in the keeper
//   - board.go, frame.go, outbox.go and socket.go in all three, between which they carry deadlines and messages
//   - cgroup.go, containment.go, process.go and unit.go in whichever must end work: also in a daemon that has lost its
//     guard, in the next one, and in 'zkelectd release'
//   - session.go and session_lock.go in guard and daemon, with session_dead.go in the next start and in 'zkelectd
//     release'
//   - forker.go in guard and keeper, start_config.go in guard and daemon
//
// Code on the way to a kill must not allocate, block, or open files: memory, the disk and file descriptors may be
// exhausted at that moment. What a kill needs is opened when the work starts; protect locks memory and starts threads
// beforehand.
package guard
