package sim

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/transition"
	"zkelectd/internal/transition/failsafe"
)

// failsafeWorld is what worlds have whose groups use failsafe mode: the network between the daemons, and what goes wrong in it.
type failsafeWorld struct {
	rng     *rand.Rand
	blocked [][]time.Duration // until when nothing arrives, from and to each host
	lost    float64
	twice   float64 // a message arrives again, much later
	slow    float64
	forgets int           // the only host that may lose its state directory; negative: none
	max     time.Duration // of the policies
	calm    bool          // nothing goes wrong but one outage
	// passives says which daemons begin without failsafe mode although they have promised something; nil if none do. It draws its own
	// numbers, so that the schedules with a breakage stay as they are.
	passives *rand.Rand

	starts uint64
}

// failsafeHost is what a host has for failsafe mode.
type failsafeHost struct {
	state    failsafe.State // on its disk
	promises *failsafe.Promises
	keys     int
	timer    time.Duration // the next probe
	passive  bool          // the daemon takes no part: it promises nothing, and only agrees to successors
	turnOff  bool          // the next daemon is passive
}

const (
	failsafeSeed = 0x66736166
	passiveSeed  = 0x70617373
)

// focusOnFailsafe makes the groups use failsafe mode. Nobody deletes fences: what was promised would be lost with them
// (docs/safety.md, What is not promised).
func (w *world) focusOnFailsafe() {
	rng := rand.New(rand.NewPCG(w.seed, failsafeSeed))
	f := &failsafeWorld{rng: rng, forgets: -1}
	w.failsafe = f
	if w.broken.name == "" || w.broken.passive {
		f.passives = rand.New(rand.NewPCG(w.seed, passiveSeed))
	}
	t := &w.traits
	for range t.hosts {
		f.blocked = append(f.blocked, make([]time.Duration, t.hosts))
	}
	if rng.IntN(2) == 0 {
		f.lost, f.twice, f.slow = rng.Float64()/4, rng.Float64()/2, rng.Float64()/4
	}
	if rng.IntN(3) == 0 {
		f.forgets = rng.IntN(t.hosts)
	}
	f.max = []time.Duration{0, 0, 3 * time.Second, 15 * time.Second}[rng.IntN(4)]
	t.granting = grantAlike
	t.busy, t.gap = t.busy+time.Duration(20+rng.IntN(50))*time.Second, 2*t.gap
	if t.busy > 2*time.Minute {
		t.busy = 2 * time.Minute
	}
	t.total = 0
	for i, k := range faultKinds {
		if k.tampering && k.uniform || rng.IntN(2) == 0 {
			t.weights[i] = 0
		}
		t.total += t.weights[i]
	}
	if rng.IntN(2) == 0 {
		t.total = 0
	}
	if rng.IntN(5) > 0 { // leaders lead for a while before something happens
		w.calmDown()
	}
	if w.broken.calmOutage {
		w.onlyAnOutage()
	}
	w.enableFailsafe()
}

// calmDown makes little go wrong by itself.
func (w *world) calmDown() {
	t := &w.traits
	t.slow, t.lateWatch, t.failing, t.dying, t.hooks, t.stuck = 0, 0, 0, 0, 0, false
	for i := range t.latency {
		t.latency[i] = min(t.latency[i], 50*time.Millisecond)
	}
	w.onlyPriorities()
}

// onlyPriorities makes the policies simple.
func (w *world) onlyPriorities() {
	t := &w.traits
	for i := range t.groups {
		t.groups[i].noise = false
		for j := range t.groups[i].rules {
			t.groups[i].rules[j] = cluster.Rules{Type: "priority", Sites: t.groups[i].rules[j].Sites}
		}
	}
}

