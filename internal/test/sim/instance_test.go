package sim

import (
	"context"
	"errors"
	"slices"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
	"zkelectd/internal/store"
	"zkelectd/internal/transition"
	"zkelectd/internal/watchdog"
)

// instance is one registration of a host in a resource, which the loops of its leaderships share.
type instance struct {
	m        *resident
	s        *session
	number   int // in its session
	self     cluster.Incarnation
	loops    []*loop // none until it is registered
	lastTerm int64   // the highest term known when it registered
	slots

	failed    bool          // it never registered, and is over
	abandoned bool          // the host has given it up: nothing that it does counts
	ends      bool          // its end has begun
	undone    bool          // it was abandoned, its work is dead, and its post_stop has run
	leaving   bool          // LEAVE is under way
	announced *announcement // nil until it announces that it is about to end
	answer    *cluster.Answer
	measured  measurement // for it
	stops     []func()    // end its coroutines
	closed    bool
}

// join begins an instance on the host's session, unless the group is removed from the host.
func (m *resident) join() {
	if m.removed || m.instance != nil || m.session == nil || m.ending() {
		return
	}
	s := m.session
	s.instances++
	m.instance = &instance{m: m, s: s, number: s.instances}
	for _, x := range m.members {
		x.lease = 0
	}
	m.instance.register()
}

// drop forgets the instance.
func (m *resident) drop() {
	m.instance = nil
	if m.removed {
		m.standby.stop()
	}
	m.registerPromises("")
	for _, x := range m.members {
		x.loop = nil
	}
}

// register registers the instance as soon as it can.
func (in *instance) register() {
	in.run(func(c *conn) {
		m := in.m
		paths := m.r.groups[0].paths
		for _, one := range m.members {
			in.lastTerm = max(in.lastTerm, one.memory.Term)
		}
		for {
			if m.r.slotted && !in.readSlots(c) {
				if !c.sleep(m.w.between(100*time.Millisecond, 300*time.Millisecond)) {
					return
				}
				continue
			}
			rec := m.record()
			in.interrupt()
			self, err := store.Register(context.Background(), c, paths, rec, m.r.groups[0].paths.CheckSlots(in.known)...)
			var (
				taken *store.TakenError
				older *store.OlderInstanceError
			)
			switch {
			case in.failed || errors.Is(err, cluster.ErrSessionEnded), errors.Is(err, errStopped):
				return
			case err == nil:
				in.begin(self)
				return
			case m.r.slotted && errors.Is(err, cluster.ErrBadVersion): // the record has changed
				continue
			case errors.Is(err, cluster.ErrNoNode):
				_ = store.EnsureTree(context.Background(), c, paths) // otherwise REGISTER fails again
				continue
			case errors.As(err, &taken), errors.Is(err, cluster.ErrNotSent):
			default: // it may have registered nevertheless: it leaves
				if errors.As(err, &older) {
					m.w.faults["REGISTER met an older instance"]++
				}
				m.w.log("%s: cannot register: %v", m.name, err)
				in.failed = true
				in.ended()
				return
			}
			if !c.sleep(m.w.between(100*time.Millisecond, 300*time.Millisecond)) {
				return
			}
		}
	})
}

// begin begins the loops.
func (in *instance) begin(self cluster.Incarnation) {
	in.self = self
	in.m.w.log("%s: registered as %s in session %d", in.m.name, self.Name, in.s.id)
	members := in.m.members
	if in.m.r.slotted {
		members = members[:in.known.Record.Count]
		in.m.w.log("%s: %s in epoch %d", in.m.name, in.known.Record.SlotSize, in.known.Record.Epoch)
	}
	for _, m := range members {
		m.g.check.registers(self, in.id())
		in.loops = append(in.loops, in.newLoop(m))
	}
	in.m.registerPromises(self.Name)
	if s := in.m.standby; s != nil {
		s.begin()
		s.publish()
	}
	for _, l := range in.loops {
		l.reader.resume()
	}
	if in.m.leaving {
		in.quit()
	}
}

func (in *instance) newLoop(m *member) *loop {
	t := &m.w.traits
	in.s.loops++
	l := &loop{m: m, in: in, s: in.s, number: in.s.loops, self: in.self}
	m.loop = l
	l.machine = transition.New(transition.Options{
		Paths: m.g.paths, Self: in.self, Site: m.site, Budget: m.budget, LeaseZnode: in.s.leases.znode, Epoch: in.known.Record.Epoch, LastTerm: m.w.broken.remembers(m.memory.Term),
		Wall: m.w.wall, Fencing: m.host.fencing(), Failsafe: in.failsafe(),
		RestartMax: 1, RestartWindow: time.Minute, RestartBackoff: 200 * time.Millisecond,
	})
	l.elector = electorRole{
		core:     elector.New(elector.Options{Exclusion: t.exclusion, ExclusionMax: max(t.exclusion, time.Hour), LastKnown: m.memory, Epoch: in.known.Record.Epoch}),
		watchdog: watchdog.New(watchdog.Options{Takeover: t.takeover, StrikeResetAfter: 5 * time.Minute, LeaseWait: m.budget.LeaseWait, Patience: m.patience()}),
		version:  -2,
	}
	l.deputy = watchdog.NewDeputy(in.self.Name, watchdog.SilenceOptions{Wait: m.budget.LeaseWait, Renew: m.budget.Renew, Session: m.timeout}, in.s.handshakes)
	l.reader = newReader(l, in.self, l.offer)
	return l
}

