// Package sim tries to break the promises of docs/protocol.md: the real core of several daemons (elector, watchdog,
// transition, policy) runs over the in-memory model of ZooKeeper, under policies of every kind and the requests of operators,
// with a virtual clock and one seeded scheduler that chooses every delay, loss, crash and meddling. It holds tests only.
package sim