// onlyAnOutage makes nothing go wrong by itself.
func (w *world) onlyAnOutage() {
	f, t := w.failsafe, &w.traits
	f.calm, f.max, f.lost, f.twice, f.slow, f.forgets = true, 0, 0, 0, 0, -1
	t.total, t.slow, t.lateWatch, t.lostWatch, t.lateWrites, t.failing, t.dying, t.handoverFault, t.deletedDecision, t.interrupted, t.hooks = 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
	t.uniform, t.stuck, t.refusesRelease, t.losing = true, false, false, false
	// A leader begins to ask at the latest 0.36 D before it gives up. A member needs D/6 to find out that there is an
	// outage, and the leader may pause for D/48 before it asks again. At most six messages and two busy loops come on
	// top of that, so D/60 for each message is about what is left. stop_timeout is what the configuration allows.
	lease := cluster.Lease(t.timeouts[0])
	t.stop = min(t.stop, cluster.FailsafeGrace(lease))
	for i := range t.hosts {
		t.latency[i], t.timeouts[i] = min(t.latency[i], 100*time.Millisecond, lease/60), t.timeouts[0]
	}
	for i := range t.groups {
		t.groups[i].noise = false
		for j := range t.groups[i].rules {
			t.groups[i].rules[j] = cluster.Rules{Type: "priority"}
		}
	}
}

// enableFailsafe puts failsafe mode into the policies; in some worlds only into some of them.
func (w *world) enableFailsafe() {
	f := w.failsafe
	sometimes := f.rng.IntN(4) == 0 && !f.calm
	for i := range w.traits.groups {
		for j := range w.traits.groups[i].rules {
			w.traits.groups[i].rules[j].Failsafe = cluster.FailsafeRules{Enabled: j == 0 || !sometimes || f.rng.IntN(2) == 0, Max: cluster.Duration(f.max)}
		}
	}
}

// patience returns how much longer it may take until there is a leader: promises lapse first, and vetoes are left to others for a while.
func (f *failsafeWorld) patience(w *world) time.Duration {
	var longest time.Duration
	for _, m := range w.groups[0].members {
		longest = max(longest, m.budget.LeaseWait)
	}
	return 10 * longest
}

// between returns a random duration.
func (f *failsafeWorld) between(from, to time.Duration) time.Duration {
	return from + time.Duration(f.rng.Int64N(int64(max(1, to-from))))
}

func (f *failsafeWorld) chance(p float64) bool { return f.rng.Float64() < p }

// planFailsafe plans outages and partitions, and what else happens meanwhile.
func (w *world) planFailsafe() {
	f := w.failsafe
	if f == nil || f.calm {
		return
	}
	w.faultsInFailsafe()
	if f.rng.IntN(2) == 0 {
		w.after(f.between(5*time.Second, 15*time.Second), w.membersComeAndGo)
	}
}

// faultsInFailsafe waits until a leader has made its members promise, lets an outage or a partition begin, and goes on after that.
func (w *world) faultsInFailsafe() {
	f := w.failsafe
	if w.calm {
		return
	}
	if !slices.ContainsFunc(w.groups, func(g *group) bool { return g.check.readFence().Record.Failsafe != nil && len(g.check.working) > 0 }) {
		w.after(f.between(0, time.Second), w.faultsInFailsafe)
		return
	}
	w.after(f.between(0, 3*time.Second), func() {
		if w.calm {
			return
		}
		w.after(w.beginOutage()+f.between(0, 5*time.Second), w.faultsInFailsafe)
	})
}

// beginOutage begins an outage or a partition and returns how long it lasts.
func (w *world) beginOutage() time.Duration {
	switch w.failsafe.rng.IntN(5) {
	case 0, 1:
		return w.longOutage()
	case 2:
		return w.isolateSome()
	}
	return w.isolatePromisers()
}

