package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
	"zkelectd/internal/store"
	"zkelectd/internal/transition"
)

// maxSlots is how many slots a resource has at most in any epoch.
const maxSlots = 4

// slotTraits are what a world with slots is like.
type slotTraits struct {
	size    cluster.SlotSize   // as the hosts propose it
	changes []cluster.SlotSize // by operators, at random times
	damaged int                // how often the record is damaged, emptied or deleted
}

func (w *world) drawSlots() (t slotTraits) {
	size := func() cluster.SlotSize {
		s := cluster.SlotSize{Count: 1 + w.rng.IntN(maxSlots)}
		s.PerNode = 1 + w.rng.IntN(s.Count)
		return s
	}
	t.size = size()
	if w.standbys != nil { // a host has one standby
		t.size.PerNode = 1
	}
	for w.chance(0.6) && len(t.changes) < 5 {
		t.changes = append(t.changes, size())
	}
	if w.chance(0.15) {
		t.damaged = 1 + w.rng.IntN(2)
	}
	return t
}

// slots are what an instance knows of the slots of its resource.
type slots struct {
	known  cluster.Stored[cluster.Slots] // the record that REGISTER has checked
	writer *loop                         // the loop that may write as the elector; nil for none
}

// readSlots reads the record of slots, or creates it.
func (in *instance) readSlots(c *conn) bool {
	m, p := in.m, in.m.r.groups[0].paths
	for {
		read, err := get(c, p.Slots(), cluster.ReadSlots)
		switch {
		case err != nil:
			return false
		case read.Readable():
			in.known = read
			return true
		case !read.Exists:
			if store.EnsureTree(context.Background(), c, p) != nil {
				return false
			}
		case errors.Is(read.Err, cluster.ErrNoSlots):
			if _, err := c.Do(context.Background(), p.SlotsTx("", read, cluster.NewSlots(m.r.slots.size, m.id, m.w.wall()))...); err != nil && isEnd(err) {
				return false
			}
		default: // only if nobody is registered, who can write it again
			ops, ok := in.setSlots(c, read, cluster.NewSlots(m.r.slots.size, m.id, m.w.wall()))
			if !ok {
				return false
			}
			if _, err := c.Do(context.Background(), ops...); err != nil {
				return false
			}
		}
	}
}

// existing returns how many slots there must be for all that have a znode.
func (in *instance) existing(c *conn) (count int, ok bool) {
	names, _, err := c.Children(context.Background(), in.m.r.groups[0].paths.Slots(), false)
	for _, name := range names {
		count = max(count, cluster.SlotNumber(name)+1)
	}
	return count, err == nil || errors.Is(err, cluster.ErrNoNode)
}

// setSlots returns SETSLOTS, for a record that is damaged.
func (in *instance) setSlots(c *conn, read cluster.Stored[cluster.Slots], next cluster.Slots) (ops []cluster.Op, ok bool) {
	p := in.m.r.groups[0].paths
	count, ok := in.existing(c)
	if !ok {
		return nil, false
	}
	var all []cluster.SlotState
	for i := range max(count, next.Count) {
		s, err := store.ReadSlot(context.Background(), c, p.OfSlot(i))
		if err != nil {
			return nil, false
		}
		all = append(all, s)
	}
	ops, _, err := p.SetSlotsTx(read, next, all)
	in.m.w.faults["a damaged record of slots at a start"]++
	return in.m.w.broken.sets(ops), err == nil
}

// table returns what the elector's loops have read of the wanted slots.
func (in *instance) table(want func(l *loop) bool) (all []cluster.SlotState) {
	for _, l := range in.loops {
		if s := &l.snap; want(l) && s.Elector && s.HolderRead && !s.SelfLost {
			all = append(all, s.SlotState())
		}
	}
	return all
}

// repairSlots writes the record of slots again if it was deleted or damaged, and reports whether it is not readable.
func (l *loop) repairSlots() bool {
	in, m, snap := l.in, l.m, l.snap
	if !m.r.slotted || m.g.slot > 0 || snap.Slots.Readable() {
		return false
	}
	if ops, err := m.g.paths.RepairSlotsTx(snap.Self.Name, snap.Slots, in.known, m.w.wall()); err == nil {
		m.w.faults["slots repaired"]++
		l.write("SLOTS", snap, false, func() {}, ops)
	}
	return true
}

