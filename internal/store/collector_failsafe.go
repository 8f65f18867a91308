package store

import (
	"context"
	"strings"

	"zkelectd/internal/cluster"
)

// This file reads what failsafe mode needs in addition (docs/protocol.md, Failsafe): the holder must know the members,
// also if it is not the elector.

// readPromisers reads the members and the policy for a holder that is not the elector.
func (c *Collector) readPromisers(ctx context.Context) error {
	if c.snap.Elector || !c.opt.Failsafe || !c.snap.HoldsCurrent() {
		c.snap.MembersRead = c.snap.Elector
		return nil
	}
	if !c.valid[c.opt.Paths.Election()] {
		if err := c.listIncarnations(ctx, true); err != nil {
			return err
		}
	}
	if err := c.readNodes(ctx, c.incarnations, c.orderTargets()[:1]); err != nil {
		return err
	}
	c.snap.MembersRead = true
	return nil
}

// tornPromisers reports whether the members that a holder has read may mix an incarnation with the record of another
// one of the same node: then the fence would have the key of a daemon that was not asked for the promise (S1).
func (c *Collector) tornPromisers(h cluster.Hints) bool {
	if !c.opt.Failsafe || !c.snap.HoldsCurrent() {
		return false
	}
	for path := range h.Paths {
		if strings.HasPrefix(path, c.opt.Paths.Nodes()+"/") {
			return true
		}
	}
	return h.Has(c.opt.Paths.Election())
}
