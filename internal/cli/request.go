package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"zkelectd/internal/cluster"
	"zkelectd/internal/guard"
	"zkelectd/internal/operator"
	"zkelectd/internal/operator/request"
	"zkelectd/internal/sys/procinfo"
)

// requestCommand is a command that submits an operator request.
type requestCommand struct {
	*command
	reason   string
	duration time.Duration
	force    bool
	wait     bool
	timeout  time.Duration
	dry      bool
	output   *string
	// many is set if it can be submitted in all groups at once; the fields below are for that.
	many bool
	// rebalance is set to plan the groups with regard to each other, and to leave alone those whose leader stays.
	rebalance bool
	yes       bool
	parallel  int
}

// newRequestCommand returns a command with the flags that all requests have.
func newRequestCommand(cmd *command, use, short, long string) *requestCommand {
	c := &requestCommand{command: cmd}
	c.Use, c.Short, c.Long = use, short, long
	c.Flags().StringVar(&c.reason, "reason", "", fmt.Sprintf("the reason, shown by status and history; at most %d bytes", request.MaxReason))
	c.output = c.outputFlag()
	return c
}

// inMany permits the request in all groups at once. moves is set if it can move leadership: then that is done in a few groups at
// a time.
func (c *requestCommand) inMany(moves bool) {
	c.many, c.parallel = true, 10
	c.Long = strings.TrimSpace(c.Long + `

If zookeeper.root has several groups and none is named with -g, it is done in all of them,
after the plan for each has been shown.`)
	f := c.Flags()
	f.BoolVar(&c.yes, "yes", false, "with several groups: do it without asking")
	if !moves {
		return
	}
	f.IntVar(&c.parallel, "parallel", c.parallel, "with several groups: in how many of them leadership may move at once")
	if f.Lookup("wait") == nil {
		c.withWait("with several groups: wait until leadership has moved in all of them")
	}
}

// interactive reports whether a person can be asked.
func (c *requestCommand) interactive() bool {
	f, ok := c.InOrStdin().(*os.File)
	return ok && *c.output == "table" && isTerminal(f)
}

// withWait adds the flags --wait and --timeout.
func (c *requestCommand) withWait(usage string) {
	c.Flags().BoolVar(&c.wait, "wait", false, usage)
	durationFlag(c.command, &c.timeout, "timeout", 2*time.Minute, "how long to wait with --wait")
}

// needsTarget makes the command refuse a command line that names no target.
func (c *requestCommand) needsTarget(flags ...string) {
	c.Args = func(cmd *cobra.Command, args []string) error {
		for _, name := range flags {
			if cmd.Flags().Changed(name) {
				return cobra.MaximumNArgs(1)(cmd, args)
			}
		}
		return cobra.ExactArgs(1)(cmd, args)
	}
}

// submits completes the command, with the request that it submits. done reports when the request has taken effect; nil if the command
// has no --wait.
func (c *requestCommand) submits(build func(args []string) request.Request, done completion) {
	c.Flags().BoolVar(&c.dry, "dry-run", false, "print what would happen, without submitting the request")
	refuse, req := c.check, request.Request{}
	c.check = func(args []string) error {
		if refuse != nil {
			if err := refuse(args); err != nil {
				return err
			}
		}
		if c.duration < 0 || (c.Flags().Changed("for") && c.duration == 0) {
			return errors.New("--for must be more than 0s; leave it out for a request that does not expire")
		}
		req = build(args)
		req.Options = request.Options{By: whoami(), Reason: c.reason, For: c.duration, Force: c.force}
		if c.many && c.parallel < 1 {
			return errors.Join(req.Check(), fmt.Errorf("--parallel %d: must be 1 or more", c.parallel))
		}
		return req.Check()
	}
	c.runMany = func(ctx context.Context, s selection, _ []string) error {
		if s.base == "" && c.rebalance {
			return errors.New("--all is for several groups: leave it out to elect the leader of this one anew")
		}
		if s.base != "" && c.many {
			all := rollout{command: c, request: req, done: done, out: c.OutOrStdout(), in: c.InOrStdin()}
			return all.run(ctx, s)
		}
		permit := wholeGroup
		if req.Kind.OfSlot() {
			permit = oneLeader
		}
		return s.withOnly(ctx, permit, func(ctx context.Context, g group) error { return c.submit(ctx, g, req, done) })
	}
}

