package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/policy"
	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/transition"
	"zkelectd/internal/watchdog"
	"zkelectd/internal/zk"
)

// electorRole elects while the member has the lowest sequence number: it makes decisions from snapshots, and writes them.
type electorRole struct {
	conn       cluster.Writer
	paths      cluster.Paths
	budget     cluster.Budget
	log        *slog.Logger
	background *background
	reread     func()
	table      *slotTable
	number     int       // of the slot
	settings   *Settings // in force
	placement  Placement
	rank       func(ctx context.Context, program []string, in policy.Input) policy.Answer

	core     *elector.Elector
	watchdog *watchdog.Watchdog
	program  elector.Program
	history  historyWriter
	roster   *rosterWriter // nil unless this is slot 0 or the only leadership
	heir     heirWriter
	retry    elector.Retry

	again    time.Duration  // when evaluate is to be called if nothing happens; 0 for never
	active   bool           // this member has been the elector in this session
	compiled *policy.Policy // the policy in force
	source   int64          // Modified of the record that compiled was made from
	busy     bool           // a write is under way
	settled  time.Duration  // when the last write ended: only a newer snapshot counts
	note     string         // why no leader can be elected
	blocked  string         // why a better member does not replace the leader
	awaiting string         // the group whose decision an election waits for
	revoking revocation     // the REVOKE that was logged last, if it has not taken effect
	sites    map[string]status.SiteCounts
	// noSuccessor is set if the elected member is about to end, and nobody can replace it.
	noSuccessor bool

	// elected is called in the loop after an ELECT that took effect.
	elected func(cluster.Elected)
	// unwritten is called in the loop with what people should know of a write that has failed; empty after others.
	unwritten func(why string)

	succeeded bool    // other members had registered before this one
	moves     Limiter // of preemptions; nil for none
	move      *permit // for a preemption; nil if there is none
	moving    int64   // the term of the preemption that is under way, 0 while none is
	wake      func()  // makes the loop evaluate again
}

func newElectorRole(g *Group, m *Member) *electorRole {
	opt := m.opt.Elector
	opt.LastKnown, opt.Epoch, opt.Group = &g.memory, m.instance.epoch(), g.opt.Name
	e := &electorRole{
		conn: m.session, paths: g.opt.Paths, budget: m.budget, log: g.log, background: m.background, reread: m.rereadAsElector,
		table: m.table(), number: m.number,
		settings: &g.settings, placement: g.opt.Placement, rank: g.opt.Rank, core: elector.New(opt), moves: m.opt.Limits.Moves, wake: m.wake,
		watchdog: watchdog.New(watchdog.Options{
			Takeover: m.opt.TakeoverTimeout, StrikeResetAfter: m.opt.StrikeResetAfter,
			LeaseWait: m.budget.LeaseWait,
		}),
		history: historyWriter{
			conn: m.session, paths: g.opt.Paths, self: m.self.Name, log: g.log, timeout: m.budget.Session, background: m.background,
			memory: &g.memory, count: g.opt.Counters.term,
		},
	}
	e.elected, e.unwritten = m.electedOther, m.setUnwritten
	e.heir = heirWriter{
		conn: m.session, paths: g.opt.Paths, log: g.log, timeout: m.budget.Session, background: m.background, reread: m.reader.Reread, core: e.core,
	}
	if m.number == 0 {
		e.roster = &rosterWriter{conn: m.session, paths: g.opt.Paths, self: m.self.Name, log: g.log, timeout: m.budget.Session, background: m.background, reread: m.reader.Reread}
	}
	return e
}

// evaluate makes a decision from the snapshot and starts at most one write. It returns when to call it again, 0 for never.
func (e *electorRole) evaluate(now time.Duration, snap cluster.Snapshot) time.Duration {
	e.noSuccessor = false
	if snap.At == 0 || !snap.Elector || snap.SelfLost {
		e.succeeded = e.succeeded || snap.At != 0
		return 0
	}
	if !e.active {
		e.active = true
		e.log.Info("now elector", "members", len(snap.Members))
		if e.succeeded {
			e.history.core.Succeed(snap, now)
		}
	}
	e.history.observe(snap, now)
	var wake time.Duration
	if !e.busy && snap.At >= e.settled { // else the result or a newer snapshot is on its way
		wake = e.decide(now, snap)
		if !e.busy { // else the others wait until this one has read what it writes
			e.table.end(e.number)
		}
	}
	if e.roster != nil { // no election waits for it
		wake = cluster.Earliest(e.roster.observe(snap, now), wake)
	}
	return wake
}

// concerns reports whether an event of the machine may change what the elector decides now. A RENEW that was answered changes only the
// leadership of this member: an idle leader that is the elector as well would rank all members at each of them.
func (e *electorRole) concerns(ev transition.Event, now time.Duration) bool {
	r, renewed := ev.(transition.RenewDone)
	return !renewed || r.Err != nil || e.again != 0 && now >= e.again
}

