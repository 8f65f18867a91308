// Package electing is the elector's side of a group: it decides by the snapshots of a member, and writes the decisions
// and all else that only an elector writes. The pure packages elector and watchdog decide; this package feeds them, and
// carries out what they say.
package electing

import (
	"cmp"
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
	"zkelectd/internal/watchdog"
	"zkelectd/internal/zk"
)

// Placement is what the host knows of the leaders of its groups. Its methods must not block.
type Placement interface {
	// Others returns what an election takes into account of other groups. Peers are those that the policy refers to.
	Others(peers []string) elector.Placement
	// Elected notes the node that is elected in the group, and SetPolicy the policy in force.
	Elected(node string)
	SetPolicy(cluster.Rules)
}

// Options configure an [Elector]. All functions but Rank are called in the member's loop, and must not block.
type Options struct {
	Conn   cluster.ReadWriter
	Paths  cluster.Paths
	Self   cluster.Incarnation
	Budget cluster.Budget
	Log    *slog.Logger

	Elector   elector.Options
	Watchdog  watchdog.Options
	Placement Placement
	// Moves limits the preemptions that this host decides on at once; nil for no limit. Wake makes the loop call
	// [Elector.See] again.
	Moves *Share
	Wake  func()
	// Number is that of the slot, and Slots what the members know of the others; nil for a group without slots.
	// Registered is the record of slots that the instance was registered for.
	Number     int
	Slots      *Slots
	Registered cluster.Stored[cluster.Slots]

	// Policy returns the policy of this host's configuration with a revision, and Program its ranking program. Rank
	// runs that program, and may block.
	Policy  func(revision int64) cluster.Policy
	Program func() []string
	Rank    func(ctx context.Context, program []string, in policy.Input) policy.Answer

	// Run calls work in another goroutine, with a context that ends after limit (0 for never), and then done in the loop.
	Run func(limit time.Duration, work func(context.Context), done func())
	// Reread makes the member read the group again, and RereadDecision does so after a write of the elector.
	Reread, RereadDecision func()

	// Electing is called before an ELECT is sent, and Elected after one that took effect.
	Electing, Elected func(cluster.Elected)
	// Unwritten is called with what people should know of a write that has failed; empty after others.
	Unwritten func(why string)
	// Useless is called if this elector cannot do its work: its membership must end.
	Useless func(why string)
	// TakeRefused is called after a TAKE that was refused, or is not known to have taken effect.
	TakeRefused func()
	// RollCallSeen returns when this member has first seen the present roll call, see [cluster.RollCallSeen].
	RollCallSeen func() time.Duration
	// Count is called for each term that has ended.
	Count func(cluster.PastTerm)
}

// Elector elects while the member has the lowest sequence number. It belongs to the member's loop.
type Elector struct {
	opt      Options
	core     *elector.Elector
	watchdog *watchdog.Watchdog
	program  elector.Program
	history  history
	roster   roster
	heir     heir
	rollCall rollCall
	retry    elector.Retry

	view        View
	wake        time.Duration     // when See is to be called if nothing happens; 0 for never
	active      bool              // this member has been the elector in this session
	succeeded   bool              // other members had registered before this one
	noSuccessor bool              // see NoSuccessor
	compiled    *policy.Policy    // the policy in force
	source      int64             // Modified of the record that compiled was made from
	busy        bool              // a write is under way
	settled     time.Duration     // when the last write ended: only a newer snapshot counts
	awaiting    string            // the group whose decision an election waits for
	revoking    revocation        // the REVOKE that was logged last, if it has not taken effect
	move        *Permit           // for a preemption; nil if there is none
	failing     time.Duration     // since when no decision could be written; 0 if that is not so
	silent      map[string]string // see SetSilent
	seen        cluster.LeaseZnodeSeen
	moving      int64 // the term of the preemption that is under way, 0 while none is
}

