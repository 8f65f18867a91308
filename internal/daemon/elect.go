package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"zkelectd/internal/boottime"
	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/elector"
	"zkelectd/internal/policy"
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
	version  int32 // of the policy znode that compiled was made from, -1 for the own configuration
	busy     bool  // a write is under way
	settled  time.Duration
	retry    time.Duration
	note     string
	acting   bool
}

func newElectorRole(l *loop) *electorRole {
	c := l.d.cfg.Election
	return &electorRole{
		l: l,
		core: elector.New(elector.Options{
			Failback: elector.FailbackMode(c.Failback.Mode), Delay: c.Failback.Delay,
			Exclusion: c.Exclusion, ExclusionMax: max(c.Exclusion, maxExclusion),
		}),
		watchdog: watchdog.New(watchdog.Options{
			Takeover: c.TakeoverTimeout, Forgive: c.ForgiveAfter, OwnWaitOut: l.budget.WaitOut,
		}),
		version: -2,
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
	d := e.core.Decide(elector.Input{
		Snapshot: snap, Policy: e.policy(snap), Now: now, Wall: time.Now(),
		Overdue: found.Overdue, Revoke: found.Revoke, Exclusions: found.Exclusions, Age: found.Age,
	})
	e.report(d.Note)
	switch {
	case d.Elect != nil:
		e.l.d.log.Info("electing", "leader", d.Elect.Node, "term", d.Elect.Term, "cause", d.Elect.Cause, "reason", d.Elect.Reason)
		e.write("ELECT", func(ctx context.Context) error {
			_, err := e.l.s.Do(ctx, e.l.d.paths.ElectTx(snap, *d.Elect)...)
			return err
		})
	case d.Revoke != nil:
		e.l.d.log.Warn("revoking", "holder", d.Revoke.Node, "term", d.Revoke.Term, "reason", d.Revoke.Reason)
		e.write("REVOKE", func(ctx context.Context) error {
			_, err := e.l.s.Do(ctx, e.l.d.paths.RevokeTx(snap, *d.Revoke)...)
			return err
		})
	}
	if d.Wake == 0 || (found.Wake != 0 && found.Wake < d.Wake) {
		return found.Wake
	}
	return d.Wake
}

// report logs why nobody can be elected, once.
func (e *electorRole) report(note string) {
	if note != "" && note != e.note {
		e.l.d.log.Warn("nobody can be elected", "reason", note)
	}
	e.note = note
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
				e.l.d.log.Debug("not written", "what", what, "err", err)
				e.retry = e.settled + e.l.budget.Renew/4
			}
		})
	})
}

// policy is the one in force; the own configuration's where the record can't be used.
func (e *electorRole) policy(snap cluster.Snapshot) *policy.Policy {
	if e.compiled != nil && e.version == snap.Policy.Stat.Version {
		return e.compiled
	}
	e.version = snap.Policy.Stat.Version
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

func policyRecord(c config.Config, revision int64) cluster.Policy {
	return cluster.Policy{Revision: revision, Type: c.Policy.Type, Sites: c.Policy.Sites, By: c.Node.ID, Time: time.Now()}
}

// policyDigest identifies the policy of a configuration.
func policyDigest(c config.Policy) string {
	data, err := json.Marshal(struct {
		Type  string
		Sites map[string]int
	}{c.Type, c.Sites})
	if err != nil {
		return ""
	}
	h := fnv.New32a()
	h.Write(data)
	return fmt.Sprintf("%08x", h.Sum32())
}

// publishPolicy makes the configuration's policy the one in force for the whole group.
func (l *loop) publishPolicy(c config.Config) error {
	path := l.d.paths.Policy()
	for range 5 {
		ctx, cancel := context.WithTimeout(l.life, l.budget.Session)
		defer cancel()
		data, stat, err := l.s.Get(ctx, path, false)
		if err != nil && !errors.Is(err, cluster.ErrNoNode) {
			return fmt.Errorf("cannot read znode %s: %w", path, err)
		}
		old := cluster.ReadSlot[cluster.Policy](path, data, stat, err == nil)
		if old.Exists && old.Err != nil {
			return fmt.Errorf("the policy is not replaced: %w", old.Err)
		}
		rec := policyRecord(c, old.Record.Revision+1)
		rec.Header = old.Record.Header
		op := cluster.Op{Kind: cluster.OpCreate, Path: path, Data: cluster.Encode(&rec)}
		if old.Exists {
			op.Kind, op.Version = cluster.OpSet, stat.Version
		}
		_, err = l.s.Do(ctx, op)
		switch {
		case err == nil:
			l.d.log.Info("policy published", "revision", rec.Revision)
			return nil
		case errors.Is(err, cluster.ErrBadVersion), errors.Is(err, cluster.ErrNodeExists):
			// Somebody else was faster: look again.
		default:
			return fmt.Errorf("cannot write znode %s: %w", path, err)
		}
	}
	return fmt.Errorf("znode %s keeps changing: reload again", path)
}