// replaced reports whether the record is not the one that the instance was started for: it ends, and another one begins.
func (l *loop) replaced() bool {
	s, known := l.snap.Slots, l.in.known
	return s.Exists && !errors.Is(s.Err, cluster.ErrNoSlots) &&
		(s.Stat.Created != known.Stat.Created || s.Readable() && s.Record.Epoch != known.Record.Epoch)
}

// admit reports whether the loop may take over its slot: per_node works at most run on a host. From then on it counts as live.
func (l *loop) admit() bool {
	if l.live || l.m.w.broken.name == noGate {
		return true
	}
	live := 0
	for _, other := range l.in.loops {
		if other.live {
			live++
		}
	}
	l.live = live < l.in.known.Record.PerNode
	return l.live
}

// elected reports whether the decision of the last snapshot is for this member.
func (l *loop) elected() bool {
	s := &l.snap
	return s.Elected.Readable() && s.Elected.Record.Incarnation == l.self.Name && !s.Ended()
}

// see gives the last snapshot to the machine, unless the host has as many works of the resource as it may have.
func (l *loop) see() {
	l.m.memory.Update(&l.snap)
	l.gated = l.m.r.slotted && l.elected() && !l.snap.SelfLost && l.machine.Idle() && !l.admit()
	if l.gated {
		l.m.w.faults["takeover held back"]++
		l.step(transition.Waits{Snapshot: l.snap})
		return
	}
	l.step(transition.Saw{Snapshot: l.m.w.broken.sees(l, l.snap)})
}

// checkLive lets another loop take over if this one runs nothing and is not elected.
func (l *loop) checkLive() {
	if l.live && l.machine.Idle() && (!l.elected() || l.gated || l.machine.Phase() == transition.Ended) {
		l.live = false
		l.changed()
	}
}

// mayWrite reports whether the loop may write as the elector: only one of the instance does at a time.
func (in *instance) mayWrite(l *loop) bool {
	if l.waiting = in.writer != nil && in.writer != l; !l.waiting {
		in.writer = l
	}
	return !l.waiting
}

// written lets the other loops write. This one must have read what it has written last.
func (in *instance) written(l *loop) {
	if in.writer != l {
		return
	}
	in.writer = nil
	for _, other := range in.loops {
		if other.waiting {
			other.lookSoon()
		}
	}
}

// changed makes the other loops look again: what they decide, or whether their gates are open, may depend on this one.
func (l *loop) changed() {
	if !l.m.r.slotted {
		return
	}
	for _, other := range l.in.loops {
		if other != l {
			other.lookSoon()
		}
	}
}

// lookSoon makes the loop look at the table again.
func (l *loop) lookSoon() {
	if l.over || l.looking {
		return
	}
	l.looking = true
	l.soon(func() {
		l.looking = false
		l.look()
	})
}

// look looks at the table again.
func (l *loop) look() {
	if l.gated && l.admit() {
		l.see()
		return
	}
	l.step(tick)
}

// planSlots schedules changes of the number of slots by operators, and damage of the record.
func (r *resource) planSlots() {
	w := r.w
	for _, size := range r.slots.changes {
		w.at(w.between(0, w.traits.busy), func() { r.change(size) })
	}
	for range r.slots.damaged {
		w.at(w.between(0, w.traits.busy), func() {
			g := r.groups[0]
			w.faults["slots damaged"]++
			w.log("FAULT slots damaged")
			switch w.rng.IntN(3) {
			case 0:
				g.tamper(cluster.Op{Kind: cluster.OpSet, Path: g.paths.Slots(), Data: []byte("garbage")})
			case 1:
				g.tamper(cluster.Op{Kind: cluster.OpSet, Path: g.paths.Slots()})
			default:
				g.remove(g.paths.Slots())
			}
		})
	}
}

// patience is how long an operator tries to change the number of slots.
const patience = 10 * time.Second