// isolatePromisers cuts a leader and all that must promise off from the servers and from the others. Its session ends at the servers
// meanwhile, and the members are mostly back before it.
func (w *world) isolatePromisers() time.Duration {
	f := w.failsafe
	g := w.groups[f.rng.IntN(len(w.groups))]
	fence := g.check.readFence().Record
	if fence.Failsafe == nil {
		return w.isolateSome()
	}
	w.faults["failsafe: promisers isolated"]++
	d := w.hosts[0].timeout + f.between(0, 2*w.hosts[0].timeout)
	w.log("FAULT %s and all that must promise are isolated", fence.Node)
	for i, h := range w.hosts {
		for j, other := range w.hosts {
			if fence.Names(h.id) != fence.Names(other.id) {
				f.blocked[i][j] = max(f.blocked[i][j], w.now+d)
			}
		}
		switch {
		case h.id == fence.Node:
			h.cut(d+f.between(0, h.timeout), f.between(0, h.timeout/4))
		case fence.Names(h.id):
			h.cut(d+f.between(0, h.timeout/3), f.between(0, h.timeout/4))
			if f.rng.IntN(4) == 0 {
				w.after(d-f.between(0, h.timeout), func() {
					if !w.calm {
						h.crash(f.rng.IntN(2) == 0)
					}
				})
			}
		}
	}
	return d
}

// membersComeAndGo makes leaders change who must promise.
func (w *world) membersComeAndGo() {
	f := w.failsafe
	if w.calm {
		return
	}
	h := w.hosts[f.rng.IntN(len(w.hosts))]
	if !h.working() {
		h.quit()
	}
	w.after(f.between(time.Second, 8*time.Second), w.membersComeAndGo)
}

// faultDuringSetMembers begins an outage while a SETM is under way.
func (w *world) faultDuringSetMembers(m *member) {
	f := w.failsafe
	if w.calm || f.calm || f.rng.IntN(4) > 0 {
		return
	}
	w.after(f.between(0, 3*w.traits.latency[m.number]), func() {
		if w.calm {
			return
		}
		w.faults["failsafe: fault during SETM"]++
		switch f.rng.IntN(3) {
		case 0:
			m.reset()
		default:
			w.beginOutage()
		}
	})
}

// longOutage takes the servers down while hosts fail.
func (w *world) longOutage() time.Duration {
	f := w.failsafe
	longest := w.hosts[0].timeout
	d := f.between(longest/2, 4*longest)
	w.faults["failsafe: long outage"]++
	w.log("FAULT a long outage")
	w.outage(d)
	for range f.rng.IntN(4) {
		w.after(f.between(0, d+longest), w.failSomething)
	}
	w.reconnectInAnyOrder(d)
	return d
}

// reconnectInAnyOrder lets some hosts find the servers later than others.
func (w *world) reconnectInAnyOrder(d time.Duration) {
	f := w.failsafe
	for _, h := range w.hosts {
		if f.rng.IntN(2) == 0 {
			late := f.between(0, h.timeout)
			w.after(d-time.Millisecond, func() { h.cut(late, h.timeout) })
		}
	}
}

// isolateSome cuts some hosts off from the servers and from the others, mostly with a leader among them.
func (w *world) isolateSome() time.Duration {
	f := w.failsafe
	inside := make([]bool, len(w.hosts))
	for i := range inside {
		inside[i] = f.rng.IntN(3) == 0
	}
	for _, g := range w.groups {
		if len(g.check.working) > 0 && f.rng.IntN(5) > 0 {
			inside[g.check.working[0].number] = true
		}
	}
	d := f.between(w.hosts[0].timeout/2, 5*w.hosts[0].timeout)
	leaky := f.rng.IntN(4) == 0 // the daemons still reach one another
	w.faults["failsafe: some isolated"]++
	w.log("FAULT isolated: %v, leaky: %v", inside, leaky)
	for i, h := range w.hosts {
		for j := range w.hosts {
			if inside[i] != inside[j] && !leaky {
				f.blocked[i][j] = max(f.blocked[i][j], w.now+d)
			}
		}
		if inside[i] {
			h.cut(d+f.between(0, h.timeout/2), f.between(0, h.timeout))
		}
	}
	for range f.rng.IntN(3) {
		w.after(f.between(0, d+w.hosts[0].timeout), w.failSomething)
	}
	return d
}

