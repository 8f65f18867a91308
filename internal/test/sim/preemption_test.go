package sim

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/cluster"
)

// checkRules checks a decision against failback, damping and pauses.
func (c *checker) checkRules(rec cluster.Elected) {
	w := c.w
	rules := c.g.rules[rec.PolicyRevision]
	published := c.revision != rec.PolicyRevision
	if published {
		c.revision, c.moves = rec.PolicyRevision, nil
	}
	if c.hard >= 0 && c.known(c.hard) {
		c.g.fail("pause: term %d is decided (%s) under a hard pause", rec.Term, rec.Reason)
	}
	if rec.Cause == cluster.CauseReelect {
		c.held[rec.Request] = true
	}
	last := c.circumstances
	if c.circumstances = rec.Circumstances; rec.Cause != cluster.CausePreempt {
		return
	}
	if last.Cause != "" && !reflect.DeepEqual(last, rec.Circumstances) {
		c.g.fail("S3: policy moves the leader in term %d (%s) and changes the circumstances", rec.Term, rec.Reason)
	}
	delay, manual, _ := cluster.ParseFailback(rules.Failback)
	switch joined, known := c.joined[rec.Node]; {
	case c.paused >= 0 && c.known(c.paused):
		c.g.fail("pause: policy moves the leader in term %d (%s) under a pause", rec.Term, rec.Reason)
	case manual:
		c.g.fail("failback: policy moves the leader in term %d (%s) although failback is manual", rec.Term, rec.Reason)
	case known && w.now-joined < delay*97/100:
		c.g.fail("failback: %s takes over in term %d, %s after it has come, failback is delayed by %s", rec.Node, rec.Term, w.now-joined, delay)
	}
	if at, founded := c.founded[rec.By]; published || founded && w.now-at < settling {
		return // the first preemption under a new revision is an operator's order: it does not count
	}
	const window = cluster.PreemptionWindow * 97 / 100
	c.moves = append(slices.DeleteFunc(c.moves, func(at time.Duration) bool { return w.now-at >= window }), w.now)
	if rules.MaxPreemptions > 0 && len(c.moves) > rules.MaxPreemptions {
		c.g.fail("damping: policy moves the leader in term %[3]d, %[1]d times within %[2]s; %[4]d are allowed", len(c.moves), cluster.PreemptionWindow, rec.Term, rules.MaxPreemptions)
	}
}

// settling is for how long the preemptions by an elector that has begun with an election may not count, plus the time to write
// a decision.
const settling = 75 * time.Second

// decides observes what an elector is about to write.
func (c *checker) decides(rec *cluster.Elected) {
	c.decisions[decision{rec.Term, rec.By}] = rec
	c.w.highest = max(c.w.highest, rec.Term)
	if c.deciding[rec.By] {
		return
	}
	c.deciding[rec.By] = true
	switch rec.Cause {
	case cluster.CausePreempt, cluster.CauseMove, cluster.CauseReelect:
	default:
		c.founded[rec.By] = c.w.now
	}
}

// registers checks that no two instances share an incarnation.
func (c *checker) registers(in cluster.Incarnation, instance string) {
	if other, ok := c.instances[in.Name]; ok {
		c.g.fail("S2: instances %s and %s share the incarnation %s", other, instance, in.Name)
	}
	c.instances[in.Name] = instance
}

// known reports whether any elector has read a request that was submitted at a time, and nothing older is in flight.
func (c *checker) known(since time.Duration) bool {
	return c.w.calm && c.w.now-max(since, c.w.traits.busy) > c.w.settlingTime()
}

// settlingTime returns how long it takes after the faults until all daemons have read everything.
func (w *world) settlingTime() time.Duration {
	if w.traits.losing {
		return netInterval*5/4 + 15*time.Second
	}
	return 15 * time.Second
}

// unforgotten checks that no write of control is lost: a late write by an elector would bring back a record from before a request.
func (c *checker) unforgotten(read cluster.Stored[cluster.Control]) {
	// A stranger who deletes control and writes it again gives an old record's version to a new one.
	if c.controlLost = c.controlLost || !read.Readable() && c.lastRequest > 0; c.controlLost || !read.Readable() {
		return
	}
	if read.Record.Last < c.lastRequest {
		c.g.fail("request: control knows %d requests, it knew %d", read.Record.Last, c.lastRequest)
	}
	c.lastRequest = read.Record.Last
}

// observeControl observes the requests of operators.
func (c *checker) requested() {
	read := c.readControl()
	if read.Stat.Modified == c.control && read.Exists {
		return
	}
	c.control = read.Stat.Modified
	c.unforgotten(read)
	for _, d := range read.Record.Done {
		if d.What == "reelection" && strings.HasSuffix(d.Outcome, "was elected") && !c.g.reelectionHeld(d.ID) {
			c.g.fail("L4: the election of request %d is reported as over (%s) but was never held", d.ID, d.Outcome)
		}
	}
	pause := read.Record.Pause
	endless := pause != nil && pause.For == 0 // a pause with an end is over before that is written
	since(&c.paused, read.Err != nil || endless, c.w.now)
	since(&c.hard, endless && pause.Hard, c.w.now)
	for _, f := range read.Record.ClearedStrikes {
		c.pardons[f.Node] = max(c.pardons[f.Node], f.Term)
		for _, h := range c.g.members {
			if f.Covers(cluster.Exclusion{Node: h.id, Term: c.earned[h.id]}) {
				delete(c.strikes, h.id)
				delete(c.until, h.id)
			}
		}
	}
}

// reelectionHeld reports whether the election of a request was held, in any slot.
func (r *resource) reelectionHeld(request int64) bool {
	return slices.ContainsFunc(r.groups, func(g *group) bool { return g.check.held[request] })
}

func since(at *time.Duration, holds bool, now time.Duration) {
	switch {
	case !holds:
		*at = -1
	case *at < 0:
		*at = now
	}
}
