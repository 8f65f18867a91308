package elector_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
	"zkelectd/internal/policy"
	"zkelectd/internal/store/storetest"
)

// This model runs a group with slots under a random schedule on the model of ZooKeeper: transactions are delayed, their replies are
// lost, daemons crash and their sessions end at any time, an operator changes the number of slots and deletes current, and the elector's
// knowledge of the slots is stale. It checks what slots add to the protocol of one leader: no work runs beside work of another epoch, and
// no node is elected for more slots than it may have. Breakages show that each rule is needed.

// The lease, and W for it.
const (
	modelLease = 10 * time.Second
	modelWait  = 13 * time.Second
)

// The rules that a breakage leaves out.
const (
	sound            = ""
	acquireUnchecked = "ACQUIRE does not check slots"
	keepFences       = "SETSLOTS leaves the fences as they are"
	electUnchecked   = "ELECT does not check the other slots"
	electBlind       = "ELECT does not know all slots"
	acquireOldEpoch  = "a member of an earlier epoch acquires"
)

// stuck is the failure of a schedule that does not settle.
const stuck = "does not settle"

// flight is a transaction under way.
type flight struct {
	session int64
	ops     []cluster.Op
	reply   func(results []cluster.Result, err error) // nil if it is lost
}

type modelWorld struct {
	rng     *rand.Rand
	broken  string
	tree    *storetest.Tree
	admin   int64
	now     time.Duration
	members []*modelMember
	lost    []*modelWork // of sessions that have ended
	leaving bool         // all members leave, so that the number of slots can be changed
	flights []flight
	fair    bool // nothing is delayed, no reply is lost
	held    bool // nothing is delivered
	failure string
	log     []string
	memo    map[string]any // decoded records by their data
	zxid    int64          // of the last check
	changes int64
	// registrations counts them.
	registrations uint64
}

// decode returns a record as decoded before: most reads find what was read last.
func decode[T any](w *modelWorld, data []byte, stat cluster.Stat, exists bool, read func(string, []byte, cluster.Stat, bool) cluster.Stored[T]) cluster.Stored[T] {
	if !exists {
		return cluster.Stored[T]{}
	}
	known, ok := w.memo[string(data)].(cluster.Stored[T])
	if !ok {
		known = read("/c/x", data, stat, true)
		w.memo[string(data)] = known
	}
	known.Stat = stat
	return known
}

type modelMember struct {
	w        *modelWorld
	id       string
	session  int64
	self     cluster.Incarnation
	epoch    int64
	crashed  bool
	views    map[int]cluster.Snapshot
	electors map[int]*elector.Elector
	works    map[int]*modelWork
	pending  map[int]bool // an ACQUIRE is under way
	last     map[int]int64
}

// modelWork is the work of one slot.
type modelWork struct {
	slot            int
	epoch           int64
	fence           cluster.Fence
	held            cluster.HeldVersions
	lease, waitOver time.Duration
	dead            bool
}

func (k *modelWork) running(now time.Duration) bool {
	return !k.dead && now >= k.waitOver && now < k.lease
}

var modelPaths = cluster.Paths{Root: "/c"}

func newModelWorld(seed uint64, broken string) *modelWorld {
	w := &modelWorld{rng: rand.New(rand.NewPCG(seed, 1)), broken: broken, tree: storetest.NewTree(), memo: make(map[string]any)}
	w.admin = w.tree.Open()
	w.tree.Clock = func() time.Time { return time.Unix(1000, 0).Add(w.now) }
	first := cluster.NewSlots(cluster.SlotSize{Count: 3, PerNode: 2}, "n0", time.Unix(1000, 0))
	w.apply(w.admin, cluster.Op{Kind: cluster.OpCreate, Path: "/c"}, cluster.Op{Kind: cluster.OpCreate, Path: modelPaths.Nodes()},
		cluster.Op{Kind: cluster.OpCreate, Path: modelPaths.Election()}, cluster.Op{Kind: cluster.OpCreate, Path: modelPaths.Slots(), Data: cluster.Encode(&first)})
	for i := range first.Count {
		f := cluster.Fence{State: cluster.FenceReleased}
		w.apply(w.admin, cluster.Op{Kind: cluster.OpCreate, Path: modelPaths.OfSlot(i).Leader(), Data: cluster.Encode(&f)})
	}
	for i := range 3 {
		m := &modelMember{w: w, id: fmt.Sprint("n", i)}
		w.members = append(w.members, m)
		m.join()
	}
	return w
}