// failSomething makes a host or a connection fail.
func (w *world) failSomething() {
	f := w.failsafe
	if w.calm {
		return
	}
	h, other := w.hosts[f.rng.IntN(len(w.hosts))], w.hosts[f.rng.IntN(len(w.hosts))]
	w.faults["failsafe: something fails meanwhile"]++
	switch kind := f.rng.IntN(9); kind {
	case 0:
		h.crash(true)
	case 1:
		h.crash(false)
	case 2:
		h.quit()
	case 3:
		h.pause(f.between(0, 2*h.timeout))
	case 4: // one way only
		f.blocked[h.number][other.number] = w.now + f.between(0, 2*h.timeout)
	case 5:
		f.blocked[h.number][other.number] = w.now + f.between(0, 2*h.timeout)
		f.blocked[other.number][h.number] = f.blocked[h.number][other.number]
	case 6: // all restarted at once
		for _, h := range w.hosts {
			h.crash(f.rng.IntN(2) == 0)
		}
	case 7:
		h.cut(f.between(0, 2*h.timeout), f.between(0, h.timeout))
	default: // the state directory is lost
		if f.forgets >= 0 {
			w.faults["failsafe: state lost"]++
			h = w.hosts[f.forgets]
			h.failsafe.state = failsafe.State{}
			h.crash(f.rng.IntN(2) == 0)
		}
	}
}

func (w *world) healPeers() {
	f := w.failsafe
	if f == nil {
		return
	}
	f.lost, f.twice, f.slow, f.forgets = 0, 0, 0, -1
	for _, row := range f.blocked {
		clear(row)
	}
}

// newState makes a state directory, unless the host has one.
func (h *host) newState() {
	f := &h.failsafe
	if f.state.Key == "" {
		f.keys++
		f.state.Key = h.id + "-" + string(rune('a'+f.keys))
	}
}

func (h *host) beginPromises() {
	if h.w.failsafe == nil {
		return
	}
	h.newState()
	if f := h.w.failsafe; f.passives != nil && !f.calm {
		h.failsafe.turnOff = f.passives.IntN(4) == 0
	}
	if h.failsafe.passive = h.failsafe.turnOff; h.failsafe.passive {
		h.w.faults["failsafe: a daemon takes no part any more"]++
	}
	h.failsafe.promises, h.failsafe.timer = failsafe.NewPromises(h.w.broken.begins(failsafe.Options{State: h.failsafe.state, Start: h.clock()})), 0
}

func (h *host) setBudget() {
	if h.w.failsafe == nil {
		return
	}
	b := h.members[0].budget
	next, _ := h.failsafe.promises.WithWait(b.LeaseWait)
	h.failsafe.state = next
	h.failsafe.promises.SetBudget(b)
}

func (m *resident) failsafeNode() *cluster.FailsafeNode {
	if m.host.failsafe.promises == nil {
		return nil
	}
	n := &cluster.FailsafeNode{Key: m.failsafe.promises.Key(), Address: m.id}
	if m.host.failsafe.passive {
		n.Address = ""
	}
	return n
}

func (in *instance) failsafe() *transition.Failsafe {
	f := in.m.w.failsafe
	if f == nil {
		return nil
	}
	f.starts++
	return &transition.Failsafe{Key: in.m.host.failsafe.promises.Key(), Start: f.starts, Passive: in.m.host.failsafe.passive}
}

func (m *resident) registerPromises(self string) {
	if p := m.host.failsafe.promises; p != nil {
		if m.host.failsafe.passive {
			self = ""
		}
		for _, g := range m.r.groups {
			p.Register(failsafe.Group(g.paths), self)
		}
	}
}

// daemon makes the process do something that does not depend on its session.
func (h *host) daemon(run int, do func()) {
	step := func() {
		if h.alive && h.run == run {
			do()
		}
	}
	if h.paused {
		h.waiting = append(h.waiting, step)
		return
	}
	step()
}

func (h *host) suspect() {
	if p := h.failsafe.promises; p != nil {
		p.Suspect()
		h.probe()
	}
}

