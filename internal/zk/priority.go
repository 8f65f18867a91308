package zk

import "context"

// Priority is the order in which requests go to the ZooKeeper client library, which itself is first come, first served.
type Priority int

// The priorities. The zero value is that of everything else.
const (
	PriorityNormal Priority = iota
	// PriorityRecovery is for ELECT and REVOKE, and for the reads of groups without a leader and of those that this
	// host leads.
	PriorityRecovery
	// PriorityUrgent is for RENEW, ACQUIRE, READY, RELEASE and LEAVE. Such a request never waits for others.
	PriorityUrgent
)

type priorityKey struct{}

// WithPriority returns a context for requests with priority p.
func WithPriority(ctx context.Context, p Priority) context.Context {
	return context.WithValue(ctx, priorityKey{}, p)
}

// PriorityOf returns the priority that [WithPriority] has set.
func PriorityOf(ctx context.Context) Priority {
	p, _ := ctx.Value(priorityKey{}).(Priority)
	return p
}
