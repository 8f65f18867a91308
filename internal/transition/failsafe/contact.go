package failsafe

import (
	"time"

	"zkelectd/internal/cluster"
)

// contact is whether the quorum answers the daemon. It decides about availability only: without it, a leader that alone
// is cut off would lead for ever.
type contact struct {
	patience time.Duration // a probe without an answer for so long shows an outage
	session  time.Duration // for so long after an outage promises are given as if it went on

	wanted bool          // somebody wants to know
	asked  time.Duration // since when no probe has had an answer; 0 if there is none
	sent   bool          // a probe is under way
	last   time.Duration // when one ended, or was sent
	back   time.Duration // when the last outage ended; 0 if there was none
}

// outage reports whether a probe has been without an answer for long enough.
func (c *contact) outage(now time.Duration) bool {
	return c.asked != 0 && now >= c.asked+c.patience
}

// lost reports whether there is an outage, or was one just now: the first one to reconnect must not end a healthy
// leader.
func (c *contact) lost(now time.Duration) bool {
	return c.outage(now) || c.back != 0 && now < c.back+c.session
}

// refusal returns why a promise is refused while no outage is known, and when that may change.
func (c *contact) refusal(now time.Duration) (Reason, cluster.Duration) {
	if c.asked == 0 && c.last != 0 && now < c.last+c.patience {
		return ReasonContact, 0
	}
	if c.asked == 0 {
		return ReasonProbing, cluster.Duration(c.patience)
	}
	return ReasonProbing, cluster.Duration(c.asked + c.patience - now)
}

// probe reports whether a probe is to be sent now.
func (c *contact) probe(now time.Duration) bool {
	if at := c.wake(); at == 0 || now < at {
		return false
	}
	c.wanted, c.sent, c.last = false, true, now
	if c.asked == 0 {
		c.asked = now
	}
	return true
}

// wake returns when the next probe is due; 0 for never.
func (c *contact) wake() time.Duration {
	switch {
	case c.patience == 0 || c.sent:
		return 0
	case c.asked != 0:
		return c.last + c.patience/2 // the last one has failed
	case c.wanted && c.last != 0:
		return c.last + c.patience/2
	case c.wanted:
		return 1
	}
	return 0
}

// done notes the end of a probe.
func (c *contact) done(now time.Duration, answered bool) {
	c.sent, c.last = false, now
	if !answered {
		return
	}
	if c.outage(now) {
		c.back = now
	}
	c.asked = 0
}
