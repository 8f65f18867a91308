package sim

import (
	"context"
	"math/rand/v2"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
	"zkelectd/internal/store"
)

// rollCallSeed makes the random numbers of these traits independent of the others: which groups call the roll changes
// no other world.
const rollCallSeed = 0x726f6c6c

// rollCallTraits say how the members of a group that calls the roll answer, and remember what they have measured.
type rollCallTraits struct {
	wait     time.Duration // for answers
	takes    time.Duration // the longest time that an answer takes
	fails    float64
	measured map[string]measurement // by number and node
}

// measurement is how much of a group's data a member had. What it publishes as its score has nothing to do with that.
type measurement struct {
	score float64
	at    time.Duration
}

// callRole stands in for rollCalls of package group, and for that of package electing.
type callRole struct {
	seen     cluster.RollCallSeen
	number   string // of the one that is answered
	busy     bool
	settled  time.Duration
	next     time.Duration
	waiting  time.Duration // since when an election has been due; 0 while none is
	term     int64         // the elected term then
	ended    bool          // the leader had released then
	complete string        // the roll call that all have answered meanwhile
}

// drawRollCalls returns nil if the group does not call the roll. Otherwise its policies say so.
func (r *resource) drawRollCalls(s shape) *rollCallTraits {
	w := r.w
	rng := rand.New(rand.NewPCG(w.seed, rollCallSeed+uint64(r.number)))
	third := rng.IntN(3) == 0
	if s.slots && r.number == 0 || s.failsafe || !w.broken.calling && !(w.broken.name == "" && third) {
		return nil
	}
	t := &rollCallTraits{measured: make(map[string]measurement)}
	t.wait = one(rng, []time.Duration{200 * time.Millisecond, time.Second, 3 * time.Second})
	t.takes = one(rng, []time.Duration{10 * time.Millisecond, t.wait / 2, 2 * t.wait})
	if rng.IntN(2) == 0 {
		t.fails = rng.Float64() / 3
	}
	byScore := w.broken.calling || rng.IntN(2) == 0
	for i := range r.traits.rules {
		if byScore {
			r.traits.rules[i] = cluster.Rules{Type: "score"}
		}
		r.traits.rules[i].RollCall = cluster.RollCallRules{Enabled: true, Timeout: cluster.Duration(t.wait)}
	}
	return t
}

// timeout returns how long an election waits for answers; 0 if the group does not call the roll.
func (t *rollCallTraits) timeout() time.Duration {
	if t == nil {
		return 0
	}
	return t.wait
}

// withoutRollCalls makes no group call the roll: whoever is elected by answers is not who was forecast.
func (w *world) withoutRollCalls() {
	for _, r := range w.resources {
		r.calls = nil
		for i := range r.traits.rules {
			r.traits.rules[i].RollCall = cluster.RollCallRules{}
		}
		r.rules[0], r.rules[1] = r.traits.rules[0], r.traits.rules[0]
	}
}

// replicate makes the leader of a group write, and the others have some of that.
func (r *resource) replicate() {
	w := r.w
	if r.calls == nil || w.calm {
		return
	}
	for _, leader := range r.groups[0].check.working {
		leader.data += 1 + w.rng.Float64()
		for _, m := range r.residents {
			if m.net == netFine && leader.net == netFine && w.chance(0.7) {
				m.data = max(m.data, leader.data-w.rng.Float64())
			}
		}
	}
	w.after(w.between(20*time.Millisecond, 400*time.Millisecond), r.replicate)
}

