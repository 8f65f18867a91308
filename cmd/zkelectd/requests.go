package main

import (
	"github.com/spf13/cobra"

	"zkelectd/internal/cluster"
	"zkelectd/internal/request"
)

func moveCommand() *cobra.Command {
	var node, site string
	c := newRequestCommand("move --to NODE | --site SITE", "Move leadership to a node or site", `Move hands leadership over as planned: the leader stops its child and releases
leadership, then the target takes over. A target that is not eligible is refused, with
the reason. The target ranks first until --for has passed, until it is no longer
eligible, or until 'zkelectd reelect' or another move; then policy decides again.`)
	c.cmd.Flags().StringVar(&node, "to", "", "the node to move leadership to")
	c.cmd.Flags().StringVar(&site, "site", "", "the site to move leadership to; its best node leads")
	c.withFor(0, "how long the target ranks first (default: without end)")
	c.withWait("wait until the target is READY, and show the progress")
	c.withForce("ignore policy, cordons and health for the target")
	return c.submits(func([]string) request.Request {
		return request.Request{Kind: request.KindMove, Node: node, Site: site}
	}, func(s cluster.Snapshot, plan request.Plan) (bool, error) {
		m := plan.Control.Move
		if s.Ready() && m.Matches(s.Current.Record.Node, s.Current.Record.Site) {
			return true, nil
		}
		now := s.Control.Record.Move
		return false, checkEnded(s, plan, now != nil && now.ID == plan.ID)
	})
}

func stepDownCommand() *cobra.Command {
	c := newRequestCommand("step-down", "Replace the leader by the next best member", `Step-down has the leader stop its child and release leadership; the best of the other
members takes over. The old leader is not elected for --for; 'zkelectd uncordon' ends
that.`)
	c.withFor(request.StepDownFor, "how long the old leader is not elected")
	c.withWait("wait until the next leader is READY, and show the progress")
	return c.submits(func([]string) request.Request { return request.Request{Kind: request.KindStepDown} }, ledElsewhere)
}

// ledElsewhere is complete when there is a READY leader that the request's cordon does not apply to.
func ledElsewhere(s cluster.Snapshot, plan request.Plan) (bool, error) {
	inForce := false
	for _, cordon := range plan.Control.Cordons {
		if cordon.ID == plan.ID && s.Ready() && !cordon.Matches(s.Current.Record.Node, s.Current.Record.Site) {
			return true, nil
		}
	}
	for _, cordon := range s.Control.Record.Cordons {
		inForce = inForce || cordon.ID == plan.ID
	}
	return false, checkEnded(s, plan, inForce)
}

func reelectCommand() *cobra.Command {
	c := newRequestCommand("reelect", "Run the election again, by policy alone", `Reelect has the elector choose the best member now, regardless of failback and
election.max_preemptions. It ends a move that is in force.`)
	c.withWait("wait until the leader is READY, and show the progress")
	return c.submits(func([]string) request.Request { return request.Request{Kind: request.KindReelect} }, func(s cluster.Snapshot, plan request.Plan) (bool, error) {
		_, over := s.Control.Record.Ended(plan.ID)
		return over && s.Ready(), nil
	})
}

func cordonCommand() *cobra.Command {
	var site string
	c := newRequestCommand("cordon NODE | --site SITE", "Keep a node or site from being elected", `A cordoned node is not elected. If it leads, it keeps leading; see drain.`)
	c.cmd.Args = cobra.MaximumNArgs(1)
	c.cmd.Flags().StringVar(&site, "site", "", "cordon a whole site")
	c.withFor(0, "how long it stays in force (default: without end)")
	return c.submits(func(args []string) request.Request {
		return request.Request{Kind: request.KindCordon, Node: optional(args), Site: site}
	}, nil)
}

func drainCommand() *cobra.Command {
	var site string
	c := newRequestCommand("drain NODE | --site SITE", "Cordon a node or site, and move leadership away from it", `Drain keeps a node or site from being elected, and replaces a leader there.
'zkelectd uncordon' ends it.`)
	c.cmd.Args = cobra.MaximumNArgs(1)
	c.cmd.Flags().StringVar(&site, "site", "", "drain a whole site")
	c.withFor(0, "how long it stays in force (default: without end)")
	c.withWait("wait until another leader is READY, and show the progress")
	c.withForce("cordon it even if no other member is eligible")
	return c.submits(func(args []string) request.Request {
		return request.Request{Kind: request.KindDrain, Node: optional(args), Site: site}
	}, ledElsewhere)
}

func uncordonCommand() *cobra.Command {
	var site string
	var all bool
	c := newRequestCommand("uncordon NODE | --site SITE | --all", "End a cordon, a drain or a step-down", "")
	c.cmd.Args = cobra.MaximumNArgs(1)
	c.cmd.Flags().StringVar(&site, "site", "", "end those of a whole site")
	c.cmd.Flags().BoolVar(&all, "all", false, "end all of them")
	return c.submits(func(args []string) request.Request {
		return request.Request{Kind: request.KindUncordon, Node: optional(args), Site: site, All: all}
	}, nil)
}

func pauseCommand() *cobra.Command {
	var hard bool
	c := newRequestCommand("pause", "Keep policy from replacing the leader", `While the group is paused, no reload, better member or failback replaces the leader. A
leader that dies, or fails its health probe, is still replaced, unless the pause is
--hard. Operator requests (move, drain, ...) still take effect, except in a hard pause.`)
	c.cmd.Flags().BoolVar(&hard, "hard", false, "elect no leader at all, not even when the leader dies")
	c.withFor(0, "how long it stays in force (default: until 'zkelectd resume')")
	return c.submits(func([]string) request.Request { return request.Request{Kind: request.KindPause, Hard: hard} }, nil)
}

func resumeCommand() *cobra.Command {
	return newRequestCommand("resume", "End a pause", "").submits(func([]string) request.Request { return request.Request{Kind: request.KindResume} }, nil)
}

func clearStrikesCommand() *cobra.Command {
	var all bool
	c := newRequestCommand("clear-strikes NODE | --all", "Clear the strikes of a node, or of all", "")
	c.cmd.Args = cobra.MaximumNArgs(1)
	c.cmd.Flags().BoolVar(&all, "all", false, "clear the strikes of all nodes")
	return c.submits(func(args []string) request.Request {
		return request.Request{Kind: request.KindClearStrikes, Node: optional(args), All: all}
	}, nil)
}

// optional returns the only argument, "" if there is none.
func optional(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}