func (w *modelWorld) apply(session int64, ops ...cluster.Op) ([]cluster.Result, error) {
	results, _, err := w.tree.Apply(session, ops)
	if err == nil {
		w.changes++
	}
	return results, err
}

func (w *modelWorld) say(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%5.1f ", w.now.Seconds())+fmt.Sprintf(format, args...))
}

func (w *modelWorld) slots() cluster.Stored[cluster.Slots] {
	data, stat, err := w.tree.Get(w.admin, modelPaths.Slots(), false)
	return decode(w, data, stat, err == nil, cluster.ReadSlots)
}

// send applies a transaction now or later, or loses its reply.
func (w *modelWorld) send(session int64, ops []cluster.Op, reply func([]cluster.Result, error)) {
	if !w.fair && w.rng.IntN(10) == 0 {
		reply = nil
	}
	w.flights = append(w.flights, flight{session, ops, reply})
	if !w.held && (w.fair || w.rng.IntN(3) > 0) {
		w.deliver(len(w.flights) - 1)
	}
}

func (w *modelWorld) deliver(i int) {
	f := w.flights[i]
	w.flights = slices.Delete(w.flights, i, i+1)
	results, err := w.apply(f.session, f.ops...)
	if f.reply != nil {
		f.reply(results, err)
	}
}

// join begins a session and an instance.
func (m *modelMember) join() {
	m.session, m.crashed = m.w.tree.Open(), false
	m.register()
}

func (m *modelMember) register() {
	if m.w.leaving {
		return
	}
	record := m.w.slots().Record
	m.w.registrations++ // sequence numbers begin again with SETSLOTS
	results, err := m.w.apply(m.session, modelPaths.RegisterTx(cluster.Node{ID: m.id, Instance: cluster.NewInstance(m.w.registrations)}, modelPaths.OfSlot(0).CheckSlots(m.w.slots())...)...)
	if err != nil {
		return // its last session has not ended yet
	}
	m.self, err = cluster.ParseIncarnation(strings.TrimPrefix(results[2].Path, modelPaths.Election()+"/"))
	if err != nil {
		panic(err)
	}
	m.epoch = record.Epoch
	m.views, m.works, m.pending = make(map[int]cluster.Snapshot), make(map[int]*modelWork), make(map[int]bool)
	m.electors, m.last = make(map[int]*elector.Elector), make(map[int]int64)
	m.w.say("%s registers for epoch %d", m.self.Name, m.epoch)
}

func (m *modelMember) registered() bool { return m.self.Name != "" && !m.crashed }

// read reads a slot. A view may keep an older current: then its parts do not belong together.
func (m *modelMember) read(slot int, torn bool) {
	p, get := modelPaths.OfSlot(slot), func(path string) ([]byte, cluster.Stat, bool) {
		data, stat, err := m.w.tree.Get(m.session, path, false)
		return data, stat, err == nil
	}
	old := m.views[slot]
	s := cluster.Snapshot{Self: m.self, Session: m.session, Slot: p.Slot, Leadership: true, Slots: m.w.slots()}
	data, stat, ok := get(p.Elected())
	s.Elected = decode(m.w, data, stat, ok, cluster.ReadStored[cluster.Elected])
	data, stat, ok = get(p.Leader())
	s.Fence = decode(m.w, data, stat, ok, cluster.ReadFence)
	data, stat, ok = get(p.Current())
	if s.Current = decode(m.w, data, stat, ok, cluster.ReadStored[cluster.Current]); torn && old.Leadership {
		s.Current = old.Current
	}
	names, _, _ := m.w.tree.Children(m.session, p.Election(), false)
	in, _ := cluster.ParseIncarnations(names)
	for _, i := range in {
		data, stat, ok = get(p.Node(i.ID))
		s.Members = append(s.Members, cluster.Member{Incarnation: i, Node: decode(m.w, data, stat, ok, cluster.ReadStored[cluster.Node])})
	}
	s.Elector = len(in) > 0 && in[0].Name == m.self.Name
	m.views[slot] = s
}