// decide makes a decision from a new snapshot and starts at most one write.
func (e *electorRole) decide(now time.Duration, snap cluster.Snapshot) time.Duration {
	if at := e.retry.Wait(&snap, e.table.others(e.number), now); at > 0 {
		return at
	}
	if !e.table.begin(e.number) {
		return 0
	}
	if !snap.Policy.Exists && e.number > 0 {
		return 0 // slot 0 publishes it
	}
	if !snap.Policy.Exists {
		rec := e.settings.policyRecord(1)
		e.write("publishing the policy", snap, false, func() {}, cluster.Op{Kind: cluster.OpCreate, Path: e.paths.Policy(), Data: cluster.Encode(&rec)})
		return 0
	}
	found := e.watchdog.Observe(snap, now)
	if e.repairSlots(snap) || !e.table.complete() {
		return found.Wake // perhaps the other members of this instance are still reading
	}
	in := elector.Input{
		Snapshot: snap, Policy: e.policy(snap), Now: now, Wall: time.Now(),
		Overdue: found.Overdue, Revoke: found.Revoke, Exclusions: found.Exclusions,
		Others: e.table.others(e.number),
	}
	in.Placement = e.placement.Others(policy.RelationsOf(in.Policy.Rules).Peers())
	ready, wake := e.consult(&in)
	if !ready {
		return cluster.Earliest(wake, found.Wake)
	}
	d := e.decideWithLimits(in)
	if d.Elect != nil && d.Elect.Cause == cluster.CausePreempt && e.table.outdated(snap.At) { // no recovery waits for that
		e.endMove()
		e.reread()
		return cluster.Earliest(wake, found.Wake)
	}
	e.report(d)
	e.noSuccessor = d.NoSuccessor
	e.carryOut(d, snap, in.Others)
	var heirWake time.Duration
	if !e.busy {
		heirWake = e.heir.observe(in, now)
	}
	return cluster.Earliest(wake, d.Wake, found.Wake, heirWake)
}

// consult adds the ranking program's answer to the input, and runs the program if necessary. It reports whether the input is
// complete.
func (e *electorRole) consult(in *elector.Input) (ready bool, wake time.Duration) {
	ready, wake, run := e.program.Update(e.core, in)
	if run == nil {
		return ready, wake
	}
	program := e.settings.Program
	var a policy.Answer
	e.background.run(0, func(ctx context.Context) { a = e.rank(ctx, program, run.Input) }, func() {
		e.program.SetResult(run, a, boottime.Now())
		if a.Err != "" {
			e.log.Warn("the ranking program failed", "reason", a.Err)
		}
	})
	return ready, wake
}

// revocation is the cause of a REVOKE.
type revocation struct {
	term   int64
	reason string
}

// carryOut writes the decision.
func (e *electorRole) carryOut(d elector.Decision, snap cluster.Snapshot, others []cluster.SlotState) {
	var ops []cluster.Op
	var what string
	repair, done := false, func() {}
	switch {
	case d.Elect != nil:
		e.log.Info("electing", "leader", d.Elect.Node, "term", d.Elect.Term, "cause", d.Elect.Cause, "reason", d.Elect.Reason)
		if f := d.Fence; f != nil && !snap.Fence.Readable() {
			e.log.Warn(e.newFenceText(f, snap), "term", f.Term)
		}
		for _, member := range snap.Members {
			if _, err := cluster.LastTerm(member.Node); err != nil {
				e.log.Warn("the last term that a member remembers is ignored: no group reaches it",
					"znode", e.paths.Node(member.ID), "err", err)
			}
		}
		e.table.decide(snap.At)
		e.placement.Elected(d.Elect.Node) // at once: another group may decide before this is written
		recordDecision(boottime.Now(), e.paths, snap.Self, d.Elect)
		what, ops, repair = "ELECT", e.paths.ElectTx(snap, *d.Elect, d.Fence, others...), d.Elect.Cause == cluster.CauseRepair
		done = func() { e.elected(*d.Elect) }
	case d.Revoke != nil:
		if cause := (revocation{d.Revoke.Term, d.Revoke.Reason}); cause != e.revoking {
			e.revoking = cause // it is repeated while it is refused
			e.log.Warn("revoking", "holder", d.Revoke.Node, "term", d.Revoke.Term, "reason", d.Revoke.Reason)
		}
		what, ops, done = "REVOKE", e.paths.RevokeTx(snap, *d.Revoke), func() { e.revoking = revocation{} }
	case d.Control != nil:
		for _, event := range d.Scheduled {
			e.log.Info("scheduled move", "event", event)
		}
		what, ops = "CONTROL", e.paths.ControlTx(snap.Self.Name, snap.Control, *d.Control)
	default:
		e.unwritten("")
		return
	}
	e.write(what, snap, repair, done, ops...)
}

// place notes who is elected, unless a decision is being written.
func (e *electorRole) place(snap cluster.Snapshot) {
	if e.busy || snap.At < e.settled || snap.At == 0 || snap.Elected.Err != nil {
		return
	}
	e.placement.Elected(snap.Elected.Record.Node)
}

