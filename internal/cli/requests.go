package cli

import (
	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/request"
)

// operation describes a command that submits a request. It has flags for the fields that requests of its kind take.
type operation struct {
	kind             request.Kind
	use, short, long string
	// many is set if it can be submitted in all groups at once, moves if it can then move leadership.
	many, moves bool
	// The usage of the flags; all is called --lost for forget.
	all, lasts, force, wait string
	done                    completion
	examples                []string
}

const lasts = "how long it stays in force (default: without end)"

// operations are the commands that submit a request, apart from move and reelect.
var operations = []operation{
	{
		kind: request.KindCordon, use: "cordon NODE | SITE", short: "Keep a node or site from being elected",
		long: `A cordoned node is not elected. If it leads, it keeps leading; see drain.`,
		many: true, lasts: lasts, examples: []string{"cordon n1 --for 2d", `cordon dc1 --reason "power works"`},
	},
	{
		kind: request.KindUncordon, use: "uncordon NODE | SITE | --all", short: "End a cordon or a drain",
		many: true, moves: true, all: "end all of them", examples: []string{"uncordon n1", "uncordon --all --yes"},
	},
	{
		kind: request.KindDrain, use: "drain NODE | SITE", short: "Cordon a node or site, and move leadership away from it",
		long: `Drain keeps a node or site from being elected, and replaces a leader there. An uncordon
of the same node or site ends it.`,
		many: true, moves: true, lasts: lasts, force: "cordon it even if no other member is eligible",
		wait: "wait until another leader is READY, and show the progress", done: ledElsewhere,
		examples: []string{`drain n1 --wait --reason "new disks"`, "drain dc1 --wait"},
	},
	{
		kind: request.KindPause, use: "pause", short: "Keep policy from replacing the leader",
		long: `While the group is paused, no reload, better member or failback replaces the leader. A
leader that dies, or fails its health probe, is still replaced, unless the pause is
--hard. Operator requests (move, drain, ...) still take effect, except in a hard pause.`,
		many: true, lasts: "how long it stays in force (default: until 'zkelectd resume')",
		examples: []string{`pause --for 1h --reason "change freeze"`, "pause --hard -g billing"},
	},
	{
		kind: request.KindResume, use: "resume", short: "End a pause", many: true, moves: true,
		examples: []string{"resume", "resume -g billing"},
	},
	{
		kind: request.KindClearStrikes, use: "clear-strikes NODE | --all", short: "Clear the strikes of a node, or of all",
		all: "clear the strikes of all nodes", examples: []string{"clear-strikes n1", "clear-strikes --all"},
	},
	{
		kind: request.KindForget, use: "forget NODE | --lost", short: "Forget a node that is no longer a member",
		long: `The group remembers each node that has been a member: status shows it as LOST, or as
STOPPED or REMOVED if it left on purpose, and expects it to come back. Forget drops a
node that does not. It is refused while the node is a member.`,
		many: true, all: "forget all nodes that are lost", examples: []string{"forget n4", "forget --lost"},
	},
}

func (o operation) define(cmd *command) {
	r := request.Request{Kind: o.kind}
	c := newRequestCommand(cmd, o.use, o.short, o.long)
	f := c.Flags()
	targets := []string{}
	if o.kind.Takes(request.FieldSite) {
		f.StringVar(&r.Node, "node", "", "the node; like NODE, but never a site")
		f.StringVar(&r.Site, "site", "", "the site; like SITE, but never a node")
		targets = append(targets, "node", "site")
	}
	if o.kind.Takes(request.FieldAll) {
		name := "all"
		if o.kind == request.KindForget {
			name = "lost"
		}
		f.BoolVar(&r.All, name, false, o.all)
		targets = append(targets, name)
	}
	if o.kind.Takes(request.FieldHard) {
		f.BoolVar(&r.Hard, "hard", false, "elect no leader at all, not even when the leader dies")
	}
	if o.kind.Takes(request.FieldFor) {
		c.withFor(o.lasts)
	}
	if o.wait != "" {
		c.withWait(o.wait)
	}
	if o.kind.Takes(request.FieldForce) {
		c.withForce(o.force)
	}
	if len(targets) > 0 {
		c.needsTarget(targets...)
	}
	if o.many {
		c.inMany(o.moves)
	}
	c.submits(func(args []string) request.Request {
		if o.kind.Takes(request.FieldSite) {
			r.Target = optional(args)
		} else if len(args) > 0 {
			r.Node = args[0]
		}
		return r
	}, o.done)
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

// optional returns the only argument, "" if there is none.
func optional(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}