// acquire sends ACQUIRE if this member is elected.
func (m *modelMember) acquire(slot int) {
	s, p := m.views[slot], modelPaths.OfSlot(slot)
	elected, fenced := s.Terms()
	err := s.CheckSlots(m.epoch)
	if m.w.broken == acquireOldEpoch {
		err = nil
	}
	if !s.Leadership || err != nil || s.Elected.Record.Incarnation != m.self.Name || elected <= max(fenced, m.last[slot]) || s.Current.Exists ||
		!s.Fence.Readable() || m.works[slot] != nil || m.pending[slot] {
		return
	}
	owed, _ := s.Owed(modelWait)
	fence := cluster.Fence{
		Term: elected, Node: m.id, Incarnation: m.self.Name, State: cluster.FenceHeld, Owed: cluster.Duration(owed),
		LeaseWait: cluster.Duration(modelWait), Kill: cluster.Duration(time.Second), RevokeTimeout: cluster.Duration(20 * time.Second),
	}
	ops := p.AcquireTx(s, fence, cluster.Current{Term: elected, Node: m.id, Incarnation: m.self.Name})
	if m.w.broken == acquireUnchecked {
		ops = without(ops, modelPaths.Slots())
	}
	sent, self := m.w.now, m.self.Name
	m.pending[slot] = true
	m.w.send(m.session, ops, func(results []cluster.Result, err error) {
		if self != m.self.Name || m.crashed {
			return
		}
		m.pending[slot] = false
		if err != nil {
			return
		}
		m.last[slot] = elected
		if now := m.w.slots().Record.Epoch; now != m.epoch {
			m.w.failure = fmt.Sprintf("%s acquires slot %d for epoch %d in epoch %d", self, slot, m.epoch, now)
		}
		m.w.say("%s leads slot %d in term %d of epoch %d", self, slot, elected, m.epoch)
		m.works[slot] = &modelWork{
			slot: slot, epoch: m.epoch, fence: fence, lease: sent + modelLease, waitOver: m.w.now + owed,
			held: cluster.HeldVersions{Self: self, Elected: s.Elected.Stat.Version, Fence: results[cluster.ResultFence].Version},
		}
	})
}

func without(ops []cluster.Op, path string) []cluster.Op {
	return slices.DeleteFunc(slices.Clone(ops), func(op cluster.Op) bool {
		return op.Kind == cluster.OpCheck && (op.Path == path || strings.HasSuffix(path, "/") && strings.HasPrefix(op.Path, path))
	})
}

// renew sends RENEW, and ends work that has lost its leadership.
func (m *modelMember) renew(slot int) {
	k := m.works[slot]
	if k == nil || k.dead || m.w.now >= k.lease {
		return
	}
	if _, err := m.w.apply(m.session, modelPaths.OfSlot(slot).RenewTx(k.held)...); err == nil {
		k.lease = m.w.now + modelLease
	} else {
		k.dead = true
	}
}

// follow stops work that is no longer wanted, and releases what has stopped.
func (m *modelMember) follow(slot int) {
	s, k, p := m.views[slot], m.works[slot], modelPaths.OfSlot(slot)
	if k == nil {
		if s.HoldsCurrent() && !m.pending[slot] { // an ACQUIRE took effect without a reply
			f := s.Fence.Record
			f.State = cluster.FenceUnclean
			f.Owed = cluster.Duration(modelWait)
			_, _ = m.w.apply(m.session, p.ReleaseTx(cluster.HeldVersions{Self: m.self.Name, Fence: s.Fence.Stat.Version, Current: s.Current.Stat.Version}, f)...)
		}
		return
	}
	if s.CheckSlots(m.epoch) != nil || s.Elected.Record.Term != k.fence.Term || !s.HoldsCurrent() || m.w.now >= k.lease {
		k.dead = true
	}
	if !k.dead {
		return
	}
	f := k.fence
	f.State = cluster.FenceReleased
	if m.w.now < k.waitOver {
		f.State = cluster.FenceUnclean
	}
	m.w.send(m.session, p.ReleaseTx(k.held, f), nil)
	delete(m.works, slot)
}

