package store

import (
	"context"
	"fmt"
	"strings"

	"zkelectd/internal/cluster"
)

// This file reads what failsafe mode needs in addition (docs/protocol.md, Failsafe): the holder must know the members, also if it is not
// the elector.

// holdersList is the key in Collector.valid of the election list as the holder has read it.
const holdersList = "election, for the holder"

// readPromisers reads the members and the policy for a holder that is not the elector.
func (c *Collector) readPromisers(ctx context.Context) error {
	if c.snap.Elector || !c.opt.Failsafe || !c.snap.HoldsCurrent() {
		c.snap.MembersRead = c.snap.Elector
		c.promisers = nil
		delete(c.valid, holdersList)
		return nil
	}
	if !c.valid[holdersList] {
		list := &Read{Path: c.opt.Paths.Election(), List: true, Watch: true}
		c.opt.Source.Read(c.prioritize(ctx), []*Read{list})
		if list.Err != nil {
			return fmt.Errorf("cannot list znode %s: %w", list.Path, list.Err)
		}
		c.promisers, _ = cluster.ParseIncarnations(list.Names)
		c.valid[holdersList] = true
	}
	if err := c.readNodes(ctx, c.promisers, c.orderTargets()[:1]); err != nil {
		return err
	}
	c.snap.MembersRead = true
	return nil
}

// tornPromisers reports whether the members that a holder has read may mix an incarnation with the record of another one of the same node:
// then the fence would have the key of a daemon that was not asked for the promise (S1).
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