// probe sends a probe if one is due, and plans the next one.
func (h *host) probe() {
	p, now := h.failsafe.promises, h.clock()
	if !h.alive || p == nil {
		return
	}
	if p.Probe(now) {
		h.sendProbe(p)
	}
	at := p.Wake()
	if at == 0 || h.failsafe.timer != 0 && h.failsafe.timer <= at {
		return
	}
	h.failsafe.timer = at
	run := h.run
	h.w.at(h.when(at), func() {
		h.daemon(run, func() {
			if h.failsafe.timer == at {
				h.failsafe.timer = 0
				h.probe()
			}
		})
	})
}

func (h *host) sendProbe(p *failsafe.Promises) {
	done := false
	finish := func(err error) {
		if !done && h.failsafe.promises == p {
			done = true
			p.ProbeDone(h.clock(), err)
			h.probe()
		}
	}
	i := slices.IndexFunc(h.residents, func(m *resident) bool { return m.instance.active() })
	if h.session == nil || i < 0 {
		h.w.after(0, func() { finish(cluster.ErrNotSent) })
		return
	}
	in := h.residents[i].instance
	h.w.at(h.when(h.clock()+h.timeout), func() { finish(cluster.ErrUnknown) })
	h.session.send(&request{ops: in.m.r.groups[0].paths.ProbeTx(in.self.Name), done: func(rep reply) { finish(rep.err) }})
}

// toPeer takes a message from a daemon to another one; or twice, or never. What arrives late may meet another process.
func (h *host) toPeer(to *host, arrive func()) {
	w, f := h.w, h.w.failsafe
	if f.blocked[h.number][to.number] > w.now || f.chance(f.lost) {
		return
	}
	most := max(w.traits.latency[h.number], w.traits.latency[to.number])
	d := f.between(most/4, most)
	if f.chance(f.slow) {
		d += f.between(0, h.timeout)
	}
	deliver := func() { to.daemon(to.run, arrive) }
	w.after(d, deliver)
	if f.chance(f.twice) {
		w.after(d+f.between(0, 3*h.timeout), deliver)
	}
}

func (l *loop) sendRound(a transition.SendRound) {
	m := l.m
	m.w.faults["failsafe: round"]++
	if l.in.refused() {
		return
	}
	l.round = l.round[:0]
	for _, msg := range a.Messages {
		l.round = append(l.round, msg.Request)
		i := slices.IndexFunc(m.w.hosts, func(h *host) bool { return h.id == msg.To.ID })
		to := m.w.hosts[i]
		m.toPeer(to, func() {
			p := to.failsafe.promises
			rep := m.w.broken.grants(to, p, msg.Request)
			to.probe()
			m.w.log("%s: answers round %d of %s in term %d: %v %s", to.id, msg.Round, msg.Holder, msg.Term, rep.OK, rep.Reason)
			to.toPeer(m.host, func() { m.roundReply(rep) })
		})
	}
}

// roundReply passes a reply to the loop that runs now.
func (m *member) roundReply(rep failsafe.Reply) {
	if l := m.loop; l != nil {
		l.soon(func() { l.step(transition.RoundReply{Reply: rep}) })
	}
}

// remember makes the host refuse later promises, unless it is bound, and stores that.
func (l *loop) remember(term int64) {
	h := l.m.host
	if l.m.w.broken.name == neverVetoes && !l.elected() {
		return
	}
	p, run := h.failsafe.promises, h.run
	if bound := l.m.w.broken.vetoes(h, p, failsafe.Group(l.m.g.paths), term); bound > 0 {
		l.soon(func() { l.step(transition.Remembered{Term: term, Bound: bound}) })
		return
	}
	l.m.w.after(l.m.w.failsafe.between(0, 20*time.Millisecond), func() {
		h.daemon(run, func() {
			h.failsafe.state = p.State()
			l.process(func() { l.soon(func() { l.step(transition.Remembered{Term: term}) }) })
		})
	})
}