// leave ends the instance when its epoch has ended, or all members leave. Then a new one begins.
func (m *modelMember) leave() {
	record := m.w.slots()
	if record.Record.Epoch == m.epoch && !m.w.leaving {
		return
	}
	for _, k := range m.works {
		k.dead = true
	}
	d := cluster.Departure{ID: m.id, Session: m.session, Self: m.self.Name, Incarnations: []string{m.self.Name}, Requested: true}
	for slot := range 5 {
		m.read(slot, false)
		s := m.views[slot]
		l := cluster.Leadership{Slot: s.Slot, Fence: s.Fence, Current: s.Current}
		if k := m.works[slot]; k != nil && m.w.now < k.waitOver {
			l.Owed = modelWait
		}
		d.Leaderships = append(d.Leaderships, l)
	}
	_, d.Node.Stat, _ = m.w.tree.Get(m.session, modelPaths.Node(m.id), false)
	d.Node.Exists = true
	ops, err := modelPaths.LeaveTx(d)
	if err != nil {
		panic(err)
	}
	if _, err := m.w.apply(m.session, ops...); err != nil {
		return
	}
	m.w.say("%s has left", m.self.Name)
	m.self = cluster.Incarnation{}
	m.register()
}

var modelPolicy = func() *policy.Policy {
	p, err := policy.New(cluster.Policy{Rules: cluster.Rules{Type: "priority"}})
	if err != nil {
		panic(err)
	}
	return p
}()

// elect decides about a slot.
func (m *modelMember) elect(slot int) {
	s := m.views[slot]
	if !s.Leadership || !s.Elector {
		return
	}
	if m.electors[slot] == nil {
		m.electors[slot] = elector.New(elector.Options{Exclusion: time.Minute, ExclusionMax: time.Minute, Epoch: m.epoch})
	}
	in := elector.Input{Snapshot: s, Policy: modelPolicy, Now: m.w.now, Wall: time.Unix(1000, 0).Add(m.w.now)}
	for i := range 5 {
		if v := m.views[i]; i != slot && (v.Leadership || m.w.broken == electBlind) {
			v.Slot = modelPaths.OfSlot(i).Slot
			in.Others = append(in.Others, v.SlotState())
		}
	}
	in.Others = slices.DeleteFunc(in.Others, func(o cluster.SlotState) bool { return cluster.SlotNumber(o.Slot) >= s.Slots.Record.Count })
	for _, x := range s.Elected.Record.Exclusions {
		x.Expired = x.Expired || m.w.fair
		in.Exclusions = append(in.Exclusions, x)
	}
	d := m.electors[slot].Decide(in)
	if d.Elect == nil {
		return
	}
	others := in.Others
	if m.w.broken == electUnchecked || m.w.broken == electBlind {
		others = nil
	}
	ops := modelPaths.OfSlot(slot).ElectTx(s, *d.Elect, d.Fence, others...)
	m.w.send(m.session, ops, func(_ []cluster.Result, err error) {
		m.w.say("%s elects %s for slot %d in term %d: %v", m.id, d.Elect.Node, slot, d.Elect.Term, err)
	})
}

// step does something at random.
func (w *modelWorld) step() {
	m, slot := w.members[w.rng.IntN(len(w.members))], w.rng.IntN(5)
	switch choice := w.rng.IntN(60); {
	case choice < 8:
		w.now += time.Duration(1+w.rng.IntN(2)) * time.Second / 2
	case choice < 12 && len(w.flights) > 0:
		w.deliver(w.rng.IntN(len(w.flights)))
	case choice == 12 && !m.crashed && w.rng.IntN(4) == 0:
		m.crashed = true
		w.say("%s crashes", m.id)
	case choice < 15 && m.crashed:
		m.expire()
	case choice == 15 && w.rng.IntN(2) == 0:
		path := modelPaths.OfSlot(slot).Current()
		if _, err := w.apply(w.admin, cluster.Op{Kind: cluster.OpDelete, Path: path, Version: cluster.AnyVersion}); err == nil {
			w.say("%s is deleted by hand", path)
		}
	case choice < 18 && (w.leaving || w.rng.IntN(16) == 0):
		w.leaving = true
		size := cluster.SlotSize{Count: 1 + w.rng.IntN(5)}
		size.PerNode = 1 + w.rng.IntN(size.Count)
		w.setSlots(size)
	case m.registered():
		m.act(choice, slot)
	case !m.crashed:
		m.register()
	}
}