// submit submits the request in one group.
func (c *requestCommand) submit(ctx context.Context, g group, req request.Request, done completion) error {
	waiting := ctx
	if c.wait {
		var stop context.CancelFunc
		waiting, stop = interruptible(ctx) // from here on: the request may be in force
		defer stop()
	}
	before := c.leadersTerm(ctx, g)
	plan, err := c.planOrSubmit(ctx, g, req)
	if done := nothingToDo(err); done != "" {
		plan, err = request.Plan{Messages: []string{done}}, nil
	} else if err != nil {
		return err
	}
	r := report{Request: plan.ID, Messages: plan.Messages, out: c.OutOrStdout(), json: *c.output == "json", before: before}
	r.say(plan.Messages...)
	if c.wait && done != nil && plan.ID != 0 {
		err = await(waiting, g, plan, c.timeout, done, &r)
	}
	return errors.Join(err, r.finish())
}

// leadersTerm returns the term of the READY leader for --wait: a request that leaves it in place has left no gap. It is 0 if there is
// none.
func (c *requestCommand) leadersTerm(ctx context.Context, g group) int64 {
	if !c.wait || c.dry || g.manyLeaders() {
		return 0
	}
	snap, err := g.read(ctx)
	if err != nil || !snap.Ready() {
		return 0 // submitting finds out why
	}
	return snap.Current.Record.Term
}

// planOrSubmit submits a request. With --dry-run it only returns the plan, with who would lead and what would hold a better member
// back; its number is 0 then.
func (c *requestCommand) planOrSubmit(ctx context.Context, g group, req request.Request) (request.Plan, error) {
	if !c.dry {
		return g.submitter().Submit(ctx, req.Plan)
	}
	q, err := g.submitter().Question(ctx)
	if err != nil {
		return request.Plan{}, err
	}
	lines, err := operator.DryRun(q, req)
	if err != nil {
		return request.Plan{}, err
	}
	return request.Plan{Messages: append(lines, "dry run: nothing was submitted")}, nil
}

// nothingToDo returns what to say if a request was not submitted because the group is already as requested; otherwise "".
func nothingToDo(err error) string {
	var none *request.NotAffectedError
	if !errors.As(err, &none) || !none.Done {
		return ""
	}
	return "nothing to do: " + none.Reason
}

// report shows the progress of a request: line by line as text, or at the end as JSON.
type report struct {
	Request    int64            `json:"request"`
	Messages   []string         `json:"messages"`
	Leader     string           `json:"leader,omitempty"`
	Site       string           `json:"site,omitempty"`
	Term       int64            `json:"term,omitempty"`
	Took       cluster.Duration `json:"took,omitempty"`
	Leaderless *cluster.Gap     `json:"leaderless,omitempty"`

	out    io.Writer
	json   bool
	before int64 // the term of the leader before the request; 0 if there was none, or that is not known
}

func (r *report) say(lines ...string) {
	for _, line := range lines {
		if !r.json {
			fmt.Fprintln(r.out, printable(line))
		}
	}
}

func (r *report) finish() error {
	if !r.json {
		return nil
	}
	return printJSON(r.out, r)
}

// submitter submits operator requests on the session of a command.
func (g group) submitter() operator.Submitter {
	return operator.Submitter{Conn: g.session, Paths: g.paths, Slots: g.manyLeaders(), Config: g.cfg, Neighbors: g.neighbors(), Read: operator.AnswerTimeout, Write: operator.AnswerTimeout}
}

