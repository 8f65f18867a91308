package daemon

import (
	"context"
	"fmt"
	"slices"
	"time"

	"zkelectd/internal/boottime"
	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
	"zkelectd/internal/policy"
	"zkelectd/internal/status"
	"zkelectd/internal/watchdog"
)

// maxExclusion is what doubling makes of election.exclusion at most.
const maxExclusion = time.Hour

// electorRole is what a daemon does while it has the lowest sequence: it turns snapshots into ELECT and REVOKE.
type electorRole struct {
	l        *loop
	core     *elector.Elector
	watchdog *watchdog.Watchdog
	compiled *policy.Policy
	source   int64 // the change of the policy znode that compiled was made from
	busy     bool  // a write is under way
	settled  time.Duration
	retry    time.Duration
	note     string // why nobody can be elected
	holding  string // why a better member is not
	sites    map[string]status.Standing
	acting   bool
	denied   string // what was logged of a refusal by ZooKeeper
	program  elector.Program
	history  historyWriter
}

func newElectorRole(l *loop) *electorRole {
	c := l.d.cfg.Election
	return &electorRole{
		l:    l,
		core: elector.New(ElectorOptions(l.d.cfg)),
		watchdog: watchdog.New(watchdog.Options{
			Takeover: c.TakeoverTimeout, Forgive: c.ForgiveAfter, OwnWaitOut: l.budget.WaitOut,
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
	switch {
	case e.busy || snap.At < e.settled:
		return 0 // the outcome or a newer snapshot is on its way
	case now < e.retry:
		return e.retry
	}
	if !snap.Policy.Exists {
		e.write("publishing the policy", func(ctx context.Context) error {
			rec := policyRecord(e.l.d.cfg, 1)
			_, err := e.l.s.Do(ctx, cluster.Op{Kind: cluster.OpCreate, Path: e.l.d.paths.Policy(), Data: cluster.Encode(&rec)})
			return err
		})
		return 0
	}
	found := e.watchdog.Observe(snap, now)
	in := elector.Input{
		Snapshot: snap, Policy: e.policy(snap), Now: now, Wall: time.Now(),
		Overdue: found.Overdue, Revoke: found.Revoke, Exclusions: found.Exclusions, Age: found.Age,
	}
	ready, wake := e.consult(&in)
	if !ready {
		return cluster.Earlier(wake, found.Wake)
	}
	d := e.core.Decide(in)
	e.report(d)
	e.carryOut(d, snap)
	return cluster.Earlier(wake, cluster.Earlier(d.Wake, found.Wake))
}

// carryOut writes what was decided.
func (e *electorRole) carryOut(d elector.Decision, snap cluster.Snapshot) {
	var ops []cluster.Op
	var what string
	log, paths := e.l.d.log, e.l.d.paths
	switch {
	case d.Elect != nil:
		log.Info("electing", "leader", d.Elect.Node, "term", d.Elect.Term, "cause", d.Elect.Cause, "reason", d.Elect.Reason)
		what, ops = "ELECT", paths.ElectTx(snap, *d.Elect)
	case d.Revoke != nil:
		log.Warn("revoking", "holder", d.Revoke.Node, "term", d.Revoke.Term, "reason", d.Revoke.Reason)
		what, ops = "REVOKE", paths.RevokeTx(snap, *d.Revoke)
	case d.Control != nil:
		what, ops = "CONTROL", paths.ControlTx(snap.Self.Name, snap.Control, *d.Control)
	default:
		return
	}
	e.write(what, func(ctx context.Context) error {
		_, err := e.l.s.Do(ctx, ops...)
		return err
	})
}

// report logs why nobody can be elected, or a better member is not, once.
func (e *electorRole) report(d elector.Decision) {
	if d.Note != "" && d.Note != e.note {
		e.l.d.log.Warn("nobody can be elected", "reason", d.Note)
	}
	if d.Holding != "" && d.Holding != e.holding {
		e.l.d.log.Info("the leader stays", "reason", d.Holding)
	}
	e.note, e.holding, e.sites = d.Note, d.Holding, standing(d.Ranking)
}

// standing counts who may lead, by site.
func standing(r policy.Ranking) map[string]status.Standing {
	sites := make(map[string]status.Standing)
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

// write runs one transaction. Its result is not fed back: the watch brings it round. A refusal only means that the
// snapshot was old.
func (e *electorRole) write(what string, do func(context.Context) error) {
	e.busy = true
	e.l.owned.Go(func() {
		ctx, cancel := context.WithTimeout(e.l.life, e.l.budget.Session)
		defer cancel()
		err := do(ctx)
		e.l.later(func() {
			e.busy = false
			e.settled = boottime.Now()
			e.l.reader.Reread()
			if err != nil {
				e.complain(what, err)
				e.retry = e.settled + e.l.budget.Renew/4
			}
		})
	})
}

// complain logs why something was not written. What will not pass by itself is told to people, once.
func (e *electorRole) complain(what string, err error) {
	if !refused(err) || err.Error() == e.denied {
		e.l.d.log.Debug("not written", "what", what, "err", err)
		return
	}
	e.denied = err.Error()
	e.l.d.log.Error("the elector's decision is refused by ZooKeeper, and nobody new can lead", "what", what, "err", err)
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
	e.compiled, err = policy.New(policyRecord(e.l.d.cfg, 0))
	if err != nil {
		panic(fmt.Sprintf("daemon: a checked configuration has a policy that does not compile: %v", err))
	}
	return e.compiled
}
