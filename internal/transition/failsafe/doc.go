// Package failsafe holds the rules by which a leader works on without ZooKeeper (docs/protocol.md, Failsafe):
// [Promises] are what a member has promised to leaders, [Rounds] how a leader asks for promises, and [State] what a
// member must not forget. It is pure: it sends and stores nothing, and reads no clock.
package failsafe