// whoami returns the user who runs this command, as user@host.
func whoami() string {
	return procinfo.AtHost(cmp.Or(os.Getenv("SUDO_USER"), procinfo.UserName(os.Getuid())))
}

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
		durationFlag(c.command, &c.duration, "for", 0, o.lasts)
	}
	if o.wait != "" {
		c.withWait(o.wait)
	}
	if o.kind.Takes(request.FieldForce) {
		f.BoolVar(&c.force, "force", false, o.force)
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

// completion reports whether a request has taken effect. An error means that it never will.
type completion func(s cluster.Snapshot, plan request.Plan) (bool, error)

var errDone = errors.New("done")

// interruptible returns a context that ends with the first signal that asks this process to end; a second one ends it
// at once.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, guard.NotIgnored(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)...)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// unfinished returns the error of a request that has not taken effect before the timeout, or before the end of ctx. It
// says how to end what stays in force.
func unfinished(ctx context.Context, g group, plan request.Plan, timeout time.Duration, last string) error {
	why := fmt.Sprintf("not done after %s (--timeout)", timeout)
	if ctx.Err() != nil {
		why = "interrupted"
	}
	end := ""
	if m := plan.Control.Move; m != nil && m.ID == plan.ID {
		end = "; to end it: " + cluster.InGroup("'zkelectd reelect'", g.name)
	}
	for _, c := range plan.Control.Cordons {
		switch {
		case c.ID != plan.ID:
		case c.Node != "":
			end = "; to end it: " + cluster.InGroup("'zkelectd uncordon --node %s'", g.name, c.Node)
		default:
			end = "; to end it: " + cluster.InGroup("'zkelectd uncordon --site %s'", g.name, c.Site)
		}
	}
	return exitError{statusTimedOut, fmt.Errorf("%s; the request stays in force%s (%s)", why, end, last)}
}

// await follows a request until it has taken effect, in a group with slots in all of them, and reports each step.
func await(ctx context.Context, g group, plan request.Plan, timeout time.Duration, done completion, r *report) error {
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	p := handover{notices: notices{w: os.Stderr}, report: r, began: began, plan: plan, done: done}
	read := func(ctx context.Context, g group) (operator.Leaders, error) {
		all, err := g.readLeaders(ctx, true)
		if _, over, _ := p.progress(all); over && err == nil {
			return g.readLeaders(ctx, false) // parts may have been read before the others changed
		}
		return all, err
	}
	switch err := follow(limited, g, began, read, &p); {
	case errors.Is(err, errDone):
	case err != nil:
		return err
	default:
		return unfinished(ctx, g, plan, timeout, p.last)
	}
	if r.Took = cluster.Duration(time.Since(began)); !g.manyLeaders() {
		r.sayLeader(ctx, g, p.leader)
	}
	return nil
}

// handover is the display of a request that takes effect. It ends with errDone.
type handover struct {
	notices
	report *report
	began  time.Time
	plan   request.Plan
	done   completion
	last   string          // what it has said last
	leader cluster.Current // at the end, of the only leader
}

func (h *handover) show(read operator.Leaders) error {
	now, over, err := h.progress(read)
	if err != nil {
		return err
	}
	if now != h.last {
		h.last = now
		h.report.say(fmt.Sprintf("%8s  %s", time.Since(h.began).Round(time.Millisecond), now))
	}
	if over {
		h.leader = read.Shared.Current.Record
		return errDone
	}
	return nil
}

// sayLeader reports who leads at the end, and how long the group had no leader.
func (r *report) sayLeader(ctx context.Context, g group, rec cluster.Current) {
	r.Leader, r.Site, r.Term = rec.Node, rec.Site, rec.Term
	if r.before != 0 && rec.Term == r.before {
		r.say(fmt.Sprintf("%s (%s) still leads in term %d", rec.Node, rec.Site, rec.Term))
		return
	}
	text := fmt.Sprintf("%s (%s) leads in term %d", rec.Node, rec.Site, rec.Term)
	if t, ok := pastTerm(ctx, g, rec.Term); ok && t.Leaderless != nil {
		r.Leaderless = t.Leaderless
		text += fmt.Sprintf(", %s without a leader", t.Leaderless.Rounded())
	}
	r.say(text)
}

// progress describes the handovers that are not over, of one leader or in slots, and reports whether none is left.
func (h *handover) progress(read operator.Leaders) (now string, over bool, err error) {
	var pending []string
	for _, s := range read.Snapshots {
		ok, err := h.done(s, h.plan)
		switch {
		case err != nil:
			return "", false, err
		case s.Slot == "" || len(read.Snapshots) == 1:
			return progress(s), ok, nil
		case !ok:
			pending = append(pending, fmt.Sprintf("slot %s: %s", s.Slot, progress(s)))
		}
	}
	if len(pending) == 0 {
		return "done in all slots", true, nil
	}
	return some(pending), false, nil
}

// progress describes the state of a handover.
func progress(s cluster.Snapshot) string {
	e, c := s.Elected.Record, s.Current
	switch {
	case s.Ready():
		return fmt.Sprintf("%s is READY in term %d", e.Node, e.Term)
	case c.Readable() && c.Record.Term != e.Term:
		return fmt.Sprintf("%s is elected in term %d (%s); %s stops and releases", e.Node, e.Term, e.Cause, c.Record.Node)
	case c.Readable():
		return fmt.Sprintf("%s takes over in term %d", e.Node, e.Term)
	case !s.Elected.Readable():
		return "no leader is elected"
	}
	return fmt.Sprintf("%s is elected in term %d (%s); there is no leader", e.Node, e.Term, e.Cause)
}

// pastTerm reads a term of the history. It waits a moment for it, since the elector writes it when the leader is READY.
func pastTerm(ctx context.Context, g group, term int64) (cluster.PastTerm, bool) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	for {
		h, err := g.history(ctx, true)
		if t, ok := h.Find(term); err == nil && ok {
			return t, true
		}
		select {
		case <-g.session.Wake():
			g.session.TakeHints()
		case <-ctx.Done():
			return cluster.PastTerm{}, false
		}
	}
}

