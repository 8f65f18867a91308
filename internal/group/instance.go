package group

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/group/electing"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/sys/boottime"
)

// MemberSetup is what a [Member] needs for one leadership: that of a slot, or the only one of a group without slots.
type MemberSetup struct {
	Group   *Group
	Session Session
	Guard   Guard
	Options InstanceOptions
}

// Instance is one registration of this host in a group: one incarnation and one record of the node, which the members
// of all its leaderships share. A group without slots has one member. The first member keeps the record of the node up
// to date.
type Instance struct {
	id      string // random, in the record of the node
	self    cluster.Incarnation
	budget  cluster.Budget
	members []*Member
	queued  atomic.Int32 // how many takeovers wait for room on the host
	// slots is the record that the instance was registered for. known and room are nil for a group without slots.
	slots   cluster.Stored[cluster.Slots]
	known   *electing.Slots
	room    *room
	ending  chan struct{}
	leaving atomic.Pointer[announcement] // nil until the instance announces that it is about to end
	// failsafe is nil until this node can be asked for promises.
	failsafe atomic.Pointer[cluster.FailsafeNode]
	// answer is that to the last roll call; nil before the first.
	answer atomic.Pointer[cluster.Answer]
	// registered is the record of the node that was registered.
	registered cluster.Node

	mu      sync.Mutex
	stopped bool // Stop or End was called
	ends    bool // ending is closed
}

func newInstance(ctx context.Context, r Registration, registered cluster.Node, self cluster.Incarnation) *Instance {
	i := &Instance{id: registered.Instance, registered: registered, self: self, budget: r.Budget, slots: r.Slots,
		ending: make(chan struct{})}
	if n := len(r.Members); r.Slots.Record.Count > 0 {
		i.known, i.room = electing.NewSlots(n, i.wake), &room{perNode: r.Slots.Record.PerNode, wake: i.wake,
			live: make([]bool, n)}
	}
	for n, l := range r.Members {
		i.members = append(i.members, newMember(ctx, i, n, l))
	}
	return i
}

// wake makes the n-th member look again at what the members share. It does not block.
func (i *Instance) wake(n int) { i.members[n].group.notices.add(sharedChanged) }

// Members returns the members of the leaderships, in their order.
func (i *Instance) Members() []*Member { return i.members }

// Incarnation returns the name of the incarnation.
func (i *Instance) Incarnation() string { return i.self.Name }

// Ending returns a channel that is closed when the end of the instance has begun: it was stopped or abandoned, or one
// of its members ends. It ends for good when Run returns, which takes as long as its work.
func (i *Instance) Ending() <-chan struct{} { return i.ending }

// Budget returns the timing of the leaderships.
func (i *Instance) Budget() cluster.Budget { return i.budget }

func (i *Instance) beginEnd() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.ends {
		i.ends = true
		close(i.ending)
	}
}

// Stop makes all members release their leaderships and end, as a person asks for. A second call kills the work at once.
// It is safe for concurrent use.
func (i *Instance) Stop(reason string) { i.stop(reason, (*Member).Stop) }

// End is Stop for an instance that the host ends by itself: a later Stop is then the first one. It is safe for
// concurrent use.
func (i *Instance) End(reason string) { i.stop(reason, (*Member).end) }

func (i *Instance) stop(reason string, stop func(*Member, string)) {
	i.mu.Lock()
	i.stopped = true
	i.mu.Unlock()
	i.beginEnd()
	for _, m := range i.members {
		stop(m, reason)
	}
}

// stopRest stops the other members after one has ended, unless Stop or End does: the members end together.
func (i *Instance) stopRest(reason string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stopped {
		return
	}
	for _, m := range i.members {
		m.end(reason)
	}
}

// AliveUntil returns the time, on CLOCK_BOOTTIME, by which all event loops have promised to show again that they are
// alive; 0 before Run. It is safe for concurrent use.
func (i *Instance) AliveUntil() time.Duration {
	var until time.Duration
	for _, m := range i.members {
		if at := m.shown.Load(); at != 0 && !m.ended.Load() {
			until = cluster.Earliest(until, time.Duration(at)+i.budget.Session)
		}
	}
	return until
}

// Run runs the event loops of all members. It returns when all work is dead and all leaderships are released. The error
// is the first reason for the end. It is a [PanicError] if a loop has panicked: then work may still run, and the
// instance must be abandoned.
func (i *Instance) Run() error {
	err := i.run()
	var panicked *PanicError
	if !errors.As(err, &panicked) {
		i.awaitSuccessors()
	}
	return err
}

func (i *Instance) run() error {
	ends := make(chan error, len(i.members))
	for _, m := range i.members {
		go func() { ends <- m.Run() }() // ends with the loop, or when a stuck one returns
	}
	var first error
	for range i.members {
		err := <-ends
		if _, ok := errors.AsType[*PanicError](err); ok {
			return err
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// Abandon ends the goroutines of an instance with a loop that is stuck or has panicked, and kills a post_stop hook that
// it runs. Then its access to the session and to the guard must be revoked: the loop may go on at any time, and what it
// has begun may still use them. It is safe for concurrent use.
func (i *Instance) Abandon() {
	i.beginEnd()
	for _, m := range i.members {
		m.background.cancel()
	}
}

// CutLease calls [Member.CutLease] for all members.
func (i *Instance) CutLease(deadline time.Duration, reason string) {
	for _, m := range i.members {
		m.CutLease(deadline, reason)
	}
}

// Apply applies new settings in all loops, and publishes the node's record. If auditACLs is set, the ACLs of the tree
// are checked again. It waits for the loops, unless they end. It must be called while Run runs.
func (i *Instance) Apply(next Settings, auditACLs bool) {
	for n, m := range i.members {
		m.Apply(next, auditACLs && n == 0)
	}
}

// record returns the node's record.
func (i *Instance) record() cluster.Node {
	rec := i.members[0].group.record(i.members[0].session, i.id)
	rec.Queued, rec.Failsafe = i.queued.Load() > 0, i.failsafe.Load()
	rec.Answer = i.answer.Load()
	if a := i.leaving.Load(); a != nil {
		rec.Leaving = a.reason
	}
	for _, m := range i.members {
		if why := *m.unwritten.Load(); why != "" {
			rec.Problems = append([]string{why}, rec.Problems...)
			break // the others fail for the same reason
		}
	}
	return rec
}

// A loop that has nothing to do has no timers: the host asks it from time to time to show that it is alive.

// Beat makes each loop that has not updated its view lately do so, which shows that it is alive. It is called
// every [status.ViewInterval]. It is safe for concurrent use, and does not block.
func (i *Instance) Beat() {
	now := boottime.Now()
	for _, m := range i.members {
		if now-m.group.view.Load().UpdatedAt < status.ViewInterval(i.budget.Session)/4 {
			continue // such as one that renews a lease
		}
		m.group.notices.add(beatRequested)
	}
}