// View is what the elector shows of its decisions.
type View struct {
	Note    string // why no leader can be elected
	Blocked string // why a better member does not replace the leader
	Manual  bool   // Blocked is only that failback is manual
	// AwaitsApproval is set if a person must approve the election that Note or Blocked is about.
	AwaitsApproval bool
	Proposal       *cluster.Proposal // that has not been answered
	Sites          map[string]status.SiteCounts
	// NoLeader is Note, unless the elector only waits for members that may be about to start. Failing says that all
	// have failed.
	NoLeader, Failing string
}

// New returns an elector.
func New(opt Options) *Elector {
	e := &Elector{opt: opt, core: elector.New(opt.Elector), watchdog: watchdog.New(opt.Watchdog)}
	e.history.record = record{e: e, what: "the history", znode: opt.Paths.History()}
	e.roster.record = record{e: e, what: "the roster", znode: opt.Paths.Roster()}
	e.rollCall.record = record{e: e, what: "the roll call", znode: opt.Paths.RollCall()}
	e.heir.record = record{e: e, what: "the heir", znode: opt.Paths.Heir()}
	return e
}

// View returns what is shown of the last decision.
func (e *Elector) View() View { return e.view }

// Wake returns when [Elector.See] is to be called if nothing happens; 0 for never.
func (e *Elector) Wake() time.Duration { return e.wake }

// NoSuccessor reports whether the elected member is about to end, and nobody can replace it.
func (e *Elector) NoSuccessor() bool { return e.noSuccessor }

// SetSilent sets who has fallen silent, see [elector.Input], and what was read of the lease znode if that is the
// holder.
func (e *Elector) SetSilent(silent map[string]string, seen cluster.LeaseZnodeSeen) {
	e.silent, e.seen = silent, seen
}

// Interrupted notes that the session has connected again.
func (e *Elector) Interrupted() { e.watchdog.Interrupted() }

// See makes a decision from a snapshot, and starts at most one write of it.
func (e *Elector) See(now time.Duration, snap cluster.Snapshot) { e.wake = e.see(now, snap) }

func (e *Elector) see(now time.Duration, snap cluster.Snapshot) time.Duration {
	e.noSuccessor = false
	if snap.At == 0 || !snap.Elector || snap.SelfLost {
		e.watchdog.Follow(snap, now)
		e.succeeded, e.active, e.failing = e.succeeded || snap.At != 0, false, 0
		return 0
	}
	if !e.active {
		e.active = true
		e.opt.Log.Info("now elector", "members", len(snap.Members), "as_deputy", snap.Acting)
	}
	e.history.observe(snap, now)
	var wake time.Duration
	if !e.busy && snap.At >= e.settled { // else the result or a newer snapshot is on its way
		wake = e.decide(now, snap)
		if !e.busy { // else the others wait until this one has read what it writes
			e.opt.Slots.End(e.opt.Number)
		}
	}
	if e.opt.Number == 0 { // no election waits for it
		wake = cluster.Earliest(e.roster.observe(snap, now), wake)
	}
	return wake
}

// decide makes a decision from a new snapshot and starts at most one write.
func (e *Elector) decide(now time.Duration, snap cluster.Snapshot) time.Duration {
	if at := e.retry.Wait(&snap, e.opt.Slots.others(e.opt.Number), now); at > 0 {
		return at
	}
	if !e.opt.Slots.Begin(e.opt.Number) {
		return 0
	}
	if !snap.Policy.Exists && e.opt.Number > 0 {
		return 0 // slot 0 publishes it
	}
	if !snap.Policy.Exists {
		rec := e.opt.Policy(1)
		e.write("publishing the policy", snap, false, func() {}, cluster.Op{Kind: cluster.OpCreate,
			Path: e.opt.Paths.Policy(), Data: cluster.Encode(&rec)})
		return 0
	}
	found := e.watchdog.Observe(snap, now)
	if e.repairSlots(snap) || !e.opt.Slots.complete() {
		return found.Wake // perhaps the other members of this instance are still reading
	}
	in := elector.Input{
		Snapshot: snap, Policy: e.policy(snap), Now: now, Wall: time.Now(),
		Overdue: found.Overdue, Revoke: found.Revoke, Exclusions: found.Exclusions, Silent: found.WithSilent(e.silent),
		LeaseOver: len(e.silent) > 0,
		Others:    e.opt.Slots.others(e.opt.Number), Leaderless: e.history.core.Leaderless(now, e.seen),
		Lease: e.seen, RollCallSeen: e.opt.RollCallSeen(),
	}
	in.Placement = e.opt.Placement.Others(policy.RelationsOf(in.Policy.Rules).Peers())
	ready, wake := e.consult(&in)
	if !ready {
		return cluster.Earliest(wake, found.Wake)
	}
	d := e.decideWithLimits(in)
	if d.Elect != nil && d.Elect.Cause == cluster.CausePreempt && e.opt.Slots.outdated(snap.At) {
		// no recovery waits for that
		e.EndMove()
		e.opt.RereadDecision()
		return cluster.Earliest(wake, found.Wake)
	}
	e.report(d)
	if d.CallRoll {
		e.CallRoll(&snap, in.Policy.Rules.RollCall.Wait(), snap.LeaseAt(e.seen), now)
	}
	e.noSuccessor = d.NoSuccessor
	e.carryOut(d, now, snap, in.Others)
	var heirWake time.Duration
	if !e.busy && !snap.Acting { // else it and the elector would each put themselves first
		heirWake = e.heir.observe(in, now)
	}
	return cluster.Earliest(wake, d.Wake, found.Wake, heirWake)
}

