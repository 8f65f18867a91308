package sim

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/transition"
)

// standbySeed makes the random numbers of these traits independent of the others: which worlds have promotable work
// changes no other world.
const standbySeed = 0x7374616e646279

// standbyTraits say how promotable work behaves.
type standbyTraits struct {
	fails, hangs float64       // orders; the work may obey them nevertheless, even much later
	took         time.Duration // the longest time that an order takes, unless it hangs
	warming      time.Duration // the longest time until the work is warm
	faults       float64       // something goes wrong at a step of a promotion or a demotion
	gap          time.Duration // between two ends of standbys, on average
}

// drawStandbys returns nil if no work is promotable.
func (w *world) drawStandbys() *standbyTraits {
	rng := rand.New(rand.NewPCG(w.seed, standbySeed))
	if w.broken.calmOutage || !w.broken.promoted && (w.broken.name != "" || rng.IntN(3) > 0) {
		return nil
	}
	t := &standbyTraits{
		took:    20 * time.Millisecond,
		warming: one(rng, []time.Duration{0, time.Second, 4 * time.Second}),
		gap:     time.Second + draw(rng, 10*time.Second),
	}
	if w.broken.promoted || rng.IntN(3) > 0 {
		t.took = one(rng, []time.Duration{20 * time.Millisecond, 300 * time.Millisecond, 1500 * time.Millisecond})
		t.fails, t.hangs, t.faults = rng.Float64()/3, rng.Float64()/3, rng.Float64()*float64(rng.IntN(2))
	}
	if w.broken.promoted {
		t.took, t.warming, t.faults = 300*time.Millisecond, time.Second, 0.3
	}
	return t
}

// focusOnStandbys makes leaders come and go, and much go wrong about promotions and demotions, but little else.
func (w *world) focusOnStandbys() {
	t := &w.traits
	t.stuck, t.refusesRelease, t.losing, t.granting = false, false, false, grantAlike
	t.lostWatch, t.hooks, t.handoverFault, t.deletedDecision, t.interrupted = 0, 0, 0, 0, 0
	t.stop, t.gap, t.total, t.slowKill, t.ready = 1500*time.Millisecond, 600*time.Millisecond, 0, 1, 10*time.Millisecond
	w.onlyPriorities()
	kinds := []string{
		"priority changed", "loop panics", "loop hangs", "daemon killed", "partition", "daemon paused", "current deleted",
		"leader's session closed from elsewhere",
	}
	for i, k := range faultKinds {
		if t.weights[i] = 0; slices.Contains(kinds, k.name) {
			t.weights[i] = 1
		}
		t.total += t.weights[i]
	}
	for i := range t.latency {
		t.latency[i], t.timeouts[i] = time.Millisecond, 4*time.Second
	}
}

// standby is the promotable work of a host in a resource, in all of its slots. It stands in for worker.Standby, and for
// the guard.
type standby struct {
	m     *resident
	proc  *process // nil while none runs
	state string
	since time.Duration // when the process was started
	pause time.Duration // before it is started again
}

// process is one run of promotable work.
type process struct {
	leads *member // for which it leads, whatever others believe; nil while it does not
	term  int64
	hung  bool // it does nothing any more
}

// begin starts the work, if the daemon takes part in the group and the work does not run.
func (s *standby) begin() {
	m, t := s.m, s.m.w.standbys
	if s.proc != nil || !m.alive || m.unguarded || m.removed || m.leaving || m.works() {
		return
	}
	p := &process{}
	s.proc, s.since = p, m.w.now
	s.set(cluster.StandbyWarming)
	m.w.after(m.w.between(0, t.warming), func() { s.warm(p) })
}

func (s *standby) warm(p *process) {
	if s.proc != p || p.hung || s.state == cluster.StandbyWarm {
		return
	}
	s.set(cluster.StandbyWarm)
	for _, m := range s.m.members {
		if m.work != nil && m.work.awaits() {
			m.take(m.work)
		}
	}
}

