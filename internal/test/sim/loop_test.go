package sim

import (
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/transition"
	"zkelectd/internal/transition/failsafe"
	"zkelectd/internal/watchdog"
)

// loop is what an instance has for one leadership. It stands in for group.Member, with the same core under it.
type loop struct {
	m       *member
	in      *instance
	s       *session
	number  int // in its session
	self    cluster.Incarnation
	machine *transition.Machine
	reader  *reader
	elector electorRole
	call    callRole
	deputy  *watchdog.Deputy

	followed    string        // the lease znode that it follows
	deputyWake  time.Duration // when to observe again
	acting      bool
	reconnects  int
	silent      map[string]string
	silentLease cluster.LeaseZnodeSeen

	inline  []transition.Event
	timer   time.Duration // the next tick, on the host's clock
	snap    cluster.Snapshot
	newest  cluster.Snapshot // not handled yet
	offered bool
	gated   bool               // snap is held back from the machine
	waiting bool               // it wants to write as the elector
	live    bool               // the work is running, or may begin
	looking bool               // it is about to look again
	ending  bool               // it is to end because the resource has another size
	leaving time.Duration      // when it began to wait for its successor, on the host's clock; 0 if it did not
	byRound bool               // the event is a reply to a round
	round   []failsafe.Request // the last one
	alone   bool               // its elector has found no successor
	done    bool               // its machine has ended
	over    bool               // closed, or about to be
	early   bool               // the child was reported dead before it was
	lent    bool               // an application has, or may have, a lease
	asked   bool               // an application is about to ask for one
	told    int64              // the last term in which it has been told to stop, and the machine will learn when it has
	hints   cluster.Hints

	hung    bool     // it handles nothing
	pending []func() // what it has yet to handle
}

// hint tells the loop that a watch has fired.
func (l *loop) hint(path string) {
	l.hints.Add(path)
	l.wake()
}

// hintAll tells the loop that watches may have been lost.
func (l *loop) hintAll() {
	l.hints.All = true
	l.wake()
}

func (l *loop) wake() {
	l.reader.woken = true
	l.reader.notify()
}

// process makes the loop handle something, unless it hangs.
func (l *loop) process(do func()) {
	l.m.process(l.s, func() {
		if l.hung {
			l.pending = append(l.pending, do)
			return
		}
		do()
	})
}

// offer puts a snapshot to where the loop takes the newest one from.
func (l *loop) offer(snap cluster.Snapshot) {
	l.newest = snap
	if l.offered {
		return
	}
	l.offered = true
	l.soon(func() {
		l.offered, l.snap = false, l.withOwnEnd(l.newest)
		l.answerCall()
		l.saw()
	})
}

// saw handles the newest snapshot.
func (l *loop) saw() {
	if l.m.r.slotted {
		l.changed()
		if l.replaced() && !l.ending {
			l.ending = true
			l.step(l.quitEvent())
		}
	}
	l.see()
}

// soon makes the loop do something when it gets to it. Events from different sources may overtake each other.
func (l *loop) soon(do func()) {
	l.m.w.after(l.m.w.between(0, l.m.w.traits.turn), func() { l.process(do) })
}

func (l *loop) close() {
	l.over = l.over || !l.in.abandoned
	l.follow("")
	l.reader.stop()
}

// ended handles the end of the loop's machine: the others must end as well.
func (l *loop) ended() {
	if l.in.over() {
		for _, other := range l.in.loops {
			other.over = true
		}
		l.in.ended()
		return
	}
	for _, other := range l.in.loops {
		if !other.done {
			other.quit()
		}
	}
}

// lingers reports whether the loop goes on after its machine has ended, as the elector of its slot.
func (l *loop) lingers() bool {
	return l.m.r.slotted && l.s.ended == "" && !l.snap.SelfLost && !l.in.over()
}