// consult adds the ranking program's answer to the input, and runs the program if necessary. It reports whether the
// input is complete.
func (e *Elector) consult(in *elector.Input) (ready bool, wake time.Duration) {
	ready, wake, run := e.program.Update(e.core, in)
	if run == nil {
		return ready, wake
	}
	program := e.opt.Program()
	var a policy.Answer
	e.opt.Run(0, func(ctx context.Context) { a = e.opt.Rank(ctx, program, run.Input) }, func() {
		e.program.SetResult(run, a, boottime.Now())
		if a.Err != "" {
			e.opt.Log.Warn("the ranking program failed", "reason", a.Err)
		}
	})
	return ready, wake
}

// The names of the transactions that are decisions.
const (
	elect   = "ELECT"
	take    = "TAKE"
	silence = "SILENCE"
	revoke  = "REVOKE"
)

// revocation is the cause of a REVOKE.
type revocation struct {
	term   int64
	reason string
}

// carryOut writes the decision.
func (e *Elector) carryOut(d elector.Decision, now time.Duration, snap cluster.Snapshot, others []cluster.SlotState) {
	var ops []cluster.Op
	var what string
	repair, done := false, func() {}
	switch {
	case d.Elect != nil:
		e.opt.Log.Info("electing", "leader", d.Elect.Node, "term", d.Elect.Term, "cause", d.Elect.Cause, "reason",
			d.Elect.Reason)
		if f := d.Fence; f != nil && !snap.Fence.Readable() {
			e.opt.Log.Warn(e.newFenceText(f, snap), "term", f.Term)
		}
		for _, member := range snap.Members {
			if _, err := cluster.LastTerm(member.Node); err != nil {
				e.opt.Log.Warn("the last term that a member remembers is ignored: no group reaches it",
					"znode", e.opt.Paths.Node(member.ID), "err", err)
			}
		}
		e.opt.Slots.decide(snap.At)
		e.history.core.Decide(d.Elect.Term, now)
		e.opt.Placement.Elected(d.Elect.Node) // at once: another group may decide before this is written
		e.opt.Electing(*d.Elect)
		what, ops, repair = elect, e.opt.Paths.ElectTx(snap, *d.Elect, d.Fence, others...),
			d.Elect.Cause == cluster.CauseRepair
		if d.Take {
			what, ops = take, e.opt.Paths.TakeTx(snap, e.seen, *d.Elect, others...)
		}
		done = func() { e.opt.Elected(*d.Elect) }
	case d.Revoke != nil && d.Take:
		e.opt.Log.Warn("the leader is silent: its work is over, and a person must decide who leads next", "leader",
			d.Revoke.Node, "term", d.Revoke.Term)
		what, ops = silence, e.opt.Paths.SilenceTx(snap, e.seen, *d.Revoke)
	case d.Revoke != nil:
		if cause := (revocation{d.Revoke.Term, d.Revoke.Reason}); cause != e.revoking {
			e.revoking = cause // it is repeated while it is refused
			e.opt.Log.Warn("revoking", "holder", d.Revoke.Node, "term", d.Revoke.Term, "reason", d.Revoke.Reason)
		}
		what, ops, done = revoke, e.opt.Paths.RevokeTx(snap, *d.Revoke), func() { e.revoking = revocation{} }
	case d.Control != nil:
		what, ops = "CONTROL", e.opt.Paths.ControlTx(snap.Self.Name, snap.Control, *d.Control)
	default:
		e.failing = 0
		e.opt.Unwritten("")
		return
	}
	e.write(what, snap, repair, done, ops...)
}