// change takes the resource off all hosts, and changes the number of its slots when no member is registered any more.
func (r *resource) change(size cluster.SlotSize) {
	w, until := r.w, r.w.now+patience
	w.faults["slots change begins"]++
	for _, m := range r.residents {
		m.remove(w.between(time.Second, patience))
	}
	var try func()
	try = func() {
		if !r.set(size) && w.now < until {
			w.after(w.between(0, 300*time.Millisecond), try)
		}
	}
	w.after(w.between(0, time.Second), try)
}

// set is the command that changes the number of slots. It reports whether it was not refused.
func (r *resource) set(size cluster.SlotSize) bool {
	w, g := r.w, r.groups[0]
	read := r.readSlots()
	if w.standbys != nil {
		size.PerNode = 1
	}
	if w.down || !read.Readable() {
		return false
	}
	var all []cluster.SlotState
	for _, slot := range r.groups {
		all = append(all, slot.state())
	}
	ops, wait, err := g.paths.SetSlotsTx(read, read.Record.Changed(size, "sim", "", w.wall()), all)
	if err != nil || !g.writeAsOperator(w.broken.sets(ops)) {
		w.faults["slots change refused"]++
		return false
	}
	w.faults["slots changed"]++
	if wait > 0 {
		w.faults["slots changed while a lease may be running"]++
	}
	return true
}

// focusOnSlots makes a world in which little but the number of slots changes.
func (w *world) focusOnSlots() {
	t := &w.traits
	t.total, t.stuck, t.refusesRelease, t.jumps, t.granting, t.busy = 0, false, false, 0, grantAlike, 20*time.Second
	t.slow, t.lateWatch, t.lostWatch, t.losing, t.hooks, t.failing, t.dying, t.flaky = 0, 0, 0, false, 0, 0, 0, 0
	t.ready, t.watchedLonger = 10*time.Millisecond, false
	t.stop, t.slowKill = 200*time.Millisecond, 0
	for i := range t.latency {
		t.latency[i], t.timeouts[i] = min(t.latency[i], 10*time.Millisecond), 10*time.Second
	}
	for i := range t.groups {
		t.groups[i] = groupTraits{rules: []cluster.Rules{{Type: "priority"}}}
	}
}

// planFocused schedules what is dangerous while the number of slots changes, together with that.
func (r *resource) planFocused() {
	w := r.w
	r.slots.damaged, r.slots.changes = 0, nil
	for at := 3 * time.Second; at < w.traits.busy; at += w.between(time.Second, 5*time.Second) {
		w.at(at, func() {
			var leaders []*member
			for _, g := range r.groups {
				leaders = append(leaders, g.check.working...)
			}
			if len(leaders) == 0 {
				return
			}
			m := leaders[w.rng.IntN(len(leaders))]
			w.log("FAULT before the slots change (%s)", m.name)
			switch w.rng.IntN(8) {
			case 0:
				m.instance.panics()
			case 1:
				m.undoing = 4 * time.Second
			case 2:
				m.crash(true)
			case 3:
				m.changePriority()
			case 4:
				m.stubborn = true
				m.g.deleteCurrent()
			default:
				m.g.closeLeaderSession()
			}
			size := cluster.SlotSize{Count: 1 + w.rng.IntN(maxSlots)}
			size.PerNode = 1 + w.rng.IntN(size.Count)
			w.after(w.between(0, 300*time.Millisecond), func() { r.change(size) })
		})
	}
}

// readSlots returns the record of slots.
func (r *resource) readSlots() cluster.Stored[cluster.Slots] {
	return readCached(r.w, r.groups[0].paths.Slots(), cluster.ReadSlots)
}

// state returns what is stored of the group's slot.
func (g *group) state() cluster.SlotState {
	return cluster.SlotState{Slot: g.paths.Slot, Elected: g.check.readElected(), Fence: g.check.readFence(), Current: g.check.readCurrent()}
}

// unused reports whether the group is a slot that does not exist at present.
func (g *group) unused() bool { return g.slotted && g.slot >= g.readSlots().Record.Count }

// held returns for how many other slots each node is elected.
func (g *group) held() map[string]int {
	held := make(map[string]int)
	for _, other := range g.groups {
		if other == g || other.unused() {
			continue
		}
		if s := other.state(); s.Elected.Readable() && !s.Ended() {
			held[s.Elected.Record.Node]++
		}
	}
	return held
}

