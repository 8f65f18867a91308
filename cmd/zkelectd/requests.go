package main

import (
	"github.com/spf13/cobra"

	"zkelectd/internal/cluster"
	"zkelectd/internal/request"
)

func moveCommand() *cobra.Command {
	var node, site string
	o := newRequestCommand("move --to NODE | --site SITE", "Move leadership to a node or site", `Move plans a handover: the leader stops its child and lets go, then the target takes
over. A target that may not lead is refused, with the reason. The target stays first
until --for is over, until it may not lead any more, or until 'zkelectd reelect' or
another move; then policy decides again.`)
	o.cmd.Flags().StringVar(&node, "to", "", "the node that is to lead")
	o.cmd.Flags().StringVar(&site, "site", "", "the site whose best node is to lead")
	o.lasting(0, "how long the target stays first (default: without end)")
	o.waiting("follow it until the target is READY")
	o.forcing("put policy, cordons and health aside for the target")
	return o.does(func([]string) request.Request {
		return request.Request{Kind: request.KindMove, Node: node, Site: site}
	}, func(s cluster.Snapshot, g request.Plan) (bool, error) {
		m := g.Control.Move
		if s.Ready() && m.Matches(s.Current.Record.Node, s.Current.Record.Site) {
			return true, nil
		}
		now := s.Control.Record.Move
		return false, ended(s, g, now != nil && now.ID == g.ID)
	})
}

func stepDownCommand() *cobra.Command {
	o := newRequestCommand("step-down", "Have the leader give up, and the next best take over", `Step-down has the present leader stop its child and let go; the best of the others
takes over. The old leader is not chosen for --for; 'zkelectd uncordon' ends that.`)
	o.lasting(request.StepDownFor, "how long the old leader is not chosen")
	o.waiting("follow it until the next leader is READY")
	return o.does(func([]string) request.Request { return request.Request{Kind: request.KindStepDown} }, elsewhere)
}

// elsewhere waits until somebody leads whom the request's cordon does not concern.
func elsewhere(s cluster.Snapshot, g request.Plan) (bool, error) {
	stands := false
	for _, c := range g.Control.Cordons {
		if c.ID == g.ID && s.Ready() && !c.Matches(s.Current.Record.Node, s.Current.Record.Site) {
			return true, nil
		}
	}
	for _, c := range s.Control.Record.Cordons {
		stands = stands || c.ID == g.ID
	}
	return false, ended(s, g, stands)
}

func reelectCommand() *cobra.Command {
	o := newRequestCommand("reelect", "Run the election again, by policy alone", `Reelect has the elector look for the best member now, whatever failback and
election.max_preemptions say, and without a move that is in force.`)
	o.waiting("follow it until the leader is READY")
	return o.does(func([]string) request.Request { return request.Request{Kind: request.KindReelect} }, func(s cluster.Snapshot, g request.Plan) (bool, error) {
		_, over := s.Control.Record.Ended(g.ID)
		return over && s.Ready(), nil
	})
}

func cordonCommand() *cobra.Command {
	var site string
	o := newRequestCommand("cordon NODE | --site SITE", "Keep a node or site from being chosen", `A cordoned node is not chosen. If it leads, it goes on; see drain.`)
	o.cmd.Args = cobra.MaximumNArgs(1)
	o.cmd.Flags().StringVar(&site, "site", "", "a whole site")
	o.lasting(0, "lift it by itself after this time (default: never)")
	return o.does(func(args []string) request.Request {
		return request.Request{Kind: request.KindCordon, Node: one(args), Site: site}
	}, nil)
}

func drainCommand() *cobra.Command {
	var site string
	o := newRequestCommand("drain NODE | --site SITE", "Cordon a node or site, and move leadership away from it", `Drain keeps a node or site from being chosen, and has a leader there replaced.
'zkelectd uncordon' lifts it.`)
	o.cmd.Args = cobra.MaximumNArgs(1)
	o.cmd.Flags().StringVar(&site, "site", "", "a whole site")
	o.lasting(0, "lift it by itself after this time (default: never)")
	o.waiting("follow it until somebody else is READY")
	o.forcing("cordon it also when no other member is eligible")
	return o.does(func(args []string) request.Request {
		return request.Request{Kind: request.KindDrain, Node: one(args), Site: site}
	}, elsewhere)
}

func uncordonCommand() *cobra.Command {
	var site string
	var all bool
	o := newRequestCommand("uncordon NODE | --site SITE | --all", "Lift a cordon, a drain or what is left of a step-down", "")
	o.cmd.Args = cobra.MaximumNArgs(1)
	o.cmd.Flags().StringVar(&site, "site", "", "that of a whole site")
	o.cmd.Flags().BoolVar(&all, "all", false, "all of them")
	return o.does(func(args []string) request.Request {
		return request.Request{Kind: request.KindUncordon, Node: one(args), Site: site, All: all}
	}, nil)
}

func pauseCommand() *cobra.Command {
	var hard bool
	o := newRequestCommand("pause", "Keep policy from moving the leader", `While the group is paused no reload, better member or failback moves the leader. One
that dies, or fails its health probe, is still replaced, unless the pause is --hard.
Operators' own requests (move, drain, ...) act all the same, but for a hard pause.`)
	o.cmd.Flags().BoolVar(&hard, "hard", false, "elect nobody at all, not even when the leader dies")
	o.lasting(0, "end it by itself after this time (default: 'zkelectd resume' does)")
	return o.does(func([]string) request.Request { return request.Request{Kind: request.KindPause, Hard: hard} }, nil)
}

func resumeCommand() *cobra.Command {
	return newRequestCommand("resume", "End a pause", "").does(func([]string) request.Request { return request.Request{Kind: request.KindResume} }, nil)
}

func clearStrikesCommand() *cobra.Command {
	var all bool
	o := newRequestCommand("clear-strikes NODE | --all", "Clear the strikes of a node, or of all", "")
	o.cmd.Args = cobra.MaximumNArgs(1)
	o.cmd.Flags().BoolVar(&all, "all", false, "of every node")
	return o.does(func(args []string) request.Request {
		return request.Request{Kind: request.KindClearStrikes, Node: one(args), All: all}
	}, nil)
}

func one(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}