func (s *standby) set(state string) {
	s.state = state
	s.publish()
}

// publish publishes the state as soon as it can.
func (s *standby) publish() {
	if s.m.w.down {
		s.m.w.after(100*time.Millisecond, s.publish)
	} else if s.m.instance.active() {
		s.m.publish()
	}
}

// stop ends work that is not leader-only.
func (s *standby) stop() {
	if s != nil && !s.m.works() {
		s.ended(s.proc)
	}
}

// ended handles the end of a process. Another one is started, unless the daemon does not take part any more.
func (s *standby) ended(p *process) {
	if p == nil || s.proc != p {
		return
	}
	m := s.m
	if p.leads != nil {
		p.leads.g.check.ends(p.leads)
	}
	s.proc = nil
	s.set(cluster.StandbyCold)
	if s.pause = min(max(2*s.pause, 100*time.Millisecond), 5*time.Second); m.w.now-s.since > 10*time.Second {
		s.pause = 100 * time.Millisecond
	}
	if run := m.run; m.w.broken.name != staysCold {
		m.w.after(s.pause, func() {
			if m.run == run {
				s.begin()
			}
		})
	}
}

// works reports whether the work of the resource is leader-only on the host, in any slot.
func (m *resident) works() bool {
	return slices.ContainsFunc(m.members, func(m *member) bool { return m.work != nil && m.work.proc != nil })
}

// awaits reports whether w is a promotion that waits for a warm standby.
func (w *work) awaits() bool { return w.promotion && w.proc == nil }

// idle reports whether w is a promotion, and its process does not lead.
func (w *work) idle() bool { return w.promotion && (w.proc == nil || w.proc.leads == nil) }

// goesOn calls do, in the daemon, unless the promotion is over or is being ended.
func (m *member) goesOn(w *work, do func()) {
	m.process(w.l.s, func() {
		if m.work == w && !w.dying && !w.l.in.refused() {
			do()
		}
	})
}

// promote stands in for promotion.lead of package worker.
func (l *loop) promote(term int64) {
	m := l.m
	w := &work{l: l, term: term, run: m.run, promotion: true}
	m.work = w
	l.inline = append(l.inline, transition.ChildStarted{})
	m.w.after(m.w.traits.takeover, func() {
		m.goesOn(w, func() {
			if !w.promoted {
				m.promotionFails(w, "is not promoted in time")
			}
		})
	})
	if m.standby.state == cluster.StandbyWarm || m.w.broken.name == promotesCold {
		m.take(w)
	}
}

// take makes the work leader-only: it has the lease of the member from now on, and is promoted once the guard has
// confirmed that.
func (m *member) take(w *work) {
	s, b := m.standby, m.w.broken.name
	if s.proc == nil || s.m.works() { // it leads already, in another slot
		m.w.after(0, func() { m.goesOn(w, func() { m.promotionFails(w, "leads already") }) })
		return
	}
	if s.state != cluster.StandbyWarm {
		m.g.fail("warm: %s promotes work that is %s", m.name, s.state)
	}
	w.proc = s.proc
	m.faultAtStep("take")
	m.w.after(m.w.between(0, 5*time.Millisecond)+m.guardDelay(forever), func() {
		if m.work != w || w.dying {
			return
		}
		if w.leased = b != keepsForever; w.leased && m.clock() >= m.lease {
			m.kill()
			return
		}
		m.goesOn(w, func() {
			if b != promotesUnconfirmed {
				m.givePromotion(w)
			}
		})
	})
	if b == promotesUnconfirmed {
		m.givePromotion(w)
	}
}

// promotionFails kills work whose promotion has failed: it may still obey. Work that got no order is a standby again.
func (m *member) promotionFails(w *work, why string) {
	switch b := m.w.broken.name; {
	case !w.ordered, why == failedOrder && b == failedPromotion, why != failedOrder && b == latePromotion:
		m.workOver("was not promoted")
	default:
		m.kill()
	}
	w.l.process(func() { w.l.step(transition.ChildFailed{Err: errors.New("child " + why)}) })
}