// setSlots changes the number of slots, if that is not refused. Then the members come back.
func (w *modelWorld) setSlots(size cluster.SlotSize) {
	read := w.slots()
	var table []cluster.SlotState
	for i := range 5 {
		p := modelPaths.OfSlot(i)
		s := cluster.SlotState{Slot: p.Slot}
		data, stat, err := w.tree.Get(w.admin, p.Leader(), false)
		s.Fence = decode(w, data, stat, err == nil, cluster.ReadFence)
		data, stat, err = w.tree.Get(w.admin, p.Current(), false)
		s.Current = decode(w, data, stat, err == nil, cluster.ReadStored[cluster.Current])
		table = append(table, s)
	}
	next := read.Record
	next.SlotSize, next.Epoch = size, next.Epoch+1
	ops, _, err := modelPaths.SetSlotsTx(read, next, table)
	if w.broken == keepFences {
		ops = slices.DeleteFunc(ops, func(op cluster.Op) bool { return op.Kind == cluster.OpSet && op.Path != modelPaths.Slots() })
	}
	if err == nil {
		_, err = w.apply(w.admin, ops...)
	}
	w.say("%s: %v", size, err)
	w.leaving = err != nil
}

// expire ends the session of a member that has crashed, and begins another one. Its work goes on until its lease is over.
func (m *modelMember) expire() {
	for _, k := range m.works {
		m.w.lost = append(m.w.lost, k)
	}
	m.w.tree.End(m.session)
	m.self, m.works = cluster.Incarnation{}, nil
	m.join()
}

// act does one thing as a member.
func (m *modelMember) act(choice, slot int) {
	switch {
	case choice < 24:
		m.read(slot, m.w.rng.IntN(4) == 0)
	case choice < 34:
		m.read(slot, false)
		m.acquire(slot)
	case choice < 43:
		m.renew(slot)
	case choice < 45:
		m.follow(slot)
	case choice < 46 || m.w.leaving && choice < 50:
		m.leave()
	case choice < 52:
		m.elect(slot)
	default:
		for i := range 5 {
			if m.w.rng.IntN(5) > 0 {
				m.read(i, m.w.rng.IntN(8) == 0)
			}
		}
	}
}

// check checks the promises.
func (w *modelWorld) check() {
	if w.failure != "" {
		return
	}
	record, all := w.slots().Record, slices.Clone(w.lost)
	for _, m := range w.members {
		all = slices.AppendSeq(all, maps.Values(m.works))
	}
	all = slices.DeleteFunc(all, func(k *modelWork) bool { return !k.running(w.now) })
	for i, k := range all {
		for _, other := range all[:i] {
			if k.epoch != other.epoch {
				w.failure = fmt.Sprintf("slot %d of epoch %d works beside slot %d of epoch %d", k.slot, k.epoch, other.slot, other.epoch)
			} else if k.slot == other.slot {
				w.failure = fmt.Sprintf("slot %d works twice", k.slot)
			}
		}
	}
	if w.zxid == w.changes {
		return
	}
	w.zxid = w.changes
	for _, m := range w.members {
		elected := 0
		for slot := range record.Count {
			p := modelPaths.OfSlot(slot)
			data, stat, err := w.tree.Get(w.admin, p.Elected(), false)
			s := cluster.SlotState{Elected: decode(w, data, stat, err == nil, cluster.ReadStored[cluster.Elected])}
			data, stat, err = w.tree.Get(w.admin, p.Leader(), false)
			s.Fence = decode(w, data, stat, err == nil, cluster.ReadFence)
			if m.self.Name != "" && m.epoch == record.Epoch && s.Elected.Record.Incarnation == m.self.Name && !s.Ended() {
				elected++
			}
		}
		if elected > record.PerNode {
			w.failure = fmt.Sprintf("%s is elected for %d of at most %d slots", m.id, elected, record.PerNode)
			return
		}
	}
}

// settle lets the group run without faults until every slot works, and fails if that does not happen.
func (w *modelWorld) settle() {
	w.fair, w.leaving = true, false
	for _, m := range w.members {
		if m.crashed {
			m.expire()
		}
	}
	for len(w.flights) > 0 {
		w.deliver(0)
	}
	for range 200 {
		w.now += time.Second
		for _, m := range w.members {
			clear(m.pending)
			if m.self.Name == "" {
				m.register()
				continue
			}
			for slot := range 5 {
				m.read(slot, false)
				m.follow(slot)
				m.acquire(slot)
				m.renew(slot)
				m.read(slot, false)
			}
			for slot := range 5 {
				m.elect(slot)
			}
			m.leave()
		}
		if w.check(); w.failure != "" || w.settled() {
			return
		}
	}
	w.failure = stuck
}

