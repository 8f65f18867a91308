package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/operator/request"
	"zkelectd/internal/policy"
	"zkelectd/internal/store"
)

// NoEligibleError is the error for a policy under which no member is eligible.
type NoEligibleError struct{ Reasons string }

func (e *NoEligibleError) Error() string {
	return "under this policy no member is eligible: " + e.Reasons + "; whatif with --policy shows the forecast, --force publishes the policy anyway"
}

// Proposal is a policy to be published for the whole group.
type Proposal struct {
	// Group is the name of the group.
	Group string
	// Config has the policy, By is who publishes it.
	Config config.Config
	By     string
	// Force publishes the policy even if no member is eligible under it.
	Force bool
}

// PublishPolicy puts a policy in force, unless it is in force already, and returns the record.
func PublishPolicy(ctx context.Context, conn cluster.ReadWriter, paths cluster.Paths, p Proposal) (cluster.Policy, error) {
	znode := paths.Policy()
	for {
		snap, err := store.ReadAll(ctx, conn, paths, false)
		if err != nil {
			return cluster.Policy{}, err
		}
		next, needed, err := p.next(snap)
		if err != nil {
			return next, &request.RefusedError{Err: err}
		}
		if !needed {
			return next, nil
		}
		op := cluster.Op{Kind: cluster.OpCreate, Path: znode, Data: cluster.Encode(&next)}
		if snap.Policy.Exists {
			op.Kind, op.Version = cluster.OpSet, snap.Policy.Stat.Version
		}
		_, err = conn.Do(ctx, op)
		switch {
		case err == nil:
			return next, nil
		case errors.Is(err, cluster.ErrBadVersion), errors.Is(err, cluster.ErrNodeExists):
			// Another policy was published meanwhile: check this one against it.
		default:
			return next, fmt.Errorf("cannot write znode %s: %w", znode, err)
		}
	}
}

// Next returns the record that would be in force.
func (p Proposal) Next(snap cluster.Snapshot) (cluster.Policy, error) {
	next, _, err := p.next(snap)
	return next, err
}

// next returns the record to write; needed is false if an equal one is in force.
func (p Proposal) next(snap cluster.Snapshot) (next cluster.Policy, needed bool, err error) {
	old := snap.Policy
	if old.Newer() != nil {
		return next, false, fmt.Errorf("the policy is not replaced: %w", old.Err)
	} else if old.Exists && old.Err != nil {
		return next, false, fmt.Errorf("the policy is not replaced: %w; %s replaces it by the policy in that file", old.Err,
			cluster.InGroup("'zkelectd repair policy --config /etc/zkelectd.yaml'", p.Group))
	}
	rec := old.Record
	next = PolicyRecord(p.Config, 0)
	if old.Exists && rec.Rules.Digest() == next.Rules.Digest() {
		return rec, false, nil
	}
	next.Header, next.By, next.Revision = rec.Header, p.By, rec.Revision+1
	if p.Force {
		return next, true, nil
	}
	return next, true, CheckEligible(p.Config, snap, next)
}

// CheckEligible returns a [NoEligibleError] for a policy under which no member is eligible, unless that is so under the policy
// in force as well.
func CheckEligible(c config.Config, snap cluster.Snapshot, rec cluster.Policy) error {
	compiled, err := policy.New(rec)
	if err != nil {
		return err
	}
	q := whatif.Question{Snapshot: snap, Policy: compiled, Options: ElectorOptions(c), Wall: time.Now()}
	out := whatif.Run(q)
	if _, ok := out.Last.Ranking.Best(); ok || len(snap.Members) == 0 {
		return nil
	}
	inForce := cluster.Policy{Rules: cluster.Rules{Type: policy.Types()[0]}} // without constraints
	if snap.Policy.Readable() {
		inForce = snap.Policy.Record
	}
	if q.Policy, err = policy.New(inForce); err == nil {
		if _, ok := whatif.Run(q).Last.Ranking.Best(); !ok {
			return nil
		}
	}
	return &NoEligibleError{out.Refusals()}
}

// PolicyRecord returns the record of a configuration's policy, with a revision.
func PolicyRecord(c config.Config, revision int64) cluster.Policy {
	return cluster.Policy{Revision: revision, Rules: c.Rules(), By: c.Node.ID, Time: time.Now()}
}