const failedOrder = "has refused an order"

func (m *member) givePromotion(w *work) {
	w.ordered = true
	m.faultAtStep("promote")
	m.order(w, m.refuses, func() { w.proc.lead(m, w.term) }, func(ok bool) {
		if !ok {
			m.promotionFails(w, failedOrder)
			return
		}
		w.promoted = true
		w.l.watch(w)
	})
}

// lead makes the process lead.
func (p *process) lead(m *member, term int64) {
	if p.leads == nil {
		p.leads, p.term = m, term
		m.g.check.workStarted(m)
		m.r.checkWork(m)
	}
}

// obeys makes the process a standby.
func (p *process) obeys(m *member) {
	if p.leads == m {
		p.leads = nil
		m.g.check.ends(m)
	}
}

// order gives the work an order, which is obeyed in time if it succeeds; otherwise then, later or never. The daemon
// learns of an answer.
func (m *member) order(w *work, refused bool, obey func(), answered func(ok bool)) {
	t, p := m.w.standbys, w.proc
	took, ok, hangs := m.w.between(0, t.took), true, false
	if m.w.calm || m.w.quiet {
		took = min(took, 20*time.Millisecond)
	} else {
		hangs = m.w.chance(t.hangs)
		ok = !refused && !hangs && !m.w.chance(t.fails)
	}
	at := m.w.between(0, took+1)
	if !ok {
		at = m.w.between(0, 3*m.timeout)
	}
	if ok || !m.w.chance(0.3) {
		m.w.after(at, func() {
			if m.standby.proc == p && !p.hung {
				obey()
			}
		})
	}
	if hangs {
		m.w.faults["order hangs"]++
		return
	}
	m.w.after(took, func() { m.goesOn(w, func() { answered(ok) }) })
}

// demote stands in for promotion.demote of package worker.
func (m *member) demote(w *work, grace time.Duration) {
	b := m.w.broken.name
	switch {
	case !w.ordered, !w.promoted && b == notYetPromoted:
		m.workOver("was not promoted")
		return
	case !w.promoted || grace <= 0:
		m.kill()
		return
	}
	if b == leaseDropped {
		w.leased = false
	}
	m.faultAtStep("demote")
	m.order(w, m.stubborn, func() { w.proc.obeys(m) }, func(ok bool) {
		if ok || b == failedDemotion {
			m.w.faults["demoted"]++
			m.workOver("was demoted")
		} else {
			m.kill()
		}
	})
	m.w.at(m.when(m.clock()+grace), func() {
		m.goesOn(w, func() {
			if b == lateDemotion {
				m.workOver("was demoted")
			} else {
				m.kill()
			}
		})
	})
	if b == demotedEarly {
		m.workOver("is taken to be demoted")
	}
}

// faultAtStep has something go wrong now, or while an order is under way.
func (m *member) faultAtStep(step string) {
	w, t := m.w, m.w.standbys
	if w.calm || w.quiet || !w.chance(t.faults) {
		return
	}
	kind := w.rng.IntN(9)
	if kind > 6 {
		m.starved = max(m.starved, w.now+w.between(0, 3*m.timeout))
	}
	w.after(w.between(0, min(t.took, 300*time.Millisecond)), func() {
		if w.calm {
			return
		}
		w.faults["fault at the step "+step]++
		w.log("FAULT at the step %s: %d (%s)", step, kind, m.name)
		switch kind {
		case 0:
			m.crash(true)
		case 1:
			m.crash(false)
		case 2:
			m.killGuard()
		case 3:
			m.loop.hang(2 * m.timeout)
		case 4:
			m.standby.dies()
		case 5:
			m.quit()
		case 6: // the lease ends
			m.fallSilent(1, m.timeout+w.between(0, 2*m.timeout))
		default: // and the guard is starved
			m.fallSilent(2+w.rng.IntN(2), m.timeout+w.between(0, 2*m.timeout))
		}
	})
}

