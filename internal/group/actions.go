package group

import (
	"context"
	"errors"
	"runtime"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/transition"
	"zkelectd/internal/transition/failsafe"
	"zkelectd/internal/zk"
)

// perform performs an action of the machine, unless this member was abandoned while its loop was stuck: the guard does
// what is left to do then, and another instance may lead.
func (m *Member) perform(a transition.Action) {
	if m.background.ctx.Err() == nil {
		m.act(a)
	}
}

// act blocks no longer than it takes to start a process.
func (m *Member) act(a transition.Action) {
	switch a := a.(type) {
	case transition.Send:
		m.send(a)
	case transition.Renew:
		m.renew(a)
	case transition.Lease:
		m.limit.set(a.Deadline)
	case transition.AskToStart:
		m.askToStart(a)
	case transition.FenceNode:
		m.fenceNode(a)
	case transition.RunPreStart:
		m.uncleaned.Store(a.Term)
		m.setPendingHooks(a.Term)
		m.pendingEvents = append(m.pendingEvents, m.worker.PreStart(a.Term)...)
	case transition.RunPostStop:
		m.pendingEvents = append(m.pendingEvents, m.worker.PostStop(m.background.ctx, a.Term)...)
	case transition.StartChild:
		if a.Term == m.started {
			m.group.opt.Counters.Update(func(t *status.Totals) { t.Restarts++ })
		}
		m.started = a.Term
		m.pendingEvents = append(m.pendingEvents, m.worker.Start(a.Term)...)
	case transition.StopTask:
		m.stopFencing()
		m.worker.Stop(a.Grace)
	case transition.KillTask:
		m.stopFencing()
		m.worker.Kill()
	case transition.PublishLeaving:
		m.publishLeaving(a.Reason)
	case transition.Entrust:
		m.session.CloseWith(a.Ops...)
		m.guard.SetRelease(cluster.EncodeTx(a.Ops))
	case transition.Reread:
		m.rereads = true
	case transition.End:
		m.beginEnd(a.Reason)
	case transition.EndSession:
		if m.session.Connected() { // else ZooKeeper is away, and the session may survive that
			m.session.Fail(errors.New(a.Reason))
		}
	case transition.Announce:
		m.group.announce(a)
		if a.Phase == transition.Standby {
			m.uncleaned.Store(0)
			m.worker.ClearPendingHooks()
		}
	case transition.SendRound:
		m.sendRound(a)
	case transition.Remember:
		m.remember(a)
	case transition.CurrentGone:
		m.opt.Failsafe.Agent.Gone(failsafe.Group(m.group.opt.Paths), a.Term)
	case transition.Note:
		m.group.log.Warn(a.Text)
	}
}

// send sends a transaction. RELEASE lets others elect by the records of the nodes. After an outage, in which promoted
// work was killed, this node's goes before it.
func (m *Member) send(a transition.Send) {
	first := m.instance.members[0] // which keeps the record
	if a.Lapsed && m.opt.Standby != nil && m.session.Connected() && first.background.runInLoop(func() {
		first.node.publishNow(func(error) {
			m.inbox.post(func() {
				a.Deadline = max(a.Deadline, boottime.Now()+m.budget.Lease) // a late RELEASE does no harm
				m.sendNow(a)
			})
		})
	}) {
		return
	}
	m.sendNow(a)
}

func (m *Member) sendNow(a transition.Send) {
	timeout := max(0, a.Deadline-boottime.Now())
	m.rereads = false // its outcome follows, and then it is read again
	m.background.spawn(func() {
		ctx, cancel := context.WithTimeout(m.background.ctx, timeout)
		defer cancel()
		began := boottime.Now()
		results, err := m.session.Do(zk.WithPriority(ctx, zk.PriorityUrgent), a.Ops...)
		m.observeWrite(boottime.Now()-began, err)
		m.report(transition.TxDone{Tx: a.Tx, Results: results, Err: err})
	})
	runtime.Gosched() // to that: the rest of this step does not delay it
}

func (m *Member) observeWrite(took time.Duration, err error) {
	if err == nil {
		m.group.opt.Counters.Update(func(t *status.Totals) { t.Writes.Observe(took) })
	}
}

// report sends an event to the loop.
func (m *Member) report(ev transition.Event) { m.inbox.post(func() { m.step(ev) }) }