// checkEnded returns an error if a request has ended, or if another has replaced it.
func checkEnded(s cluster.Snapshot, plan request.Plan, inForce bool) error {
	if d, over := s.Control.Record.Ended(plan.ID); over {
		return exitError{statusFailed, fmt.Errorf("the request has ended: %s: %s", d.What, d.Outcome)}
	}
	if s.Control.Readable() && !inForce {
		return exitError{statusFailed, fmt.Errorf("another request has replaced it: %s", s.Control.Record.LastRequest)}
	}
	return nil
}

// moveOptions are the flags of 'move' that other requests do not have.
type moveOptions struct {
	node, site string
	at         string
	due        time.Time // at, parsed
	scheduled  bool
	cancel     bool
}

func moveCommand(cmd *command) {
	var o moveOptions
	c := newRequestCommand(cmd, "move [NODE | SITE]", "Move leadership to a node or site, now or at a time", fmt.Sprintf(`Move hands leadership over as planned: the leader stops its child and releases
leadership, then the target takes over. A target that is not eligible is refused, with
the reason. The target ranks first until --for has passed, until it is no longer
eligible, or until 'zkelectd reelect' or another move; then policy decides again.
Without a target, the best other member by policy takes over, and ranks first for %s
or --for. To keep the old leader from being elected, drain it.

With --at, that happens at a later time: 02:00 or 02:00:30 is the next such time in the
zone of this host; otherwise write date, time and zone, as in 2026-11-24T02:00:00+01:00.
Each leader has at most one such move: another one replaces it. If the target is then not
eligible, or the group is paused, the move is dropped, and status says so. It is also
dropped if it cannot be carried out within %s of that time.
--scheduled lists these moves and how the last ones ended; --cancel cancels the one
that is scheduled.`, request.BestMoveFor, cluster.ScheduleGrace))
	c.Args = cobra.MaximumNArgs(1)
	f := c.Flags()
	f.StringVar(&o.node, "to", "", "the node to move leadership to; like NODE, but never a site")
	f.StringVar(&o.site, "site", "", "the site to move leadership to; its best node leads")
	f.StringVar(&o.at, "at", "", "when to move leadership, as in 02:00 or 2026-11-24T02:00:00+01:00 (default: now)")
	f.BoolVar(&o.scheduled, "scheduled", false, "list the moves that are scheduled, and how the last ones ended")
	f.BoolVar(&o.cancel, "cancel", false, "cancel the move that is scheduled")
	durationFlag(c.command, &c.duration, "for", 0, "how long the target ranks first (default: without end, or 10m without a target)")
	c.withWait("wait until the target is READY, and show the progress")
	f.BoolVar(&c.force, "force", false, "ignore policy, cordons and health for the target")
	c.MarkFlagsMutuallyExclusive("at", "scheduled", "cancel", "wait")
	for _, flag := range []string{"to", "site", "for", "force"} {
		c.MarkFlagsMutuallyExclusive("cancel", flag)
		c.MarkFlagsMutuallyExclusive("scheduled", flag)
	}
	c.check = func(args []string) (err error) {
		if len(args) > 0 && (o.cancel || o.scheduled) {
			return errors.New("--cancel and --scheduled take no target: each leader has at most one scheduled move")
		}
		if f.Changed("at") {
			o.due, err = parseTime(o.at, time.Now())
		}
		return err
	}
	c.submits(func(args []string) request.Request {
		best := len(args) == 0 && !f.Changed("to") && !f.Changed("site") && !o.cancel
		return request.Request{Kind: request.KindMove, Target: optional(args), Node: o.node, Site: o.site, Best: best, At: o.due, Cancel: o.cancel}
	}, moved)
	for _, flag := range []string{"reason", "dry-run"} {
		c.MarkFlagsMutuallyExclusive("scheduled", flag)
	}
	submit := c.runMany
	c.runMany = func(ctx context.Context, s selection, args []string) error {
		if o.scheduled {
			return s.listSchedules(ctx, c.OutOrStdout(), *c.output)
		}
		return submit(ctx, s, args)
	}
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

// parseTime returns the time that a person means: a time of day, which is the next such one in the zone of now, or a time with
// date and zone.
func parseTime(text string, now time.Time) (time.Time, error) {
	for _, layout := range []string{"15:04", "15:04:05"} {
		of, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		year, month, day := now.Date()
		for {
			// A clock that is set forward skips some times of a day. Date then returns one that is an hour off.
			at := time.Date(year, month, day, of.Hour(), of.Minute(), of.Second(), 0, now.Location())
			if at.After(now) && at.Hour() == of.Hour() && at.Minute() == of.Minute() {
				return at, nil
			}
			day++
		}
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("--at %q: write a time of day, as in 02:00, or a date, time and zone, as in %s", text, now.Add(time.Hour).Truncate(time.Minute).Format(time.RFC3339))
	}
	if !at.After(now) {
		return time.Time{}, fmt.Errorf("--at %q is in the past: it is %s now; leave out --at to move leadership at once", text, now.Format(time.RFC3339))
	}
	return at, nil
}

// listedSchedule is one scheduled move in the output of 'move --scheduled'.
type listedSchedule struct {
	Group   string `json:"group"`
	Slot    string `json:"slot,omitempty"`
	Request int64  `json:"request"`
	// State is scheduled, carried-out, dropped, canceled or replaced. Detail says why it was dropped, or who ended it.
	State  string `json:"state"`
	Detail string `json:"detail,omitempty"`
	// Due is when it is or was due, by the clock of the host where it was submitted.
	Due    time.Time `json:"due"`
	Target string    `json:"target"`
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
	// Ended is when it ended; nil while it is scheduled.
	Ended *time.Time `json:"ended,omitempty"`
}

// stateScheduled is the state of a move that is not over.
const stateScheduled = "scheduled"

// listSchedules lists the scheduled moves of the groups that a command line names.
func (s selection) listSchedules(ctx context.Context, w io.Writer, output string) error {
	found, errs := make([][]listedSchedule, len(s.groups)), make([]error, len(s.groups))
	s.each(ctx, func(ctx context.Context, i int, g group) {
		if errs[i] = g.err; g.err == nil {
			found[i], errs[i] = g.schedules(ctx)
		}
		switch {
		case operator.NotAffected(errs[i]):
			errs[i] = nil // no daemon has joined it
		case errs[i] != nil:
			errs[i] = fmt.Errorf("%s: %w", g.name, errs[i])
		}
	})
	all := slices.Concat(found...)
	if output == "json" {
		return errors.Join(errors.Join(errs...), printJSON(w, append([]listedSchedule{}, all...)))
	}
	if len(all) == 0 {
		fmt.Fprintln(w, "no move is scheduled")
	} else if err := printSchedules(w, all); err != nil {
		return err
	}
	return errors.Join(errs...)
}

// schedules returns the scheduled moves of the group, or of the slot: those that are to come, then those that are over.
func (g group) schedules(ctx context.Context) ([]listedSchedule, error) {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	data, stat, err := g.session.Get(ctx, g.paths.Control(), false)
	if err != nil && !errors.Is(err, cluster.ErrNoNode) {
		return nil, fmt.Errorf("cannot read znode %s: %w", g.paths.Control(), err)
	}
	read := g.paths.ReadControl(data, stat, err == nil)
	if read.Exists && read.Err != nil {
		return nil, read.Err
	}
	var all []listedSchedule
	for _, m := range read.Record.Scheduled {
		all = append(all, listedSchedule{Slot: m.Slot, Request: m.ID, State: stateScheduled, Due: m.At, Target: m.Target(), By: m.By, Reason: m.Reason})
	}
	for _, e := range slices.Backward(read.Record.EndedSchedules) {
		all = append(all, listedSchedule{
			Slot: e.Slot, Request: e.ID, State: string(e.Outcome), Detail: e.Detail, Due: e.At, Target: e.Target, By: e.By, Reason: e.Reason, Ended: &e.Time,
		})
	}
	if g.paths.Slot != "" {
		all = slices.DeleteFunc(all, func(l listedSchedule) bool { return l.Slot != g.paths.Slot })
	}
	for i := range all {
		all[i].Group = g.name
		if all[i].Slot != "" && g.paths.Slot == "" {
			all[i].Group += "/" + all[i].Slot
		}
	}
	return all, nil
}

func printSchedules(w io.Writer, all []listedSchedule) error {
	now := time.Now()
	t := newTable(w, "GROUP", "MOVE TO", "DUE", "BY", "REASON", "STATE")
	for _, l := range all {
		due, state := l.Due.Local().Format("2006-01-02 15:04:05 MST"), l.State
		if l.State == stateScheduled {
			due = cluster.DescribeTime(l.Due, now)
		}
		if l.Detail != "" {
			state += ": " + l.Detail
		}
		t.row(l.Group, l.Target, due, l.By, dash(l.Reason), state)
	}
	return t.Flush()
}

// appendSchedules prints the scheduled moves below the history, if there are any: one that was dropped has no term. That they cannot be
// read is shown by status.
func appendSchedules(ctx context.Context, w io.Writer, g group) error {
	all, err := g.schedules(ctx)
	if err != nil || len(all) == 0 {
		return nil
	}
	fmt.Fprintln(w, "\nScheduled moves:")
	return printSchedules(w, all)
}