// answerCall measures what the last snapshot asks for, and answers.
func (l *loop) answerCall() {
	c, r, m := &l.call, l.m.r, l.m
	if r.calls == nil {
		return
	}
	c.seen.Observe(&l.snap, m.clock())
	call, called := l.snap.Called()
	if !called || call.Number == c.number {
		return
	}
	c.number = call.Number
	took, b := m.w.between(0, r.calls.takes), m.w.broken.name
	m.w.after(took, func() {
		l.process(func() {
			if c.number != call.Number {
				return
			}
			m.w.faults["roll call answered"]++
			a := &cluster.Answer{Number: call.Number}
			now := measurement{m.data, m.w.now}
			if last := l.in.measured; b == repeatsAnswer && last.at != 0 {
				now = last
			}
			l.in.measured = now
			switch {
			case took > time.Duration(call.Timeout) || !m.w.calm && m.w.chance(r.calls.fails):
				a.Why = "it cannot be measured"
			case b == answersPublished:
				a.Score = &m.report.score
				r.calls.measured[call.Number+m.id] = now
			default:
				a.Score = &now.score
				r.calls.measured[call.Number+m.id] = now
			}
			l.in.answer = a
			l.in.writeNode(a)
		})
	})
}

// writeNode writes the record of the node until it contains the answer, or another one is due.
func (in *instance) writeNode(a *cluster.Answer) {
	if in.closed { // nothing would end the coroutine, and its world would be kept with it
		return
	}
	in.run(func(c *conn) {
		for in.answer == a {
			w := store.NewNodeWriter(c, in.m.r.groups[0].paths, in.self, time.Time{})
			err := w.Write(context.Background(), in.m.record())
			if err == nil {
				in.m.publish() // what has changed meanwhile
			}
			if err == nil || isEnd(err) || !c.sleep(in.m.w.between(50*time.Millisecond, 200*time.Millisecond)) {
				return
			}
		}
	})
}

// callRoll stands in for Elector.CallRoll of package electing.
func (l *loop) callRoll(timeout time.Duration, lease int64) {
	c, m, snap := &l.call, l.m, &l.snap
	if c.busy || snap.At < c.settled || m.clock() < c.next || snap.RollCall.Newer() != nil {
		return
	}
	m.w.faults["roll called"]++
	elected, _ := snap.Terms()
	next := cluster.RollCall{
		Header: snap.RollCall.Record.Header, Term: elected, Number: cluster.NewInstance(m.w.rng.Uint64()),
		Lease: lease, Timeout: cluster.Duration(timeout), By: l.self.Name, Time: m.w.wall(),
	}
	m.w.log("%s: calls the roll for term %d", m.name, elected)
	c.busy = true
	finish := l.until(m.clock()+m.timeout, func(rep reply) {
		l.soon(func() {
			if c.busy, c.settled = false, m.clock(); rep.err != nil && !cluster.IsRefusal(rep.err) {
				c.next = c.settled + 10*time.Second
			}
			l.step(tick)
		})
	})
	ops := m.g.paths.RollCallTx(l.self.Name, snap.RollCall, next)
	l.s.send(&request{from: l.in, ops: ops, done: finish})
}

// poll is the roll call by which a decision was made, if it was made by one.
type poll struct {
	number string
	taken  bool // the leader before was silent
	ended  bool // it had released since before the election was due: its work was dead
}

// checkCall checks that the elector waits for the answers of all members that may lead, and remembers by which it has
// decided.
func (l *loop) checkCall(in *elector.Input, d *elector.Decision) {
	c, m, snap := &l.call, l.m, &l.snap
	rules := snap.Policy.Record.RollCall
	if !snap.Policy.Readable() {
		rules = in.Policy.Rules.RollCall
	}
	if m.r.calls == nil || !rules.Enabled {
		return
	}
	now := m.clock()
	call, called := snap.Called()
	missing := unanswered(d, snap, call.Number)
	if called && missing == "" {
		c.complete = call.Number // who joins from now on need not answer
	}
	state := snap.Fence.Record.State
	ended := snap.Acquired() && (state == cluster.FenceReleased || state == cluster.FenceUnclean)
	due := d.AwaitsAnswers || d.Elect != nil || d.Note != "" // nobody may lead yet: that counts as waiting, too (L1)
	if elected, _ := snap.Terms(); due && (c.waiting == 0 || c.term != elected) {
		c.waiting, c.term, c.ended = now, elected, ended
	}
	switch {
	case d.AwaitsAnswers:
		return
	case d.Elect == nil:
		if d.Note == "" && d.Control == nil && d.Blocked.Reason == "" { // else one may still be due
			c.waiting, c.complete = 0, ""
		}
		return
	}
	waited, elect := now-c.waiting, d.Elect // also since before an ELECT that has not been read yet: it is sent again
	m.g.check.polls[decision{elect.Term, elect.By}] = poll{call.Number, d.Take, ended && c.ended}
	if at := c.seen.At(); called && at != 0 {
		waited = max(waited, now-at)
	}
	must := missing != "" && snap.RollCall.Err == nil && c.complete != call.Number && !d.Take // TAKE may have waited before
	if must && waited < rules.Wait() {
		m.g.fail("roll call: %s is elected in term %d, after %s and without the answer of %s",
			elect.Node, elect.Term, waited, missing)
	}
}

