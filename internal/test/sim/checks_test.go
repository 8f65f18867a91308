package sim

import (
	"slices"
	"time"

	"zkelectd/internal/cluster"
)

// checker checks every step for S1 and S2, and the decisions for L2; converge checks the rest.
type checker struct {
	w       *world
	g       *group
	working []*member

	acquired  int64                            // the last term that was acquired
	fenced    int64                            // the term of the fence
	owner     int64                            // the session of current
	elected   int64                            // the last term that was decided
	decisions map[decision]*cluster.Elected    // as they were made
	others    map[decision][]cluster.SlotState // the other slots, as the elector had read them
	term      int64
	free      time.Duration // since when no other incarnation's current has blocked term; negative: it is blocked
	strikes   map[string]int
	struck    map[string]bool  // nodes that ever had a strike
	earned    map[string]int64 // the term of the last strike
	until     map[string]time.Duration
	joined    map[string]time.Duration
	terms     int

	instances     map[string]string // that have registered, by incarnation
	deciding      map[string]bool
	founded       map[string]time.Duration // when electors that began with an election began
	circumstances cluster.Circumstances    // of the last decision
	revision      int64                    // of the policy of the last decision
	moves         []time.Duration          // when policy has preempted the leader
	control       int64                    // the last change of control that was observed
	paused        time.Duration            // since when policy must not move the leader; negative: it may
	hard          time.Duration            // since when there must be no election; negative: there may be
	pardons       map[string]int64
	lastRequest   int64 // the highest number in control
	controlLost   bool  // it could not be read at some time
	fencedTerm    int64
	fencedNodes   map[string]time.Duration // when the leader of that term had fenced them
	extended      map[int64]extension      // by rounds, by term
	polls         map[decision]poll        // by which decisions were made
	died          time.Duration            // when the last work ended
	over          time.Duration            // when it could no longer write: it had ended, or its lease
	leaseEnd      time.Duration            // of the last lease
	held          map[int64]bool           // the requested elections that were held, by request number
}

// decision identifies a decision: two electors may decide for the same term, each of them once.
type decision struct {
	term int64
	by   string
}

func (c *checker) init(g *group) {
	*c = checker{
		w: g.w, g: g, free: -1, paused: -1, hard: -1, decisions: make(map[decision]*cluster.Elected), others: make(map[decision][]cluster.SlotState),
		strikes: make(map[string]int), struck: make(map[string]bool), earned: make(map[string]int64), until: make(map[string]time.Duration), joined: make(map[string]time.Duration),
		instances: make(map[string]string), deciding: make(map[string]bool), founded: make(map[string]time.Duration), pardons: make(map[string]int64), held: make(map[int64]bool), polls: make(map[decision]poll),
	}
}

// workStarted checks S1.
func (c *checker) workStarted(m *member) {
	for _, other := range c.working {
		c.g.fail("S1: work begins on %s in term %d while that of %s in term %d is running", m.id, m.workTerm(), other.id, other.workTerm())
	}
	c.beginsBesideApplications(m)
	c.working = append(c.working, m)
}

// mayWork reports whether the member has work, or may have, as far as it knows.
func (c *checker) mayWork(m *member) bool { return m.work != nil || slices.Contains(c.working, m) }

func (c *checker) ends(m *member) {
	for i, other := range c.working {
		if other == m {
			c.working, c.died = append(c.working[:i], c.working[i+1:]...), c.w.now
			c.over = c.died
			if m.lease > 0 {
				c.over = min(c.over, m.when(m.lease))
			}
			return
		}
	}
}

