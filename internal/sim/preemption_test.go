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
	rules := w.rules[rec.PolicyRevision]
	if c.revision != rec.PolicyRevision {
		c.revision, c.moves = rec.PolicyRevision, nil
	}
	if c.hard >= 0 && c.known(c.hard) {
		w.fail("pause: term %d is decided (%s) under a hard pause", rec.Term, rec.Reason)
	}
	if rec.Cause == cluster.CauseReelect {
		c.held[rec.Request] = true
	}
	last := c.circumstances
	if c.circumstances = rec.Circumstances; rec.Cause != cluster.CausePreempt {
		return
	}
	if last.Cause != "" && !reflect.DeepEqual(last, rec.Circumstances) {
		w.fail("S3: policy moves the leader in term %d (%s) and changes the circumstances", rec.Term, rec.Reason)
	}
	switch joined, known := c.joined[rec.Node]; {
	case c.paused >= 0 && c.known(c.paused):
		w.fail("pause: policy moves the leader in term %d (%s) under a pause", rec.Term, rec.Reason)
	case rules.Failback == cluster.FailbackManual:
		w.fail("failback: policy moves the leader in term %d (%s) although failback is manual", rec.Term, rec.Reason)
	case rules.Failback == cluster.FailbackDelayed && known && w.now-joined < time.Duration(rules.FailbackDelay)*97/100:
		w.fail("failback: %s takes over in term %d, %s after it has come, failback is delayed by %s", rec.Node, rec.Term, w.now-joined, rules.FailbackDelay)
	}
	if at, founded := c.founded[rec.By]; founded && w.now-at < settling {
		return
	}
	window := time.Duration(rules.PreemptionWindow) * 97 / 100
	c.moves = append(slices.DeleteFunc(c.moves, func(at time.Duration) bool { return w.now-at >= window }), w.now)
	if rules.MaxPreemptions > 0 && len(c.moves) > rules.MaxPreemptions {
		w.fail("damping: policy moves the leader in term %[3]d, %[1]d times within %[2]s; %[4]d are allowed", len(c.moves), rules.PreemptionWindow, rec.Term, rules.MaxPreemptions)
	}
}

// settling is for how long the preemptions by an elector that has begun with an election may not count, plus the time to write
// a decision.
const settling = 75 * time.Second

// decides observes what an elector is about to write.
func (c *checker) decides(rec *cluster.Elected) {
	c.decisions[decision{rec.Term, rec.By}] = rec
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

// registers forgets an earlier incarnation of the same name: the tree was deleted in between.
func (c *checker) registers(in cluster.Incarnation) {
	delete(c.deciding, in.Name)
	delete(c.founded, in.Name)
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

// observeControl observes the requests of operators.
func (c *checker) requested() {
	slot := c.readControl()
	if slot.Stat.Modified == c.control && slot.Exists {
		return
	}
	c.control = slot.Stat.Modified
	for _, d := range slot.Record.Done {
		if d.What == "reelection" && strings.HasSuffix(d.Outcome, "was elected") && !c.held[d.ID] {
			c.w.fail("L4: the election of request %d is reported as over (%s) but was never held", d.ID, d.Outcome)
		}
	}
	pause := slot.Record.Pause
	endless := pause != nil && pause.For == 0 // a pause with an end is over before that is written
	since(&c.paused, slot.Err != nil || endless, c.w.now)
	since(&c.hard, endless && pause.Hard, c.w.now)
	for _, f := range slot.Record.ClearedStrikes {
		c.pardons[f.Node] = max(c.pardons[f.Node], f.Term)
		for _, h := range c.w.hosts {
			if f.Covers(cluster.Exclusion{Node: h.id, Term: c.earned[h.id]}) {
				delete(c.strikes, h.id)
				delete(c.until, h.id)
			}
		}
	}
}

func since(at *time.Duration, holds bool, now time.Duration) {
	switch {
	case !holds:
		*at = -1
	case *at < 0:
		*at = now
	}
}