// unanswered returns a member that may lead and has not answered a roll call; empty if there is none.
func unanswered(d *elector.Decision, snap *cluster.Snapshot, number string) string {
	for _, e := range d.Ranking.Entries {
		replaced := e.Member.Name == snap.Elected.Record.Incarnation
		if e.MayAnswer() && !replaced && e.Member.AnswerTo(number) == nil {
			return e.Member.ID
		}
	}
	return ""
}

// electedByAnswers checks a decision by a roll call that took effect: nobody had answered before the work of the leader
// was dead or its lease over; and no member that could lead has more of the data, if policy goes by that alone and no
// person need approve it.
func (c *checker) electedByAnswers(rec *cluster.Elected) {
	calls := c.g.calls
	if calls == nil {
		return
	}
	p := c.polls[decision{rec.Term, rec.By}]
	compiled, err := c.g.inForce()
	alone := err == nil && compiled.Revision == rec.PolicyRevision && compiled.Rules.Type == "score"
	if alone {
		rules, request := compiled.Rules, c.readControl()
		alone = len(rules.Rank)+len(rules.Strategies)+rules.Hysteresis == 0 && rules.Confirm == "" &&
			request.Err == nil && request.Record.Move == nil
	}
	elected, best, counted := 0.0, measurement{}, ""
	for _, v := range rec.Ranking {
		x, known := calls.measured[p.number+v.Node]
		if v.Answer == nil || v.Answer.Score == nil || !known {
			continue
		}
		c.w.faults["answer counted"]++
		if p.ended && x.at < c.over || p.taken && x.at < c.leaseEnd {
			c.g.fail("roll call: %s is elected in term %d by an answer of %s at %s, the last work ended at %s, its lease at %s",
				rec.Node, rec.Term, v.Node, x.at, c.over, c.leaseEnd)
		}
		if v.Node == rec.Node {
			elected = x.score
		}
		if v.Rank > 0 && x.score >= best.score {
			best, counted = x, v.Node
		}
	}
	if alone && counted != "" && elected < best.score {
		c.g.fail("roll call: %s is elected in term %d with %v, %s has %v", rec.Node, rec.Term, elected, counted, best.score)
	}
}

// The breakages of roll calls.
const (
	anyCallCounts    = "answers to any roll call that count"
	earlyCallCounts  = "answers that count although the guard had not had to kill the work yet"
	callsNoRoll      = "an election by what members publish"
	waitsForNobody   = "an election that does not wait for all answers"
	answersPublished = "a member that answers what it has published"
	repeatsAnswer    = "a member that repeats its last answer"
)

// counts changes what the elector knows of roll calls.
func (b breakage) counts(in elector.Input) elector.Input {
	switch {
	case b.name == anyCallCounts:
		in.RollCallSeen, in.Snapshot.RollCall.Record.Lease = in.Now, in.Snapshot.LeaseAt(in.Lease)
	case b.name == earlyCallCounts && in.LeaseOver:
		in.Lease.At = 1
	}
	return in
}

// callsEarly has a deputy call the roll as soon as it has read a lease.
func (b breakage) callsEarly(l *loop, due bool) bool {
	if call, _ := l.snap.Called(); b.name == earlyCallCounts {
		return l.followed != "" && call.Lease != l.snap.LeaseAt(l.seen())
	}
	return due
}
