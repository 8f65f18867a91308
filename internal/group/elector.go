package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"zkelectd/internal/boottime"
	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
	"zkelectd/internal/policy"
	"zkelectd/internal/status"
	"zkelectd/internal/watchdog"
)

// electorRole elects while the member has the lowest sequence number: it makes decisions from snapshots, and writes them.
type electorRole struct {
	conn       cluster.Writer
	paths      cluster.Paths
	budget     cluster.Budget
	log        *slog.Logger
	background *background
	reread     func()
	settings   *Settings // in force
	rank       func(ctx context.Context, program []string, in policy.Input, timeout time.Duration) policy.Answer

	core     *elector.Elector
	watchdog *watchdog.Watchdog
	program  elector.Program
	history  historyWriter
	retry    elector.Retry

	active   bool           // this member has been the elector in this session
	compiled *policy.Policy // the policy in force
	source   int64          // Modified of the record that compiled was made from
	busy     bool           // a write is under way
	settled  time.Duration  // when the last write ended: only a newer snapshot counts
	note     string         // why no leader can be elected
	blocked  string         // why a better member does not replace the leader
	sites    map[string]status.SiteCounts
}

func newElectorRole(g *Group, m *Member) *electorRole {
	opt := g.opt.Elector
	opt.LastKnown = &g.memory
	return &electorRole{
		conn: m.session, paths: g.opt.Paths, budget: m.budget, log: g.log, background: m.background, reread: m.reader.Reread,
		settings: &g.settings, rank: g.opt.Rank, core: elector.New(opt),
		watchdog: watchdog.New(watchdog.Options{
			Takeover: g.opt.TakeoverTimeout, StrikeResetAfter: g.opt.StrikeResetAfter,
			Trust: cluster.Trust{LeaseWait: m.budget.LeaseWait, SessionEnd: g.opt.TrustSessionEnd},
		}),
		history: historyWriter{
			conn: m.session, paths: g.opt.Paths, self: m.self.Name, log: g.log, timeout: m.budget.Session, background: m.background,
			memory: &g.memory, count: g.opt.Counters.term,
		},
	}
}

// evaluate makes a decision from the snapshot and starts at most one write. It returns when to call it again, 0 for never.
func (e *electorRole) evaluate(now time.Duration, snap cluster.Snapshot) time.Duration {
	if snap.At == 0 || !snap.Elector || snap.SelfLost {
		return 0
	}
	if !e.active {
		e.active = true
		e.log.Info("now elector", "members", len(snap.Members))
	}
	e.history.observe(snap, now)
	if e.busy || snap.At < e.settled {
		return 0 // the result or a newer snapshot is on its way
	}
	if at := e.retry.Wait(&snap, now); at > 0 {
		return at
	}
	if !snap.Policy.Exists {
		rec := e.settings.policyRecord(1)
		e.write("publishing the policy", snap, false, cluster.Op{Kind: cluster.OpCreate, Path: e.paths.Policy(), Data: cluster.Encode(&rec)})
		return 0
	}
	found := e.watchdog.Observe(snap, now)
	in := elector.Input{
		Snapshot: snap, Policy: e.policy(snap), Now: now, Wall: time.Now(),
		Overdue: found.Overdue, Revoke: found.Revoke, Exclusions: found.Exclusions, Age: found.Age,
	}
	ready, wake := e.consult(&in)
	if !ready {
		return cluster.Earliest(wake, found.Wake)
	}
	d := e.core.Decide(in)
	e.report(d)
	e.carryOut(d, snap)
	return cluster.Earliest(wake, d.Wake, found.Wake)
}

// consult adds the ranking program's answer to the input, and runs the program if necessary. It reports whether the input is
// complete.
func (e *electorRole) consult(in *elector.Input) (ready bool, wake time.Duration) {
	ready, wake, ask := e.program.Consult(e.core, in)
	if ask == nil {
		return ready, wake
	}
	program := e.settings.Program
	var a policy.Answer
	e.background.run(0, func(ctx context.Context) { a = e.rank(ctx, program, ask.Input, ask.Timeout) }, func() {
		e.program.Answered(ask, a, boottime.Now())
		if a.Err != "" {
			e.log.Warn("the ranking program failed", "reason", a.Err)
		}
	})
	return ready, wake
}

// carryOut writes the decision.
func (e *electorRole) carryOut(d elector.Decision, snap cluster.Snapshot) {
	var ops []cluster.Op
	var what string
	repair := false
	switch {
	case d.Elect != nil:
		e.log.Info("electing", "leader", d.Elect.Node, "term", d.Elect.Term, "cause", d.Elect.Cause, "reason", d.Elect.Reason)
		if f := d.Fence; f != nil && !snap.Fence.Readable() {
			e.log.Warn(e.newFenceText(f, snap), "term", f.Term)
		}
		what, ops, repair = "ELECT", e.paths.ElectTx(snap, *d.Elect, d.Fence), d.Elect.Cause == cluster.CauseRepair
	case d.Revoke != nil:
		e.log.Warn("revoking", "holder", d.Revoke.Node, "term", d.Revoke.Term, "reason", d.Revoke.Reason)
		what, ops = "REVOKE", e.paths.RevokeTx(snap, *d.Revoke)
	case d.Control != nil:
		what, ops = "CONTROL", e.paths.ControlTx(snap.Self.Name, snap.Control, *d.Control)
	default:
		return
	}
	e.write(what, snap, repair, ops...)
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
	if d.Note != "" && d.Note != e.note {
		e.log.Warn("no leader can be elected", "reason", d.Note)
	}
	if d.Blocked != "" && d.Blocked != e.blocked {
		e.log.Info("preemption blocked", "reason", d.Blocked)
	}
	e.note, e.blocked, e.sites = d.Note, d.Blocked, eligibility(d.Ranking)
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

// write runs one transaction that was made from snap. It does not apply its effect to snap: the watch delivers it. A refusal
// usually means that the snapshot is outdated. repair marks an election that only repairs the records.
func (e *electorRole) write(what string, snap cluster.Snapshot, repair bool, ops ...cluster.Op) {
	e.busy = true
	var err error
	e.background.run(e.budget.Session, func(ctx context.Context) { _, err = e.conn.Do(ctx, ops...) }, func() {
		e.busy = false
		e.settled = boottime.Now()
		e.reread()
		pause := e.budget.Renew / 4
		switch {
		case err != nil:
			e.logFailed(what, err, e.retry.Failed(what, &snap, err, refused(err), e.settled, pause))
		case repair:
			e.retry.Repaired(e.settled, pause)
		default:
			e.retry.Succeeded(what)
		}
	})
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
