package group

import (
	"cmp"
	"slices"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/transition"
	"zkelectd/internal/transition/failsafe"
)

// Failsafe is an instance's part in failsafe mode (docs/protocol.md, Failsafe).
type Failsafe struct {
	Agent FailsafeAgent
	// Node is what this node publishes once it can answer leaders, and Start is random for each instance. Without an
	// address the instance only agrees to successors, see [transition.Failsafe].
	Node  cluster.FailsafeNode
	Start uint64
}

// FailsafeAgent asks the other daemons for promises, and keeps what this one has promised; *agent.Agent implements it.
type FailsafeAgent interface {
	// Send asks members in a round. done gets a reply to each message, in another goroutine.
	Send(p cluster.Paths, messages []failsafe.Message, limit time.Duration, done func(failsafe.Reply))
	// Veto makes the daemon refuse every later promise for a term of a group. It returns when that is stored. While the
	// daemon is bound, it returns until when instead, and changes nothing.
	Veto(group string, term int64) (bound time.Duration, err error)
	// Gone notes that current of a term was seen to be gone, and Suspect that ZooKeeper may be unreachable.
	Gone(group string, term int64)
	Suspect()
}

// machine returns the options of the machine; nil if the instance takes no part.
func (f *Failsafe) machine() *transition.Failsafe {
	if f == nil {
		return nil
	}
	return &transition.Failsafe{Key: f.Node.Key, Start: f.Start, Passive: !f.Node.CanPromise()}
}

// failsafeActivity is what the leader on this host does in failsafe mode.
type failsafeActivity struct {
	since time.Duration // since when the lease lasts by what members have promised; 0 if it does not
	asks  []string      // the nodes that must promise before the lease of the leader can be extended
}

// FailsafeActivity returns since when, on CLOCK_BOOTTIME, this host leads the group by what the other members have
// promised, 0 if it does not; and the nodes that would have to promise that, none if it does not lead, or nothing can
// extend its lease. It is safe for concurrent use.
func (g *Group) FailsafeActivity() (since time.Duration, asks []string) {
	a := g.failsafe.Load()
	return a.since, a.asks
}

// sendRound asks members for promises. A reply after a third of the lease comes too late to be of use.
func (m *Member) sendRound(a transition.SendRound) {
	f := m.opt.Failsafe
	f.Agent.Suspect()
	m.group.opt.Counters.Update(func(t *status.Totals) { t.Failsafe.Rounds++ })
	f.Agent.Send(m.group.opt.Paths, a.Messages, m.budget.Lease/3,
		func(r failsafe.Reply) { m.report(transition.RoundReply{Reply: r}) })
}

// remember refuses later promises in another goroutine, as that writes to a disk.
func (m *Member) remember(a transition.Remember) {
	name := failsafe.Group(m.group.opt.Paths)
	m.background.spawn(func() {
		bound, err := m.opt.Failsafe.Agent.Veto(name, a.Term)
		m.report(transition.Remembered{Term: a.Term, Bound: bound, Err: err})
	})
}

// beginFailsafe publishes that this node can be asked for promises: leaders count on it from then on, so it must not
// come earlier.
func (m *Member) beginFailsafe() {
	m.group.failsafe.Store(new(failsafeActivity))
	if f := m.opt.Failsafe; f != nil && m.node != nil {
		m.instance.failsafe.Store(&f.Node)
		m.publishNode()
	}
}

// noteFailsafe counts what an event of failsafe mode has led to, and logs when the mode begins to matter and when it
// ends.
func (m *Member) noteFailsafe(ev transition.Event, actions []transition.Action) {
	if m.opt.Failsafe == nil {
		return
	}
	if r, ok := ev.(transition.RoundReply); ok {
		extended := slices.ContainsFunc(actions, func(a transition.Action) bool {
			_, is := a.(transition.Lease)
			return is
		})
		m.group.opt.Counters.Update(func(t *status.Totals) { t.Failsafe.Count(string(r.Reply.Reason), extended) })
	}
	asks := m.machine.Promisers()
	nodes := make([]string, len(asks))
	for i, x := range asks {
		nodes[i] = x.ID
	}
	before, _ := m.group.FailsafeActivity()
	now := time.Duration(0)
	if m.machine.Extended() {
		now = cmp.Or(before, boottime.Now())
	}
	m.group.failsafe.Store(&failsafeActivity{now, nodes})
	switch log := m.group.log.With("term", m.machine.Term()); {
	case before == 0 && now != 0:
		log.Warn("ZooKeeper does not answer: the work goes on, because all other members have promised to let "+
			"nobody take over", "members", nodes)
	case before != 0 && now == 0 && m.machine.Phase() == transition.Leading:
		log.Info("ZooKeeper answers again: the lease is one by ZooKeeper", "after",
			(boottime.Now() - before).Round(time.Millisecond))
	}
}
