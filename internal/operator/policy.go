package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/cluster/zkstore"
	"zkelectd/internal/config"
	"zkelectd/internal/elector"
	"zkelectd/internal/policy"
	"zkelectd/internal/whatif"
)

// NoEligibleError is the error for a policy under which no member is eligible.
type NoEligibleError struct{ Reasons string }

func (e *NoEligibleError) Error() string {
	return "under this policy no member may lead: " + e.Reasons + "; zkelectd whatif --policy shows it, --force publishes it all the same"
}

// Proposal is a policy that somebody wants to be in force for the whole group.
type Proposal struct {
	Config config.Config
	By     string
	// Explicit is the revision that the configuration names, 0 for the next one.
	Explicit int
	// Force publishes a policy under which nobody may lead.
	Force bool
}

// PublishPolicy makes a policy the one in force, unless it is already. An explicit revision must rise.
func PublishPolicy(ctx context.Context, s *zkstore.Session, paths cluster.Paths, want Proposal) (cluster.Policy, error) {
	path := paths.Policy()
	for {
		snap, err := zkstore.ReadAll(ctx, s, paths, false)
		if err != nil {
			return cluster.Policy{}, err
		}
		next, needed, err := want.next(snap)
		if err != nil || !needed {
			return next, err
		}
		op := cluster.Op{Kind: cluster.OpCreate, Path: path, Data: cluster.Encode(&next)}
		if snap.Policy.Exists {
			op.Kind, op.Version = cluster.OpSet, snap.Policy.Stat.Version
		}
		_, err = s.Do(ctx, op)
		switch {
		case err == nil:
			return next, nil
		case errors.Is(err, cluster.ErrBadVersion), errors.Is(err, cluster.ErrNodeExists):
			// Somebody else was faster: judge it against theirs.
		default:
			return next, fmt.Errorf("cannot write znode %s: %w", path, err)
		}
	}
}

// Next is what would be put in force.
func (w Proposal) Next(snap cluster.Snapshot) (cluster.Policy, error) {
	next, _, err := w.next(snap)
	return next, err
}

// next is the record to write; needed is false if what is in force says the same.
func (w Proposal) next(snap cluster.Snapshot) (next cluster.Policy, needed bool, err error) {
	old := snap.Policy
	if old.Newer() != nil {
		return next, false, fmt.Errorf("the policy is not replaced: %w", old.Err)
	} else if old.Exists && old.Err != nil {
		return next, false, fmt.Errorf("the policy is not replaced: %w; 'zkelectd repair policy --file FILE' puts that of a configuration file in its place", old.Err)
	}
	rec := old.Record
	next = PolicyRecord(w.Config, 0)
	same := old.Exists && rec.Rules.Digest() == next.Rules.Digest()
	switch {
	case same && int64(w.Explicit) <= rec.Revision:
		return rec, false, nil
	case w.Explicit != 0 && int64(w.Explicit) <= rec.Revision:
		return next, false, fmt.Errorf("policy.revision is %d, but revision %d, published by %s at %s, is in force: a new policy needs a higher one",
			w.Explicit, rec.Revision, rec.By, rec.Time.Format(time.RFC3339))
	}
	next.Header, next.By, next.Revision = rec.Header, w.By, rec.Revision+1
	if w.Explicit != 0 {
		next.Revision = int64(w.Explicit)
	}
	if w.Force {
		return next, true, nil
	}
	return next, true, CheckEligible(w.Config, snap, next)
}

// CheckEligible refuses a policy under which no member may lead. Where nobody may lead as it is, any policy is welcome.
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
	present := cluster.Policy{Rules: cluster.Rules{Type: policy.Types()[0]}} // with no constraints
	if snap.Policy.Readable() {
		present = snap.Policy.Record
	}
	if q.Policy, err = policy.New(present); err == nil {
		if _, ok := whatif.Run(q).Last.Ranking.Best(); !ok {
			return nil
		}
	}
	return &NoEligibleError{elector.Refusals(out.Last.Ranking)}
}

// PolicyRecord returns the policy of a configuration as a record, with at least the given revision.
func PolicyRecord(c config.Config, revision int64) cluster.Policy {
	return cluster.Policy{Revision: max(revision, int64(c.Policy.Revision)), Rules: c.Rules(), By: c.Node.ID, Time: time.Now()}
}