func (l *loop) currentGone(term int64) {
	if l.m.w.broken.notesGone() {
		l.m.host.failsafe.promises.Gone(failsafe.Group(l.m.g.paths), term)
	}
}

// extendedByRound notes that a lease is extended by a round, and checks that everybody is bound who might let another one take over.
func (l *loop) extendedByRound(deadline time.Duration) {
	m := l.m
	if !l.byRound {
		return
	}
	m.w.faults["failsafe: lease extended by a round"]++
	c := &m.g.check
	until := m.when(deadline)
	term := l.machine.Term()
	if c.extended == nil {
		c.extended = make(map[int64]extension)
	}
	c.extended[term] = extension{m, max(until, c.extended[term].until), c.promising()}
	c.checkBound(m, term, until)
}

// extension is until when the work of a term may go on without ZooKeeper.
type extension struct {
	m     *member
	until time.Duration
	by    []cluster.FailsafeMember // who has promised
}

// promising returns who must promise, by the fence.
func (c *checker) promising() []cluster.FailsafeMember {
	if fs := c.readFence().Record.Failsafe; fs != nil {
		return fs.Members
	}
	return nil
}

// end returns when the work is dead at the latest.
func (e extension) end() time.Duration {
	return e.until + time.Duration(killTakes*float64(e.m.timeout)/e.m.rate)
}

// checkBound checks that every possible successor is bound until the work of a term is dead.
func (c *checker) checkBound(m *member, term int64, until time.Duration) {
	f := c.readFence().Record
	if c.readElected().Record.Term < term { // the records were lost
		return
	}
	fs := f.Failsafe
	switch {
	case f.Term != term || f.State != cluster.FenceReady:
		if f.Term == term && f.State == cluster.FenceRevoked && fs != nil && fs.Veto == "" {
			break
		}
		c.g.fail("failsafe: %s extends its lease in term %d, but the fence is %s in term %d", m.id, term, f.State, f.Term)
		return
	case fs == nil || len(fs.Members) == 0:
		c.g.fail("failsafe: %s extends its lease in term %d, but nobody has to promise anything", m.id, term)
		return
	case fs.Veto != "":
		c.g.fail("failsafe: %s extends its lease in term %d, which %s has vetoed", m.id, term, fs.Veto)
		return
	}
	end := extension{m: m, until: until}.end()
	for _, x := range fs.Members {
		i := slices.IndexFunc(c.w.hosts, func(h *host) bool { return h.alive && h.failsafe.promises != nil && h.failsafe.promises.Key() == x.Key })
		if i < 0 {
			continue // what starts there is bound, or has another key
		}
		h := c.w.hosts[i]
		group := failsafe.Group(c.g.paths)
		if p := h.failsafe.promises; h.when(p.Bound(group)) < end || p.Vetoed(group) >= term {
			c.g.fail("failsafe: %s extends its lease in term %d to %s, and its work may run until %s, but %s is bound until %s and has vetoed term %d",
				m.id, term, until, end, h.id, h.when(p.Bound(group)), p.Vetoed(group))
		}
	}
}

// fencesBefore returns the fences that a transaction writes, as they are before it.
func (w *world) fencesBefore(ops []cluster.Op) []fenceBefore {
	if w.failsafe == nil {
		return nil
	}
	var out []fenceBefore
	for _, g := range w.groups {
		if slices.ContainsFunc(ops, func(op cluster.Op) bool { return op.Kind != cluster.OpCheck && op.Path == g.known.leader }) {
			out = append(out, fenceBefore{g, g.check.readFence().Record})
		}
	}
	return out
}

type fenceBefore struct {
	g *group
	f cluster.Fence
}