// applied checks S2, and that terms grow.
func (c *checker) applied(s *session, ops []cluster.Op, results []cluster.Result) {
	if !slices.ContainsFunc(ops, func(op cluster.Op) bool { return op.Kind != cluster.OpCheck }) {
		return // RENEW changes nothing
	}
	w := c.w
	elected := c.readElected()
	fence := c.readFence()
	for i, op := range ops {
		if op.Path == c.g.known.leader {
			c.releasesApplications(s.h.members[c.g.number], fence.Record)
		}
		switch {
		case op.Kind == cluster.OpCheck, i+1 < len(ops) && op.Kind == cluster.OpCreate && ops[i+1].Kind == cluster.OpDelete && ops[i+1].Path == op.Path,
			i > 0 && op.Kind == cluster.OpDelete && ops[i-1].Kind == cluster.OpCreate && ops[i-1].Path == op.Path: // checks that it does not exist
		case op.Kind == cluster.OpDelete && op.Path == c.g.known.election+"/"+fence.Record.Incarnation && (fence.Record.State == cluster.FenceHeld || fence.Record.State == cluster.FenceReady):
			c.g.fail("S1: %s deletes the incarnation that holds leadership, while its session lives", s.h.id)
		case op.Path == c.g.known.current && op.Kind != cluster.OpDelete:
			_, _, err := w.tree.Get(s.id, c.g.known.election+"/"+c.g.self(s), false)
			switch {
			case c.g.self(s) == "" || err != nil:
				c.g.fail("S2: %s writes current without a registration", s.h.id)
			case w.traits.losing: // versions start again with a new znode: a daemon that has missed that confuses them
			case !elected.Readable() || elected.Record.Incarnation != c.g.self(s):
				c.g.fail("S2: %s writes current, elected is %s", c.g.self(s), elected.Record.Incarnation)
			}
			if op.Kind == cluster.OpCreate {
				if !w.traits.losing && elected.Record.Term != fence.Record.Term {
					c.g.fail("S2: %s acquires term %d, elected is term %d", c.g.self(s), fence.Record.Term, elected.Record.Term)
				}
				if fence.Record.Term <= c.acquired {
					c.g.fail("S2: term %d is acquired after term %d", fence.Record.Term, c.acquired)
				}
				c.acquired = fence.Record.Term
				if m := s.h.members[c.g.number]; fence.Record.Term <= m.had {
					c.g.fail("token: %s acquires term %d, but had term %d before", c.g.self(s), fence.Record.Term, m.had)
				} else {
					m.had = fence.Record.Term
				}
				c.terms++
				c.g.faultDuringHandover(s.h.id)
				c.g.acquiredBy(s.h)
			}
		case op.Path == c.g.known.current && c.owner != s.id && w.sessions[c.owner] != nil && fence.Record.State != cluster.FenceRevoked && fence.Record.State != cluster.FenceSilent:
			c.g.fail("S2: %s deletes another incarnation's current", c.g.self(s))
		case op.Path == c.g.known.leader && c.mayWork(s.h.members[c.g.number]) && fence.Record.Incarnation == c.g.self(s) &&
			(fence.Record.State == cluster.FenceReleased || fence.Record.State == cluster.FenceUnclean):
			c.g.fail("S1: %s releases leadership, but it is not proven that its work is dead", c.g.self(s))
		case op.Path == c.g.known.leader && fence.Record.Term < c.fenced:
			c.g.fail("S2: %s sets the fence back from term %d to %d", c.g.self(s), c.fenced, fence.Record.Term)
		case op.Path == c.g.known.heir:
			c.heirWritten(s, elected)
		case op.Path == c.g.known.elected && !elected.Readable(): // its term is above the limit for the moment, so what only elected has recorded is lost
			c.forget()
			c.elected = 0
		case op.Path == c.g.known.elected:
			c.decided(elected.Record)
			c.g.checkDecision(elected.Record)
			c.g.faultDuringHandover(elected.Record.Node)
			c.g.deleteDecisionDuringTakeover(elected.Record.Node)
		case op.Kind == cluster.OpCreate && op.Sequential:
			c.joined[s.h.id] = w.now
			s.selves[c.g.resource.number] = results[i].Path[len(c.g.known.election)+1:]
		}
	}
	c.changed()
}

// left checks that nothing of a session is left in the group once LEAVE has been confirmed.
func (c *checker) left(s *session) {
	var left []string
	for _, parent := range []string{c.g.known.election, c.g.known.nodes} {
		names, _, _ := c.w.tree.Children(0, parent, false)
		for _, name := range names {
			left = append(left, parent+"/"+name)
		}
	}
	for _, path := range append(left, c.g.known.current) {
		if _, stat, err := c.w.tree.Get(0, path, false); err == nil && stat.Owner == s.id {
			c.g.fail("L1: %s is left behind by LEAVE, and nobody owns it", path)
		}
	}
}

