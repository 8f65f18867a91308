package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/cluster/zkstore"
	"zkelectd/internal/elector"
	"zkelectd/internal/policy"
	"zkelectd/internal/transition"
)

// maxSlots is how many slots a resource has at most in any epoch.
const maxSlots = 4

// slotTraits are what a world with slots is like.
type slotTraits struct {
	size    cluster.SlotSize   // as the hosts propose it
	resizes []cluster.SlotSize // by operators, at random times
	damaged int                // how often the record is damaged, emptied or deleted
	crossed float64            // a resize begins while an ACQUIRE is under way
}

func (w *world) drawSlots() (t slotTraits) {
	size := func() cluster.SlotSize {
		s := cluster.SlotSize{Count: 1 + w.rng.IntN(maxSlots)}
		s.PerNode = 1 + w.rng.IntN(s.Count)
		return s
	}
	t.size = size()
	for w.chance(0.6) && len(t.resizes) < 5 {
		t.resizes = append(t.resizes, size())
	}
	if w.chance(0.4) {
		t.crossed = w.rng.Float64() / 2
	}
	if w.chance(0.15) {
		t.damaged = 1 + w.rng.IntN(2)
	}
	return t
}

// slots are what an instance knows of the slots of its resource.
type slots struct {
	known   cluster.Slots // the record that the instance was started for
	resizer *elector.Resizer
	writer  *loop               // the loop that may write as the elector; nil for none
	beyond  []cluster.SlotState // slots without a loop, as read while the group is closed, or its record cannot be read
	read    bool                // they have been read
	reading bool                // they are being read
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
			in.known = read.Record
			return true
		case !read.Exists:
			if zkstore.EnsureTree(context.Background(), c, p) != nil {
				return false
			}
		case errors.Is(read.Err, cluster.ErrNoSlots):
			if _, err := c.Do(context.Background(), p.SlotsTx("", read, cluster.NewSlots(m.r.slots.size, m.id, m.w.wall()))...); err != nil && isEnd(err) {
				return false
			}
		default:
			return in.guessSlots(c)
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

// guessSlots begins an instance although the record cannot be read, because only an elector repairs it. Any slot that was ever used
// may have a leader.
func (in *instance) guessSlots(c *conn) bool {
	m := in.m
	count, ok := in.existing(c)
	if !ok {
		return false
	}
	size := m.r.slots.size
	size.Count = max(size.Count, count)
	in.known = cluster.NewSlots(size, m.id, m.w.wall()).Resized(m.r.slots.size, m.id, "", m.w.wall())
	return true
}

// table returns what the elector's loops have read of the wanted slots.
func (in *instance) table(want func(l *loop) bool) (all []cluster.SlotState) {
	for _, l := range in.loops {
		if s := &l.snap; want(l) && s.Elector && s.Leadership && !s.SelfLost {
			all = append(all, s.SlotState())
		}
	}
	return all
}

// resize starts the next step of a resize, if one is due. It reports whether the elector must not decide now.
func (l *loop) resize() (busy bool, wake time.Duration) {
	in, m, snap := l.in, l.m, l.snap
	record := snap.Slots.Record
	if snap.Slots.Readable() && record.Next == nil {
		in.beyond, in.read = nil, false
	} else if !in.read || slotsOf(record) > len(in.loops)+len(in.beyond) {
		in.readBeyond()
		return true, 0
	}
	table := append(in.table(func(*loop) bool { return true }), in.beyond...)
	d := in.resizer.Resize(elector.ResizeInput{
		Paths: m.g.paths, Snapshot: snap, Table: m.w.broken.resizes(table), LeaseWait: m.budget.LeaseWait, Now: m.clock(), Wall: m.w.wall(),
	})
	if d.Step == elector.ResizeNone {
		return false, d.Wake
	}
	m.w.faults["resize: "+string(d.Step)]++
	m.w.log("%s: %s %s", m.name, d.Step, d.Slot)
	if ops := m.w.broken.commits(m.r, d); len(ops) > 0 {
		l.write(string(d.Step), snap, false, func() {}, ops)
	}
	return true, 0
}

// slotsOf returns how many slots a resize has to do with.
func slotsOf(r cluster.Slots) int {
	if r.Next == nil {
		return r.Count
	}
	return max(r.Count, r.Next.Count)
}

// readBeyond reads the slots that have no loop, again and again while the group is closed.
func (in *instance) readBeyond() {
	if in.reading {
		return
	}
	in.reading = true
	in.run(func(c *conn) {
		defer func() { in.reading = false }()
		for {
			var read []cluster.SlotState
			l := in.loops[0]
			count, complete := in.existing(c)
			count = max(count, slotsOf(l.snap.Slots.Record))
			for i := len(in.loops); i < count; i++ {
				s, err := zkstore.ReadSlot(context.Background(), c, in.m.r.groups[0].paths.OfSlot(i))
				if isEnd(err) {
					return
				}
				complete = complete && err == nil
				read = append(read, s)
			}
			if complete {
				in.beyond, in.read = read, true
				l.soon(func() { l.step(tick) })
			}
			if !c.sleep(in.m.w.between(200*time.Millisecond, time.Second)) {
				return
			}
			if s := l.snap.Slots; s.Readable() && s.Record.Next == nil {
				return
			}
		}
	})
}

// replaced reports whether another epoch has begun: the instance ends, and another one begins.
func (l *loop) replaced() bool {
	s := l.snap.Slots
	return s.Readable() && s.Record.Epoch != l.in.known.Epoch && !l.m.w.broken.lingers(l)
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
	l.live = live < l.in.known.PerNode
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
		l.step(tick)
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

// planSlots schedules resizes by operators, and damage of the record.
func (r *resource) planSlots() {
	w := r.w
	for _, size := range r.slots.resizes {
		w.at(w.between(0, w.traits.busy), func() { r.resize(size) })
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

// resize is the command that closes the resource for a resize: it reads the record, and writes it with its version.
func (r *resource) resize(size cluster.SlotSize) {
	w, g := r.w, r.groups[0]
	read := r.readSlots()
	if w.down || !read.Readable() {
		return
	}
	w.faults["resize requested"]++
	w.after(w.between(0, 50*time.Millisecond), func() {
		if !w.down {
			g.writeAsOperator(g.paths.SlotsTx("", read, read.Record.Resized(size, "sim", "", w.wall())))
		}
	})
}

// cross begins a resize while a member acquires, and lets ACQUIRE arrive late, or the elector learn of it late.
func (m *member) cross() {
	w, r := m.w, m.r
	if !r.slotted || w.calm || !w.chance(r.slots.crossed) {
		return
	}
	w.faults["resize during a takeover"]++
	size := one(w.rng, append(r.slots.resizes, r.slots.size))
	if w.chance(0.5) {
		m.host.hang(w.between(0, m.budget.Lease))
		r.resize(size)
		return
	}
	for _, other := range r.residents {
		if l := other.members[m.g.slot].loop; l != nil && l.snap.Elector {
			l.hang(w.between(0, l.m.timeout))
		}
	}
	w.after(w.between(0, 4*w.traits.latency[m.number]), func() { r.resize(size) })
}

// focusOnSlots makes a world that has little but resizes.
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

// planFocused schedules what is dangerous to a resize, together with one.
func (r *resource) planFocused() {
	w := r.w
	r.slots.crossed, r.slots.damaged, r.slots.resizes = 0.2, 0, nil
	for at := 3 * time.Second; at < w.traits.busy; at += w.between(time.Second, 5*time.Second) {
		w.at(at, func() {
			var leaders []*member
			for _, g := range r.groups {
				leaders = append(leaders, g.check.working...)
			}
			if others := slices.DeleteFunc(slices.Clone(leaders), func(m *member) bool { return m.loop == nil || m.loop.snap.Elector }); len(others) > 0 {
				leaders = others
			}
			if len(leaders) == 0 {
				return
			}
			m := leaders[w.rng.IntN(len(leaders))]
			w.log("FAULT before a resize (%s)", m.name)
			switch w.rng.IntN(8) {
			case 0:
				m.instance.panics()
			case 1:
				m.undoing = 4 * time.Second
			case 2:
				m.crash(true)
			case 3:
				m.changePriority()
			default:
				m.stubborn = true
				m.g.deleteCurrent()
			}
			size := cluster.SlotSize{Count: 1 + w.rng.IntN(maxSlots)}
			size.PerNode = 1 + w.rng.IntN(size.Count)
			w.after(w.between(0, 300*time.Millisecond), func() { r.resize(size) })
		})
	}
}

// slowly is how long a member's post_stop takes that keeps its leadership during a resize.
const slowly = 100 * time.Second

// resizeSlowly resizes the resource without faults, while a leader keeps its leadership for long.
func (r *resource) resizeSlowly() {
	size := cluster.SlotSize{Count: 1 + r.w.rng.IntN(maxSlots)}
	size.PerNode = 1 + r.w.rng.IntN(size.Count)
	r.w.after(r.w.between(0, 20*time.Second), func() {
		for _, g := range r.groups {
			if len(g.check.working) > 0 {
				m := g.check.working[0]
				m.undoing = slowly
				r.w.log("%s will not release soon", m.name)
				r.w.after(slowly, func() { m.undoing = 0 })
				break
			}
		}
		r.resize(size)
	})
}

// readSlots returns the record of slots.
func (r *resource) readSlots() cluster.Stored[cluster.Slots] {
	path := r.groups[0].paths.Slots()
	data, stat, err := r.w.tree.Get(0, path, false)
	return cached(r.w.cache.slots, path, data, stat, err == nil, cluster.ReadSlots)
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
	if !r.slotted {
		return
	}
	on := 0
	for _, host := range r.residents {
		for _, other := range host.members {
			if other.work == nil || other.work.hung {
				continue
			}
			if x, y := m.work.l.in.known.Epoch, other.work.l.in.known.Epoch; x != y {
				m.g.fail("S1: work begins on %s in epoch %d while that of slot %d on %s in epoch %d is running", m.id, x, other.g.slot, other.id, y)
			}
			if host == m.resident {
				on++
			}
		}
	}
	if most := m.work.l.in.known.PerNode; on > most {
		m.g.fail("per_node: %d works run on %s, %d may", on, m.id, most)
	}
}

// checkDecision checks that a node is not elected for too many slots.
func (g *group) checkDecision(rec cluster.Elected) {
	if !g.slotted || g.w.traits.losing {
		return
	}
	record, count := g.readSlots().Record, 0
	for _, other := range g.groups[:record.Count] {
		s := other.state()
		if s.Elected.Record.Incarnation == rec.Incarnation && !s.Ended() {
			count++
		}
	}
	if count > record.PerNode {
		g.fail("per_node: %s is elected for %d slots in term %d, it may be for %d", rec.Incarnation, count, rec.Term, record.PerNode)
	}
}

// resizeLimit returns how long a resize may take without faults: until all daemons know of it, holders are revoked, and every older
// lease is over; and another one by the elector's successor.
func (r *resource) resizeLimit() time.Duration {
	var longest time.Duration
	for _, m := range r.residents {
		longest = max(longest, m.timeout*3/2+m.members[0].budget.RevokeTimeout()+m.members[0].budget.LeaseWait)
	}
	return r.w.settlingTime() + 2*longest
}

// unsettledSlots returns what is missing until a resize is over and the slots are spread over the members.
func (r *resource) unsettledSlots() string {
	read := r.readSlots()
	if !read.Readable() {
		return "L1: the record of slots is not readable"
	}
	if read.Record.Next == nil || read.Stat.Modified != r.record {
		r.record, r.closed = read.Stat.Modified, r.w.now
	}
	if read.Record.Next != nil {
		if closed := r.w.now - max(r.closed, r.w.traits.busy); closed > r.resizeLimit() {
			r.groups[0].fail("L2: a resize has taken %s", closed)
		}
		return "L1: the resize is not over"
	}
	for _, m := range r.residents {
		if in := m.instance; in != nil && len(in.loops) > 0 && !m.hangs() && in.known.Epoch != read.Record.Epoch {
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
			len(elected.Record.Exclusions) > 0 || !free || rules.MaxPreemptions > 0 || g.unreadablePolicy() {
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
		if s := g.state(); s.Acquired() && s.Current.Exists {
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