func (l *loop) step(ev transition.Event) {
	if l.over {
		return
	}
	l.inline = append(l.inline, ev)
	for len(l.inline) > 0 {
		next := l.inline[0]
		l.inline = l.inline[1:]
		for _, a := range l.m.w.broken.steps(l, next) {
			l.perform(a)
		}
	}
	l.lend()
	l.m.w.broken.startsEarly(l)
	l.checkLeaving()
	l.checkLive()
	if l.machine.Phase() == transition.Ended {
		if !l.done {
			l.done = true
			l.m.w.after(0, func() { l.process(l.ended) })
		}
		if l.over = !l.lingers(); l.over {
			return
		}
	}
	l.alone = false
	l.observe()
	wake := cluster.Earliest(l.evaluate(), l.machine.Wake(), l.deputyWake)
	if l.alone && l.machine.AwaitsSuccessor() {
		l.step(transition.NoSuccessor{})
		return
	}
	l.wakeAt(wake)
}

// wakeAt schedules the next tick, unless an earlier one is scheduled, which will schedule again.
func (l *loop) wakeAt(at time.Duration) {
	if at == 0 || (l.timer != 0 && l.timer <= at) {
		return
	}
	l.timer = at
	l.m.w.at(l.m.when(at), func() {
		l.process(func() {
			if l.timer == at {
				l.timer = 0
				l.step(transition.Tick{})
			}
		})
	})
}

func (l *loop) perform(a transition.Action) {
	m := l.m
	switch a := a.(type) {
	case transition.Send:
		l.send(a)
	case transition.Renew:
		l.renew(a)
	case transition.Lease:
		if l.in.refused() {
			return
		}
		if deadline := a.Deadline; deadline != 0 {
			l.extendedByRound(deadline)
			m.extend(cluster.Earliest(deadline, l.s.cut))
			m.w.broken.extends(m)
		} else {
			m.extend(0)
		}
	case transition.FenceNode:
		l.fenceNode(a)
	case transition.RunPreStart:
		l.preStart(a.Term)
	case transition.RunPostStop:
		l.postStop()
	case transition.StartChild:
		l.startChild(a.Term)
	case transition.StopTask:
		l.stopTask(a.Grace)
	case transition.KillTask:
		if !l.in.refused() {
			m.endFencing()
			if l.s.ended != "" && m.w.broken.unleased(m.work, outlivesSession) {
				m.workOver("outlives its session")
			}
			m.kill()
		}
	case transition.PublishLeaving:
		l.publishLeaving(a.Reason)
	case transition.SendRound:
		l.sendRound(a)
	case transition.Remember:
		l.remember(a.Term)
	case transition.CurrentGone:
		l.currentGone(a.Term)
	case transition.Entrust:
		if !l.in.refused() {
			l.s.final[m.g.number] = a.Ops
		}
	case transition.End:
		l.in.beginEnd()
	case transition.Reread:
		l.reader.reread()
	case transition.EndSession:
		if l.s.up { // else ZooKeeper is away, and the session may survive that
			m.w.faults["session given up"]++
			l.s.end(a.Reason)
		}
	case transition.Announce:
		m.w.log("%s: %s in term %d: %s", m.name, a.Phase, a.Term, a.Reason)
	case transition.Note:
		m.w.log("%s: %s", m.name, a.Text)
	}
}

// until returns done for the first reply of several. Without one until a deadline, the outcome is unknown.
func (l *loop) until(deadline time.Duration, done func(reply)) func(reply) {
	over := false
	once := func(rep reply) {
		if !over {
			over = true
			done(rep)
		}
	}
	l.m.w.at(l.m.when(deadline), func() { l.process(func() { once(reply{err: cluster.ErrUnknown}) }) })
	return once
}

// send sends a transaction; without a reply by its deadline its outcome is unknown.
func (l *loop) send(a transition.Send) {
	m := l.m
	report := func(rep reply) {
		l.soon(func() { l.step(transition.TxDone{Tx: a.Tx, Results: rep.results, Err: rep.err}) })
	}
	if m.clock() >= a.Deadline {
		report(reply{err: cluster.ErrNotSent})
		return
	}
	report = l.until(a.Deadline, report)
	if a.Tx == transition.TxAcquire {
		if l.snap.Current.Exists {
			m.w.faults["ACQUIRE before a read"]++
		}
		l.in.interrupt()
	}
	if a.Tx == transition.TxValue {
		m.w.faults["value written"]++
	}
	if a.Tx == transition.TxSetMembers {
		m.w.faultDuringSetMembers(m)
	}
	l.s.send(&request{from: l.in, ops: m.w.broken.sends(l, a), done: report})
}
