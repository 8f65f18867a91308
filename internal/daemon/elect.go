package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"zkelectd/internal/boottime"
	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
	"zkelectd/internal/operator"
	"zkelectd/internal/policy"
	"zkelectd/internal/status"
	"zkelectd/internal/watchdog"
)

// electorRole is what a daemon does while it has the lowest sequence: it turns snapshots into ELECT and REVOKE.
type electorRole struct {
	l        *loop
	core     *elector.Elector
	watchdog *watchdog.Watchdog
	compiled *policy.Policy
	source   int64 // the change of the policy znode that compiled was made from
	busy     bool  // a write is under way
	settled  time.Duration
	retry    elector.Retry
	note     string // why nobody can be elected
	holding  string // why a better member is not
	sites    map[string]status.SiteCounts
	acting   bool
	program  elector.Program
	history  historyWriter
}

func newElectorRole(l *loop) *electorRole {
	c, opt := l.d.config().Election, operator.ElectorOptions(l.d.config())
	opt.Memory = &l.d.memory
	return &electorRole{
		l:    l,
		core: elector.New(opt),
		watchdog: watchdog.New(watchdog.Options{
			Takeover: c.TakeoverTimeout, StrikeResetAfter: c.StrikeResetAfter, Trust: cluster.Trust{LeaseWait: l.budget.LeaseWait, SessionEnd: c.TrustSessionEnd},
		}),
		history: historyWriter{l: l},
	}
}

// look judges the snapshot and starts at most one write. It returns when to look again if nothing happens; 0 if never.
func (e *electorRole) look(now time.Duration, snap cluster.Snapshot) time.Duration {
	if snap.At == 0 || !snap.Elector || snap.SelfLost || e.l.closing != "" {
		return 0
	}
	if !e.acting {
		e.acting = true
		e.l.d.log.Info("now elector", "members", len(snap.Members))
	}
	e.history.observe(snap, now)
	if e.busy || snap.At < e.settled {
		return 0 // the outcome or a newer snapshot is on its way
	}
	if at := e.retry.Wait(&snap, now); at > 0 {
		return at
	}
	if !snap.Policy.Exists {
		rec := operator.PolicyRecord(e.l.d.config(), 1)
		e.write("publishing the policy", snap, false, cluster.Op{Kind: cluster.OpCreate, Path: e.l.d.paths.Policy(), Data: cluster.Encode(&rec)})
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

// carryOut writes what was decided.
func (e *electorRole) carryOut(d elector.Decision, snap cluster.Snapshot) {
	var ops []cluster.Op
	var what string
	repair := false
	log, paths := e.l.d.log, e.l.d.paths
	switch {
	case d.Elect != nil:
		log.Info("electing", "leader", d.Elect.Node, "term", d.Elect.Term, "cause", d.Elect.Cause, "reason", d.Elect.Reason)
		if f := d.Fence; f != nil && !snap.Fence.Readable() {
			log.Warn(e.unproven(f), "term", f.Term)
		}
		what, ops, repair = "ELECT", paths.ElectTx(snap, *d.Elect, d.Fence), d.Elect.Cause == cluster.CauseRepair
	case d.Revoke != nil:
		log.Warn("revoking", "holder", d.Revoke.Node, "term", d.Revoke.Term, "reason", d.Revoke.Reason)
		what, ops = "REVOKE", paths.RevokeTx(snap, *d.Revoke)
	case d.Control != nil:
		what, ops = "CONTROL", paths.ControlTx(snap.Self.Name, snap.Control, *d.Control)
	default:
		return
	}
	e.write(what, snap, repair, ops...)
}

// unproven says why the next leader waits, where no fence could be read.
func (e *electorRole) unproven(f *cluster.Fence) string {
	wait := max(time.Duration(f.LeaseWait), e.l.budget.LeaseWait).Round(10 * time.Millisecond)
	if e.l.snap.Fence.Err != nil && errors.Is(e.l.snap.Fence.Err, cluster.ErrNeverWritten) {
		return fmt.Sprintf("nobody is known to have led here: the first leader waits %s for a lease that might still run; "+
			"'zkelectd init' on a new group avoids this", wait)
	}
	return fmt.Sprintf("the fence is written anew, and the next leader waits %s for a lease that might still run: %s", wait, f.Reason)
}

// report logs why nobody can be elected, or a better member is not, once.
func (e *electorRole) report(d elector.Decision) {
	if d.Note != "" && d.Note != e.note {
		e.l.d.log.Warn("nobody can be elected", "reason", d.Note)
	}
	if d.Blocked != "" && d.Blocked != e.holding {
		e.l.d.log.Info("the leader stays", "reason", d.Blocked)
	}
	e.note, e.holding, e.sites = d.Note, d.Blocked, standing(d.Ranking)
}

// standing counts who may lead, by site.
func standing(r policy.Ranking) map[string]status.SiteCounts {
	sites := make(map[string]status.SiteCounts)
	for _, entry := range r.Entries {
		site := entry.Member.Node.Record.Site
		s := sites[site]
		if entry.Allowed() {
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

// write runs one transaction, made from snap. Its result is not fed back: the watch brings it round. A refusal mostly means
// that the snapshot was old. repair marks an election that only repairs the records.
func (e *electorRole) write(what string, snap cluster.Snapshot, repair bool, ops ...cluster.Op) {
	e.busy = true
	e.l.owned.Go(func() {
		ctx, cancel := context.WithTimeout(e.l.life, e.l.budget.Session)
		defer cancel()
		_, err := e.l.s.Do(ctx, ops...)
		e.l.later(func() {
			e.busy = false
			e.settled = boottime.Now()
			e.l.reader.Reread()
			pause := e.l.budget.Renew / 4
			switch {
			case err != nil:
				e.failed(what, err, e.retry.Failed(what, &snap, err, refused(err), e.settled, pause))
			case repair:
				e.retry.Repaired(e.settled, pause)
			default:
				e.retry.Succeeded(what)
			}
		})
	})
}

// failed logs why something was not written: that another was faster only for developers, what happens again once, and a
// refusal that will not pass by itself once more.
func (e *electorRole) failed(what string, err error, visible bool) {
	log := e.l.d.log
	switch {
	case visible && refused(err):
		log.Error("the elector's decision is refused by ZooKeeper, and nobody new can lead", "what", what, "err", err)
	case visible:
		log.Warn("the elector's decision is not written, it is tried again with growing pauses", "what", what, "err", err)
	default:
		log.Debug("not written", "what", what, "err", err)
	}
}

// policy is the one in force; the own configuration's where the record can't be used.
func (e *electorRole) policy(snap cluster.Snapshot) *policy.Policy {
	if e.compiled != nil && e.source == snap.Policy.Stat.Modified {
		return e.compiled
	}
	e.source = snap.Policy.Stat.Modified
	rec, err := snap.Policy.Record, snap.Policy.Err
	if err == nil {
		if e.compiled, err = policy.New(rec); err == nil {
			e.l.d.log.Info("policy in force", "type", rec.Type, "revision", rec.Revision, "by", rec.By)
			return e.compiled
		}
	}
	e.l.d.log.Error("the policy in ZooKeeper cannot be used, ranking by the own configuration",
		"znode", e.l.d.paths.Policy(), "err", err)
	e.compiled, err = policy.New(operator.PolicyRecord(e.l.d.config(), 0))
	if err != nil {
		panic(fmt.Sprintf("daemon: a checked configuration has a policy that does not compile: %v", err))
	}
	return e.compiled
}
