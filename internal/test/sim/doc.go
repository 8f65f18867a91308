// Package sim tries to break the promises of docs/protocol.md. The real core of several daemons (elector, watchdog,
// transition, policy) runs on the in-memory model of ZooKeeper, under all kinds of policies and operators' requests,
// with a virtual clock and one seeded scheduler that chooses every delay, loss, crash and act of tampering. It has only
// tests.
package sim