// checkWork checks that the work that has just begun does not overlap with work of another epoch, and that there is not too much on
// its host (S1).
func (r *resource) checkWork(m *member) {
	if !r.slotted || m.work == nil {
		return
	}
	on := 0
	for _, host := range r.residents {
		for _, other := range host.members {
			if other.work == nil || other.work.hung || other.work.idle() {
				continue
			}
			if x, y := m.work.l.in.known.Record.Epoch, other.work.l.in.known.Record.Epoch; x != y {
				m.g.fail("S1: work begins on %s in epoch %d while that of slot %d on %s in epoch %d is running", m.id, x, other.g.slot, other.id, y)
			}
			if host == m.resident {
				on++
			}
		}
	}
	if most := m.work.l.in.known.Record.PerNode; on > most {
		m.g.fail("per_node: %d works run on %s, %d may", on, m.id, most)
	}
}

// checkDecision checks that a node is not elected for too many slots. If the decision of another slot was deleted and written again since
// the elector read it, its version may be the same.
func (g *group) checkDecision(rec cluster.Elected) {
	if !g.slotted || g.w.traits.losing {
		return
	}
	record, count := g.readSlots().Record, 0
	known := g.check.others[decision{rec.Term, rec.By}]
	for _, other := range g.groups[:record.Count] {
		s := other.state()
		again := slices.ContainsFunc(known, func(k cluster.SlotState) bool {
			ended := k.Ended() && k.Elected.Stat == s.Elected.Stat // if it no longer has, a stranger has forged the fence since
			return k.Slot == s.Slot && (ended || k.Elected.Exists && k.Elected.Stat.Created != s.Elected.Stat.Created)
		})
		if s.Elected.Record.Incarnation == rec.Incarnation && !s.Ended() && !again {
			count++
		}
	}
	if count > record.PerNode {
		g.fail("per_node: %s is elected for %d slots in term %d, it may be for %d", rec.Incarnation, count, rec.Term, record.PerNode)
	}
}

// unsettledSlots returns what is missing until all daemons are in one epoch and the slots are spread over the members.
func (r *resource) unsettledSlots() string {
	read := r.readSlots()
	if !read.Readable() {
		return "L1: the record of slots is not readable"
	}
	for _, m := range r.residents {
		if in := m.instance; in != nil && len(in.loops) > 0 && !m.hangs() && in.known.Record.Epoch != read.Record.Epoch {
			return "L1: " + m.name + " is still in another epoch"
		}
	}
	return r.uneven(read.Record)
}

// uneven reports whether the slots are unevenly spread over members that are equal: nothing else decides who leads.
func (r *resource) uneven(record cluster.Slots) string {
	count := make(map[string]int)
	for _, g := range r.groups[:record.Count] {
		in, err := g.toRank()
		compiled, policyErr := g.inForce()
		control, elected := g.check.readControl(), g.check.readElected()
		requests, rules := control.Record, compiled.Rules
		free := rules.Failback == "" || rules.Failback == cluster.FailbackImmediate
		if err != nil || policyErr != nil || control.Err != nil || requests.Pause != nil || requests.Move != nil || len(requests.Cordons) > 0 ||
			len(elected.Record.Exclusions) > 0 || len(g.check.readFence().Record.Fencing) > 0 || !free || rules.MaxPreemptions > 0 || rules.Confirm != "" || g.unreadablePolicy() {
			return ""
		}
		in.Circumstances = elected.Record.Circumstances
		ranking := compiled.Rank(in)
		if ranking.Unanswered || slices.ContainsFunc(ranking.Entries, func(e policy.Entry) bool { return !e.Eligible() }) {
			return ""
		}
		for _, m := range in.Members {
			count[m.ID] += 0
		}
		// The record of a holder that left with its work alive can be there still: a copy that no session owns.
		if _, here := count[elected.Record.Node]; here && g.state().Acquired() && g.state().Current.Exists {
			count[elected.Record.Node]++
		}
	}
	r.w.faults["evenness checked"]++
	counts := slices.Sorted(maps.Values(count))
	if counts[len(counts)-1]-counts[0] > 1 {
		return fmt.Sprintf("L4: the slots are unevenly spread: %v", count)
	}
	return ""
}