// Place notes who is elected, unless a decision is being written.
func (e *Elector) Place(snap cluster.Snapshot) {
	if e.busy || snap.At < e.settled || snap.At == 0 || snap.Elected.Err != nil {
		return
	}
	e.opt.Placement.Elected(snap.Elected.Record.Node)
}

// newFenceText explains why the next leader waits if no fence could be read.
func (e *Elector) newFenceText(f *cluster.Fence, snap cluster.Snapshot) string {
	wait := max(time.Duration(f.LeaseWait), e.opt.Budget.LeaseWait).Round(10 * time.Millisecond)
	if snap.Fence.Err != nil && errors.Is(snap.Fence.Err, cluster.ErrNeverWritten) {
		return fmt.Sprintf("there is no record of an earlier leader: the first leader waits %s for a lease that may "+
			"still be running; "+
			"'zkelectd init' on a new group avoids this", wait)
	}
	return fmt.Sprintf("the fence was rewritten: the next leader waits %s for a lease that may still be running: %s",
		wait, f.Reason)
}

// report logs, once, why no leader can be elected or why a better member does not replace the leader. It keeps both for
// the view.
func (e *Elector) report(d elector.Decision) {
	switch {
	case d.Note == "" || d.Note == e.view.Note:
	case d.Starting:
		e.opt.Log.Info("not electing yet", "reason", d.Note)
	default:
		e.opt.Log.Warn("no leader can be elected", "reason", d.Note)
	}
	if d.Awaiting != "" && d.Awaiting != e.awaiting {
		e.opt.Log.Info("waiting for the election of another group", "group", d.Awaiting)
	}
	blocked := d.Blocked.String()
	if blocked != "" && blocked != e.view.Blocked {
		e.opt.Log.Info("preemption blocked", "reason", blocked)
	}
	e.awaiting, e.view = d.Awaiting, View{Note: d.Note, Blocked: blocked, Manual: d.Blocked.Manual,
		AwaitsApproval: d.AwaitsApproval, Proposal: d.Proposal, Sites: eligibility(d.Ranking)}
	if !d.Starting {
		e.view.NoLeader = d.Note
	}
	if d.Failing != nil {
		e.view.Failing = d.Failing.Describe(d.Note == "")
	}
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

// write runs a transaction, in several if it has many operations, that was made from snap. It does not apply its effect
// to snap: the watch delivers it. A refusal usually means that the snapshot is outdated. repair marks an election that
// only repairs the records. done is called once the transaction has taken effect.
func (e *Elector) write(what string, snap cluster.Snapshot, repair bool, done func(), ops ...cluster.Op) {
	e.busy = true
	others := e.opt.Slots.others(e.opt.Number)
	began := boottime.Now()
	var err error
	e.opt.Run(e.opt.Budget.Session, func(ctx context.Context) {
		for _, tx := range e.opt.Paths.Split(ops) {
			if _, err = e.opt.Conn.Do(zk.WithPriority(ctx, zk.PriorityRecovery), tx...); err != nil {
				break
			}
		}
	}, func() {
		e.busy = false
		e.settled = boottime.Now()
		e.watchdog.Wrote(e.settled - began)
		e.noteFailing(what, &snap, began, err)
		if err == nil {
			done()
		}
		e.opt.Unwritten(describeHeldBack(ops, err))
		e.opt.RereadDecision()
		pause := e.opt.Budget.Renew / 4
		switch {
		case err != nil:
			if what == take || what == silence {
				e.opt.TakeRefused()
			}
			e.logFailed(what, err, e.retry.Failed(what, &snap, others, err, cluster.IsRefusal(err), e.settled, pause))
		case repair:
			e.retry.Repaired(e.settled, pause)
		default:
			e.retry.Succeeded(what)
		}
	})
}

// noteFailing ends the membership of an elector that has not been able to write a decision which is due for two session
// timeouts: it registers again, at the back of the queue, so that another member elects. While ZooKeeper is away, none
// could.
func (e *Elector) noteFailing(what string, snap *cluster.Snapshot, began time.Duration, err error) {
	due := (what == elect || what == take || what == silence || what == revoke) && !snap.Ready() && len(snap.Members) > 1
	if err == nil || !due || errors.Is(err, cluster.ErrNotSent) {
		e.failing = 0
		return
	}
	e.failing = cmp.Or(e.failing, began)
	if e.settled-e.failing >= 2*e.opt.Budget.Session {
		e.failing = 0
		e.opt.Useless(fmt.Sprintf("as the elector it could not write its decisions for %s: %v",
			(2 * e.opt.Budget.Session).Round(time.Second), err))
	}
}

// describeHeldBack returns what people should know of a write that costs the connection each time it is sent; empty for
// others.
func describeHeldBack(ops []cluster.Op, err error) string {
	var held *zk.HeldBackError
	if !errors.As(err, &held) {
		return ""
	}
	return fmt.Sprintf("as the elector it cannot write %s: ZooKeeper closes the connection each time; "+
		"if the servers log 'Len error', raise jute.maxbuffer on all of them", ops[len(ops)-1].Path)
}

// logFailed logs a failed write: at debug level if another write came first, once if it is repeated, and once more if
// the refusal is permanent.
func (e *Elector) logFailed(what string, err error, visible bool) {
	switch {
	case visible && cluster.IsRefusal(err):
		e.opt.Log.Error("ZooKeeper refuses the elector's decision: no new leader can be elected", "what", what, "err", err)
	case visible:
		e.opt.Log.Warn("cannot write the elector's decision; retrying", "what", what, "err", err)
	default:
		e.opt.Log.Debug("write superseded", "what", what, "err", err)
	}
}

// policy returns the policy in force, or that of this daemon's configuration if the record cannot be used.
func (e *Elector) policy(snap cluster.Snapshot) *policy.Policy {
	if e.compiled != nil && e.source == snap.Policy.Stat.Modified {
		return e.compiled
	}
	e.source = snap.Policy.Stat.Modified
	rec, err := snap.Policy.Record, snap.Policy.Err
	if err == nil {
		if e.compiled, err = policy.New(rec); err == nil {
			e.opt.Log.Info("policy in force", "type", rec.Type, "revision", rec.Revision, "by", rec.By)
			e.opt.Placement.SetPolicy(rec.Rules)
			return e.compiled
		}
	}
	e.opt.Log.Error("the policy in ZooKeeper cannot be used: ranking by this daemon's configuration", "znode",
		e.opt.Paths.Policy(), "err", err)
	e.compiled, err = policy.New(e.opt.Policy(0))
	if err != nil {
		panic(fmt.Sprintf("electing: a checked configuration has a policy that does not compile: %v", err))
	}
	return e.compiled
}

// repairSlots writes the record of slots again if it was deleted or damaged, and reports whether it is not readable.
// Slot 0 does it.
func (e *Elector) repairSlots(snap cluster.Snapshot) bool {
	if e.opt.Slots == nil || e.opt.Number > 0 || snap.Slots.Readable() || snap.Slots.Newer() != nil {
		return false
	}
	ops, err := e.opt.Paths.RepairSlotsTx(snap.Self.Name, snap.Slots, e.opt.Registered, time.Now())
	if err == nil { // else this instance is about to end
		e.opt.Log.Warn("the record of slots was deleted or damaged: writing it again", "znode", e.opt.Paths.Slots(),
			"err", snap.Slots.Err)
		e.write("SLOTS", snap, false, func() {}, ops...)
	}
	return true
}