// decided checks a decision that took effect.
func (c *checker) decided(rec cluster.Elected) {
	w := c.w
	// Versions start again with a new znode: an elector that has missed that goes on from the old decision.
	if rec.Term <= c.elected && !w.traits.losing {
		c.g.fail("S2: term %d is decided after term %d", rec.Term, c.elected)
	}
	c.elected = rec.Term
	c.checkRules(rec)
	c.checkFenced(rec)
	full := c.decisions[decision{rec.Term, rec.By}]
	if full == nil || w.traits.losing { // a daemon that has missed notifications is not to blame
		return
	}
	c.electedByAnswers(full)
	if limit := w.traits.takeover * 97 / 100; full.Cause == cluster.CauseOverdue && (c.free < 0 || w.now-c.free < limit) {
		c.g.fail("L2: the candidate of term %d is blamed after %s, but it could take over for less than %s", c.term, full.Reason, limit)
	}
	for _, x := range full.Exclusions {
		c.struck[x.Node] = true
		if x.Strikes > c.strikes[x.Node] && x.Term >= max(c.pardons[x.Node], c.pardons[""]) {
			c.strikes[x.Node], c.earned[x.Node], c.until[x.Node] = x.Strikes, x.Term, w.now+time.Duration(x.For)*97/100
		}
	}
	other := c.otherEligibleDaemon(full)
	if other != "" && w.now < c.until[rec.Node] {
		c.g.fail("L2: %s is elected in term %d although excluded for another %s, while %s is eligible", rec.Node, rec.Term, c.until[rec.Node]-w.now, other)
	}
	for _, x := range full.Exclusions {
		if x.Expired && other == "" {
			c.until[x.Node] = 0 // amnesty
		}
	}
}

// otherEligibleDaemon returns a daemon other than the elected one that is running, eligible and never had a strike: for others only an
// elector knows since when it has seen the exclusion.
func (c *checker) otherEligibleDaemon(rec *cluster.Elected) string {
	for _, m := range c.g.members {
		since, ok := c.joined[m.id]
		if !ok || m.id == rec.Node || m.id == rec.PreviousNode || c.struck[m.id] || c.w.now-since < 3*m.timeout {
			continue
		}
		if !slices.ContainsFunc(rec.Ranking, func(v cluster.Verdict) bool { return v.Node == m.id && v.Rank > 0 }) {
			continue
		}
		if m.loop == nil || m.leaving || !c.w.tree.Alive(m.session.id) {
			continue
		}
		if _, _, err := c.w.tree.Get(m.session.id, c.g.known.election+"/"+m.loop.self.Name, false); err == nil {
			return m.id
		}
	}
	return ""
}

// changed updates since when the elected candidate could take over.
func (c *checker) changed() {
	elected := c.readElected()
	current := c.readCurrent()
	blocked := current.Exists && current.Record.Incarnation != elected.Record.Incarnation
	if current.Err != nil { // the owner is unchanged
		blocked = c.free < 0
	}
	switch {
	case blocked || !elected.Readable():
		c.free = -1
	case c.free < 0 || c.term != elected.Record.Term:
		c.free = c.w.now
	}
	c.requested()
	c.noteFenced()
	c.term, c.fenced, c.owner = elected.Record.Term, c.readFence().Record.Term, current.Stat.Owner
}

// recordsChanged forgets what an operator has made the group forget.
func (c *checker) recordsChanged() {
	elected, fence := c.readElected(), c.readFence()
	if !elected.Readable() {
		c.forget()
		c.elected = 0
		if !fence.Readable() {
			c.acquired = 0
		}
	}
	c.changed()
}

// forget drops what only elected has recorded.
func (c *checker) forget() {
	clear(c.strikes)
	clear(c.struck)
	clear(c.until)
	c.moves, c.circumstances = nil, cluster.Circumstances{}
}

func (c *checker) readElected() cluster.Stored[cluster.Elected] {
	return readCached(c.w, c.g.known.elected, cluster.ReadStored[cluster.Elected])
}

// readControl returns the requests that concern the group.
func (c *checker) readControl() cluster.Stored[cluster.Control] {
	read := readCached(c.w, c.g.known.control, cluster.ReadStored[cluster.Control])
	read.Record = read.Record.OfSlot(c.g.paths.Slot)
	return read
}

func (c *checker) readFence() cluster.Stored[cluster.Fence] {
	return readCached(c.w, c.g.known.leader, cluster.ReadFence)
}

func (c *checker) readCurrent() cluster.Stored[cluster.Current] {
	return readCached(c.w, c.g.known.current, cluster.ReadStored[cluster.Current])
}

// trusts takes a holder whose incarnation is gone for one that has released.
func (c *checker) trusts(fence *cluster.Stored[cluster.Fence]) {
	f := &fence.Record
	if !fence.Readable() || f.Node == "" || f.State != cluster.FenceHeld && f.State != cluster.FenceReady {
		return
	}
	if _, _, err := c.w.tree.Get(0, c.g.paths.Incarnation(f.Incarnation), false); err == nil {
		return
	}
	if f.State = cluster.FenceReleased; f.Owed > 0 {
		f.State = cluster.FenceUnclean
	}
}
