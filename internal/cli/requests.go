package cli

import (
	"github.com/spf13/cobra"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/request"
)

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

func cordonCommand() *cobra.Command {
	var node, site string
	c := newRequestCommand("cordon NODE | SITE", "Keep a node or site from being elected", `A cordoned node is not elected. If it leads, it keeps leading; see drain.`)
	c.targetFlags(&node, &site)
	c.withFor(0, "how long it stays in force (default: without end)")
	c.inMany(false)
	return c.submits(func(args []string) request.Request {
		return request.Request{Kind: request.KindCordon, Target: optional(args), Node: node, Site: site}
	}, nil)
}

func drainCommand() *cobra.Command {
	var node, site string
	c := newRequestCommand("drain NODE | SITE", "Cordon a node or site, and move leadership away from it", `Drain keeps a node or site from being elected, and replaces a leader there. An uncordon
of the same node or site ends it.`)
	c.targetFlags(&node, &site)
	c.withFor(0, "how long it stays in force (default: without end)")
	c.withWait("wait until another leader is READY, and show the progress")
	c.withForce("cordon it even if no other member is eligible")
	c.inMany(true)
	return c.submits(func(args []string) request.Request {
		return request.Request{Kind: request.KindDrain, Target: optional(args), Node: node, Site: site}
	}, ledElsewhere)
}

func uncordonCommand() *cobra.Command {
	var node, site string
	var all bool
	c := newRequestCommand("uncordon NODE | SITE | --all", "End a cordon or a drain", "")
	c.targetFlags(&node, &site)
	c.cmd.Flags().BoolVar(&all, "all", false, "end all of them")
	c.inMany(true)
	return c.submits(func(args []string) request.Request {
		return request.Request{Kind: request.KindUncordon, Target: optional(args), Node: node, Site: site, All: all}
	}, nil)
}

func pauseCommand() *cobra.Command {
	var hard bool
	c := newRequestCommand("pause", "Keep policy from replacing the leader", `While the group is paused, no reload, better member or failback replaces the leader. A
leader that dies, or fails its health probe, is still replaced, unless the pause is
--hard. Operator requests (move, drain, ...) still take effect, except in a hard pause.`)
	c.cmd.Flags().BoolVar(&hard, "hard", false, "elect no leader at all, not even when the leader dies")
	c.withFor(0, "how long it stays in force (default: until 'zkelectd resume')")
	c.inMany(false)
	return c.submits(func([]string) request.Request { return request.Request{Kind: request.KindPause, Hard: hard} }, nil)
}

func resumeCommand() *cobra.Command {
	c := newRequestCommand("resume", "End a pause", "")
	c.inMany(true)
	return c.submits(func([]string) request.Request { return request.Request{Kind: request.KindResume} }, nil)
}

func clearStrikesCommand() *cobra.Command {
	var all bool
	c := newRequestCommand("clear-strikes NODE | --all", "Clear the strikes of a node, or of all", "")
	c.needsTarget("all")
	c.cmd.Flags().BoolVar(&all, "all", false, "clear the strikes of all nodes")
	return c.submits(func(args []string) request.Request {
		return request.Request{Kind: request.KindClearStrikes, Target: optional(args), All: all}
	}, nil)
}

func forgetCommand() *cobra.Command {
	var lost bool
	c := newRequestCommand("forget NODE | --lost", "Forget a node that is no longer a member", `The group remembers each node that has been a member: status shows it as LOST, or as
STOPPED or REMOVED if it left on purpose, and expects it to come back. Forget drops a
node that does not. It is refused while the node is a member.`)
	c.needsTarget("lost")
	c.cmd.Flags().BoolVar(&lost, "lost", false, "forget all nodes that are lost")
	c.inMany(false)
	return c.submits(func(args []string) request.Request {
		return request.Request{Kind: request.KindForget, Node: optional(args), All: lost}
	}, nil)
}

// optional returns the only argument, "" if there is none.
func optional(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}