// id returns the instance's id, which is unique.
func (in *instance) id() string {
	return cluster.NewInstance(in.m.w.broken.identifies(uint64(in.s.id)<<32 | uint64(in.number)))
}

// over reports whether the instance has ended: it only has to leave.
func (in *instance) over() bool {
	return in.failed || len(in.loops) > 0 && !slices.ContainsFunc(in.loops, func(l *loop) bool { return !l.done })
}

// active reports whether the instance is registered and not over.
func (in *instance) active() bool {
	return in != nil && len(in.loops) > 0 && !in.over() && !in.abandoned
}

// refused reports whether queue and guard refuse what the instance does.
func (in *instance) refused() bool { return in.abandoned && in.m.w.broken.name != abandonedActs }

// handle makes all loops handle an event of the host. An instance that is not yet registered is over.
func (in *instance) handle(ev transition.Event) {
	if len(in.loops) == 0 {
		in.failed = true
	}
	for _, l := range in.loops {
		l.soon(func() { l.step(ev) })
	}
}

// hint tells the loops that a watch has fired. Before there are any, nothing has been read.
func (in *instance) hint(path string) {
	for _, l := range in.loops {
		l.hint(path)
	}
}

// hintAll tells the loops that watches may have been lost.
func (in *instance) hintAll() {
	for _, l := range in.loops {
		l.hintAll()
	}
}

func (in *instance) close() {
	in.closed = true
	for _, stop := range in.stops {
		stop()
	}
	in.stops = nil
	for _, l := range in.loops {
		l.close()
	}
}

// ended handles the end of an instance: its machines are done, or the host has abandoned it. It is called again when the work of
// an abandoned instance is dead.
func (in *instance) ended() {
	m := in.m
	switch {
	case m.ending():
		if m.over() {
			m.sessionOver()
			return
		}
		m.w.after(m.timeout, func() { m.process(in.s, m.leaveUnleft) })
	case !m.runs() || m.w.broken.name == newBeforeDead:
		in.leave()
	}
}

// runs reports whether work of the resource is running on the host.
func (m *resident) runs() bool {
	return slices.ContainsFunc(m.members, func(m *member) bool { return m.work != nil })
}

// abandon gives an instance up of which a loop hangs or has panicked: nothing that it does counts from now on.
func (in *instance) abandon(why string) {
	in.m.w.log("%s: the instance is abandoned: %s", in.m.name, why)
	in.abandoned = true
	in.beginEnd()
	for _, l := range in.loops {
		if in.refused() {
			in.s.renewer.merger.Withdraw(l.number)
		}
		l.m.endFencing()
		if in.m.w.broken.unleased(l.m.work, outlivesInstance) {
			l.m.workOver("outlives its instance")
		}
		l.m.kill()
	}
	in.ended()
}

// hang makes the loop hang for a while. The host abandons it after T.
func (l *loop) hang(d time.Duration) {
	if l == nil || l.done || l.hung || l.in.abandoned {
		return
	}
	l.hung = true
	l.m.w.after(d, l.unhang)
	l.m.w.after(l.m.timeout, func() {
		l.m.process(l.s, func() {
			if l.hung && !l.done && !l.in.abandoned {
				l.in.abandon("a loop hangs")
			}
		})
	})
}

func (l *loop) unhang() {
	if !l.hung {
		return
	}
	l.hung = false
	pending := l.pending
	l.pending = nil
	for _, do := range pending {
		l.process(do)
	}
}

// panics makes a loop of the instance panic. What it has begun may go on.
func (in *instance) panics() {
	if !in.active() {
		return
	}
	in.m.process(in.s, func() {
		if in.active() {
			in.abandon("a loop has panicked")
		}
	})
}

// remove reloads the daemon without the group, and again with it after a while.
func (m *resident) remove(d time.Duration) {
	if m.removed || m.instance == nil || m.instance.over() || m.instance.abandoned {
		return
	}
	m.removed = true
	m.process(m.session, func() {
		if in := m.instance; len(in.loops) == 0 {
			in.failed = true
			in.ended()
		} else {
			in.quit()
		}
	})
	m.w.after(d, m.add)
}

func (m *resident) add() {
	m.removed = false
	if m.session != nil {
		m.process(m.session, m.join)
	}
}

// interrupt ends an instance, or breaks its connection, while a transaction is under way.
func (in *instance) interrupt() {
	m, w := in.m, in.m.w
	if w.calm || !w.chance(w.traits.interrupted) {
		return
	}
	kind := w.rng.IntN(4)
	w.after(w.between(0, 3*w.traits.latency[m.number]), func() {
		if w.calm || m.instance != in {
			return
		}
		w.faults["transaction interrupted"]++
		switch kind {
		case 0:
			m.reset()
		case 1:
			m.remove(0)
		case 2:
			m.reset()
			m.remove(0)
		default:
			in.panics()
			m.reset()
		}
	})
}

var instanceFaults = []faultKind{
	{name: "group removed and added", do: func(w *world, m *member) { m.remove(w.between(0, 3*time.Second)) }},
	{name: "loop hangs", do: func(w *world, m *member) { m.loop.hang(w.between(0, 2*m.timeout)) }},
	{name: "current deleted under a leader that hangs", tampering: true, do: func(w *world, m *member) {
		for _, leader := range m.g.check.working {
			leader.loop.hang(2 * m.timeout)
			w.after(w.between(0, 20*time.Millisecond), func() { m.g.tamper(cluster.Op{Kind: cluster.OpDelete, Path: m.g.known.current}) })
		}
	}},
	{name: "loop panics", do: func(_ *world, m *member) { m.instance.panics() }},
}