// checkSuccession checks that nobody acquires or vetoes while work may run because of promises. A SETM since then has ended that: it is
// written only while the lease from ZooKeeper ends no earlier, and that one a successor waits for.
func (w *world) checkSuccession(before []fenceBefore) {
	for _, b := range before {
		after := b.g.check.readFence().Record
		acquired := after.Term > b.f.Term && b.f.State != cluster.FenceReleased
		vetoed := after.Failsafe != nil && after.Failsafe.Veto != "" && (b.f.Failsafe == nil || b.f.Failsafe.Veto == "")
		if vetoed {
			w.faults["failsafe: VETO"]++
		}
		if acquired && b.f.Failsafe != nil {
			w.faults["failsafe: ACQUIRE after promises"]++
		}
		e, extended := b.g.check.extended[b.f.Term]
		same := b.f.Failsafe != nil && slices.Equal(b.f.Failsafe.Members, e.by)
		if extended && same && (acquired || vetoed) && w.now < e.end() && e.m.work != nil && e.m.work.term == b.f.Term {
			b.g.fail("failsafe: the work of term %d may run until %s because of promises, but now its fence is %s of %s in term %d, vetoed: %v",
				b.f.Term, e.end(), after.State, after.Node, after.Term, vetoed)
		}
	}
}

// Groups in failsafe mode are checked by themselves, so that a short run has enough of them.
func TestFailsafe(t *testing.T) {
	simulate(t, func(seed uint64) shape { return shape{groups: 1 + 2*int(seed%6/5), failsafe: true} })
}

// playOutage runs one outage of ten session timeouts with all members up, which reconnect in any order, and returns what went wrong.
func playOutage(seed uint64, b breakage, trace func(string)) *world {
	w := newWorld(seed, shape{groups: 1 + 2*int(seed%2), failsafe: true}, b, trace)
	f, t := w.failsafe, &w.traits
	w.run(30 * time.Second)
	for _, g := range w.groups {
		if w.failure == "" && len(g.check.working) != 1 {
			g.fail("L1: nobody leads before the outage")
		}
	}
	w.turnOneOff()
	before := w.works()
	longest := slices.Max(t.timeouts)
	d := 10 * longest
	w.outage(d)
	for _, h := range w.hosts {
		late := f.between(0, h.timeout/4) // the longest pause between two attempts to reconnect
		w.after(d-time.Millisecond, func() { h.cut(late, h.timeout) })
	}
	w.run(w.now + d + 3*longest)
	for i, x := range w.works() {
		if w.failure == "" && (x == nil || x != before[i]) {
			w.groups[i].fail("needless: the work of term %d was stopped in an outage with all members up", before[i].term)
		}
	}
	w.closeReaders()
	return w
}

// turnOneOff makes a host without work take no part any more, in some worlds, and if two others can still promise: they must not need it.
func (w *world) turnOneOff() {
	f := w.failsafe
	if w.failure != "" || f.passives == nil || f.passives.IntN(2) == 0 {
		return
	}
	idle := slices.DeleteFunc(slices.Clone(w.hosts), (*host).working)
	if len(idle) < 2 {
		return
	}
	h := idle[f.passives.IntN(len(idle))]
	h.failsafe.turnOff = true
	h.quit()
	w.run(w.now + 30*time.Second)
}

// works returns the work of each group.
func (w *world) works() []*work {
	all := make([]*work, len(w.groups))
	for i, g := range w.groups {
		if len(g.check.working) > 0 {
			all[i] = g.check.working[0].work
		}
	}
	return all
}

// In an outage with all members up no leader stops, in whatever order they reconnect.
func TestNoNeedlessStopInAnOutage(t *testing.T) {
	first, extended, n := firstSeed(), 0, uint64(0)
	for began := time.Now(); time.Since(began) < *runFor; n++ {
		w := playOutage(first+n, breakage{calmOutage: true}, nil)
		extended += w.faults["failsafe: lease extended by a round"]
		if w.failure == "" {
			continue
		}
		var lines []string
		playOutage(first+n, breakage{calmOutage: true}, func(line string) { lines = append(lines, line) })
		t.Fatalf("seed %d: %s\n%s", first+n, w.failure, strings.Join(lines[max(0, len(lines)-150):], "\n"))
	}
	t.Logf("%d outages from seed %d, %d extensions", n, first, extended)
}