// newFenceText explains why the next leader waits if no fence could be read.
func (e *electorRole) newFenceText(f *cluster.Fence, snap cluster.Snapshot) string {
	wait := max(time.Duration(f.LeaseWait), e.budget.LeaseWait).Round(10 * time.Millisecond)
	if snap.Fence.Err != nil && errors.Is(snap.Fence.Err, cluster.ErrNeverWritten) {
		return fmt.Sprintf("there is no record of an earlier leader: the first leader waits %s for a lease that may still be running; "+
			"'zkelectd init' on a new group avoids this", wait)
	}
	return fmt.Sprintf("the fence was rewritten: the next leader waits %s for a lease that may still be running: %s", wait, f.Reason)
}

// report logs, once, why no leader can be elected or why a better member does not replace the leader. It keeps both for the view.
func (e *electorRole) report(d elector.Decision) {
	switch {
	case d.Note == "" || d.Note == e.note:
	case d.Starting:
		e.log.Info("not electing yet", "reason", d.Note)
	default:
		e.log.Warn("no leader can be elected", "reason", d.Note)
	}
	if d.Awaiting != "" && d.Awaiting != e.awaiting {
		e.log.Info("waiting for the election of another group", "group", d.Awaiting)
	}
	blocked := d.Blocked.String()
	if blocked != "" && blocked != e.blocked {
		e.log.Info("preemption blocked", "reason", blocked)
	}
	e.note, e.blocked, e.awaiting, e.sites = d.Note, blocked, d.Awaiting, eligibility(d.Ranking)
}

// eligibility counts the eligible and the ineligible members of each site.
func eligibility(r policy.Ranking) map[string]status.SiteCounts {
	sites := make(map[string]status.SiteCounts)
	for _, entry := range r.Entries {
		site := entry.Member.Node.Record.Site
		s := sites[site]
		if entry.Eligible() {
			s.Eligible++
		} else {
			s.Ineligible++
		}
		if slices.ContainsFunc(entry.Refusals, func(r policy.Refusal) bool { return r.Filter == policy.ExcludedFilter }) {
			s.Excluded++
		}
		sites[site] = s
	}
	return sites
}

// write runs a transaction, in several if it has many operations, that was made from snap. It does not apply its effect to snap: the watch delivers it. A refusal
// usually means that the snapshot is outdated. repair marks an election that only repairs the records. done is called once the
// transaction has taken effect.
func (e *electorRole) write(what string, snap cluster.Snapshot, repair bool, done func(), ops ...cluster.Op) {
	e.busy = true
	others := e.table.others(e.number)
	var err error
	e.background.run(e.budget.Session, func(ctx context.Context) {
		for _, tx := range e.paths.Split(ops) {
			if _, err = e.conn.Do(zk.WithPriority(ctx, zk.PriorityRecovery), tx...); err != nil {
				break
			}
		}
	}, func() {
		e.busy = false
		e.settled = boottime.Now()
		if err == nil {
			done()
		}
		e.unwritten(describeHeldBack(ops, err))
		e.reread()
		pause := e.budget.Renew / 4
		switch {
		case err != nil:
			e.logFailed(what, err, e.retry.Failed(what, &snap, others, err, refused(err), e.settled, pause))
		case repair:
			e.retry.Repaired(e.settled, pause)
		default:
			e.retry.Succeeded(what)
		}
	})
}

// describeHeldBack returns what people should know of a write that costs the connection each time it is sent; empty for others.
func describeHeldBack(ops []cluster.Op, err error) string {
	var held *zk.HeldBackError
	if !errors.As(err, &held) {
		return ""
	}
	return fmt.Sprintf("as the elector it cannot write %s: ZooKeeper closes the connection each time; "+
		"if the servers log 'Len error', raise jute.maxbuffer on all of them", ops[len(ops)-1].Path)
}

// logFailed logs a failed write: at debug level if another write came first, once if it is repeated, and once more if the refusal
// is permanent.
func (e *electorRole) logFailed(what string, err error, visible bool) {
	switch {
	case visible && refused(err):
		e.log.Error("ZooKeeper refuses the elector's decision: no new leader can be elected", "what", what, "err", err)
	case visible:
		e.log.Warn("cannot write the elector's decision; retrying", "what", what, "err", err)
	default:
		e.log.Debug("write superseded", "what", what, "err", err)
	}
}

// policy returns the policy in force, or that of this daemon's configuration if the record cannot be used.
func (e *electorRole) policy(snap cluster.Snapshot) *policy.Policy {
	if e.compiled != nil && e.source == snap.Policy.Stat.Modified {
		return e.compiled
	}
	e.source = snap.Policy.Stat.Modified
	rec, err := snap.Policy.Record, snap.Policy.Err
	if err == nil {
		if e.compiled, err = policy.New(rec); err == nil {
			e.log.Info("policy in force", "type", rec.Type, "revision", rec.Revision, "by", rec.By)
			e.placement.SetPolicy(rec.Rules)
			return e.compiled
		}
	}
	e.log.Error("the policy in ZooKeeper cannot be used: ranking by this daemon's configuration", "znode", e.paths.Policy(), "err", err)
	e.compiled, err = policy.New(e.settings.policyRecord(0))
	if err != nil {
		panic(fmt.Sprintf("group: a checked configuration has a policy that does not compile: %v", err))
	}
	return e.compiled
}