func (w *modelWorld) settled() bool {
	record := w.slots().Record
	working := 0
	for _, m := range w.members {
		for _, k := range m.works {
			if k.running(w.now) && k.epoch == record.Epoch {
				working++
			}
		}
	}
	// A node may lead fewer slots than there are for it.
	return working == min(record.Count, len(w.members)*record.PerNode)
}

// runModel runs one schedule, and returns how it failed.
func runModel(seed uint64, broken string) *modelWorld {
	w := newModelWorld(seed, broken)
	if seed%4 > 0 { // from all slots working, or from nothing
		if w.settle(); w.failure != "" {
			return w
		}
		w.fair = false
	}
	for range 400 {
		w.step()
		if w.check(); w.failure != "" {
			return w
		}
	}
	w.settle()
	return w
}

func TestSlotsUnderRandomSchedules(t *testing.T) {
	epochs := int64(0)
	for seed := range uint64(60) {
		w := runModel(seed, sound)
		if w.failure != "" {
			t.Fatalf("seed %d: %s\n%s", seed, w.failure, strings.Join(w.log, "\n"))
		}
		epochs += w.slots().Record.Epoch - 1000
	}
	if epochs < 60 {
		t.Errorf("only %d changes of the number of slots: the schedules test little", epochs)
	}
}

// scenario returns a group without leaders in which n0 is the elector and another member is elected for slot 1. Nothing is delayed.
func modelScenario(t *testing.T, broken string) (w *modelWorld, n0, candidate *modelMember) {
	w = newModelWorld(0, broken)
	w.fair, n0 = true, w.members[0]
	for slot := range 3 {
		n0.readAll()
		n0.elect(slot)
	}
	n0.readAll()
	for _, m := range w.members {
		if m.self.Name == n0.views[1].Elected.Record.Incarnation {
			candidate = m
		}
	}
	if candidate == nil || candidate == n0 {
		t.Fatalf("n0 elects %+v", n0.views[1].Elected.Record)
	}
	candidate.readAll()
	return w, n0, candidate
}

func (m *modelMember) readAll() {
	for slot := range 5 {
		m.read(slot, false)
	}
}

// replace begins another epoch by hand, although members are registered.
func (w *modelWorld) replace() {
	read := w.slots()
	next := read.Record
	next.Epoch++
	if _, err := w.apply(w.admin, modelPaths.SlotsTx("", read, next)...); err != nil {
		panic(err)
	}
}

// Each rule that is left out lets work of two epochs run.
func TestSlotsWithoutARule(t *testing.T) {
	for broken, run := range map[string]func(w *modelWorld, n0, c *modelMember){
		acquireUnchecked: func(w *modelWorld, _, c *modelMember) {
			w.held = true
			c.acquire(1)
			w.held = false
			w.replace()
			w.deliver(0)
		},
		acquireOldEpoch: func(w *modelWorld, _, c *modelMember) {
			w.replace()
			c.readAll()
			c.acquire(1)
		},
		keepFences: func(w *modelWorld, n0, c *modelMember) { // the lease of a lost host is running
			c.acquire(1)
			w.leaving, c.crashed = true, true
			c.expire()
			for _, m := range w.members {
				if m.registered() {
					m.leave()
				}
			}
			w.setSlots(cluster.SlotSize{Count: 1, PerNode: 1})
			n0.register()
			n0.readAll()
			n0.elect(0)
			n0.readAll()
			n0.acquire(0)
		},
	} {
		for _, rule := range []string{sound, broken} {
			w, n0, c := modelScenario(t, rule)
			run(w, n0, c)
			if w.check(); (w.failure == "") != (rule == sound) {
				t.Errorf("%s: left out %q: %q\n%s", broken, rule, w.failure, strings.Join(w.log, "\n"))
			}
		}
	}
}

// Each rule of ELECT that is left out elects a node for too many slots.
func TestElectionsWithoutARule(t *testing.T) {
	for _, broken := range []string{electUnchecked, electBlind} {
		found := false
		for seed := uint64(0); seed < 100 && !found; seed++ {
			w := runModel(seed, broken)
			found = strings.Contains(w.failure, "is elected for")
		}
		if !found {
			t.Errorf("%s: is not found", broken)
		}
	}
}
