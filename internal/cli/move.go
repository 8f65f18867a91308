package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/request"
)

func moveCommand(cmd *command) {
	var node, site string
	c := newRequestCommand(cmd, "move [NODE | SITE]", "Move leadership to a node or site",
		fmt.Sprintf(`Move hands leadership over as planned: the leader stops its child and releases
leadership, then the target takes over. A target that is not eligible is refused, with
the reason. The target ranks first until --for has passed, until it is no longer
eligible, or until 'zkelectd reelect' or another move; then policy decides again.
Without a target, the best other member by policy takes over, and ranks first for %s
or --for. To keep the old leader from being elected, drain it.`, request.BestMoveFor))
	c.Args = cobra.MaximumNArgs(1)
	f := c.Flags()
	f.StringVar(&node, "to", "", "the node to move leadership to; like NODE, but never a site")
	f.StringVar(&site, "site", "", "the site to move leadership to; its best node leads")
	durationFlag(c.command, &c.duration, "for", 0, "how long the target ranks first (default: without end, or 10m "+
		"without a target)")
	c.withWait("wait until the target is READY, and show the progress")
	f.BoolVar(&c.force, "force", false, "ignore policy, cordons and health for the target")
	c.submits(func(args []string) request.Request {
		best := len(args) == 0 && !f.Changed("to") && !f.Changed("site")
		return request.Request{Kind: request.KindMove, Target: optional(args), Node: node, Site: site, Best: best}
	}, moved)
}

// moved is complete when the target of the request's move is READY.
func moved(s cluster.Snapshot, plan request.Plan) (bool, error) {
	m := plan.Control.Move
	if s.Ready() && m.Matches(s.Current.Record.Node, s.Current.Record.Site) {
		return true, nil
	}
	now := s.Control.Record.Move
	return false, checkEnded(s, plan, now != nil && now.ID == plan.ID)
}