// dies makes the process end by itself.
func (s *standby) dies() {
	for _, m := range s.m.members {
		if w := m.work; w != nil && w.proc != nil {
			if !w.dying {
				m.dead("exited")
			}
			return
		}
	}
	s.stop()
}

// planStandbys has standbys end and cool.
func (w *world) planStandbys() {
	if w.standbys == nil || w.quiet {
		return
	}
	for at := w.between(0, 2*w.standbys.gap); at < w.traits.busy; at += w.between(0, 2*w.standbys.gap) {
		r := w.resources[w.rng.IntN(len(w.resources))]
		s, ends, lasts := r.residents[w.rng.IntN(len(w.hosts))].standby, w.chance(0.5), w.between(0, 5*time.Second)
		w.at(at, func() {
			p := s.proc
			switch {
			case p == nil:
			case ends:
				w.faults["standby ends"]++
				s.dies()
			case s.state == cluster.StandbyWarm && !s.m.works():
				w.faults["standby cools"]++
				s.set(cluster.StandbyWarming)
				w.after(lasts, func() { s.warm(p) })
			}
		})
	}
}

// electsWarm checks that no elector elects a member whose standby is not warm while it could elect another one.
func (c *checker) electsWarm(snap cluster.Snapshot, rec *cluster.Elected) {
	warm := func(node string) bool {
		i := slices.IndexFunc(snap.Members, func(m cluster.Member) bool { return m.ID == node })
		return i >= 0 && snap.Members[i].Node.Record.IsWarm()
	}
	move := snap.Control.Record.Move
	stays := rec.Incarnation == snap.Elected.Record.Incarnation && rec.Cause != cluster.CauseLapsed
	if c.w.standbys == nil || warm(rec.Node) || stays || move != nil && move.Force {
		return
	}
	for _, v := range rec.Ranking {
		if v.Rank > 0 && warm(v.Node) {
			c.g.fail("warm: %s is elected in term %d, and not %s, whose standby is warm", rec.Node, rec.Term, v.Node)
		}
	}
}

// unsettledStandbys returns what is missing until the work of all members is warm.
func (r *resource) unsettledStandbys() string {
	if r.w.standbys == nil {
		return ""
	}
	for _, m := range r.residents {
		rec := readCached(r.w, r.groups[0].known.nodes+"/"+m.id, cluster.ReadStored[cluster.Node]).Record
		s := m.standby
		warm := s.proc != nil && s.state == cluster.StandbyWarm && rec.IsWarm()
		if m.instance.active() && !m.instance.ends && !m.host.hangs() && !warm {
			return "warm: the standby of " + m.name + " is not warm"
		}
	}
	return ""
}

// The breakages of promotable work. They are in the models of the worker and the guard, but for one.
const (
	keepsForever        = "promoted work without a lease"
	promotesUnconfirmed = "work that is promoted before the guard has confirmed its lease"
	promotesCold        = "work that is promoted before it is warm"
	failedPromotion     = "work that goes on as a standby after it has refused to be promoted"
	latePromotion       = "work that goes on as a standby although its promotion was not answered"
	notYetPromoted      = "work that goes on as a standby although its promotion was cut short"
	failedDemotion      = "a demotion that has failed taken for one that succeeded"
	lateDemotion        = "a demotion that was not answered taken for one that succeeded"
	leaseDropped        = "a lease that is dropped before the work is demoted"
	demotedEarly        = "RELEASE while the work is being demoted"
	outlivesDaemon      = "promoted work that outlives its daemon"
	outlivesInstance    = "promoted work that outlives an abandoned instance"
	outlivesSession     = "promoted work that outlives its session"
	staysCold           = "a standby that is not started again"
	electsCold          = "an elector that does not know which standbys are warm"
)

// unleased reports whether the guard takes the work of a dead daemon, or of an abandoned instance, for a standby.
func (b breakage) unleased(w *work, why string) bool {
	return b.name == why && w != nil && w.proc != nil
}
