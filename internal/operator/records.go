package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/operator/request"
	"zkelectd/internal/policy"
	"zkelectd/internal/store"
)

// ReadHistory returns the history; it is empty if none has been written yet.
func ReadHistory(ctx context.Context, r cluster.Reader, paths cluster.Paths, watch bool) (cluster.History, error) {
	h, err := readHistory(ctx, r, paths, watch)
	return h.Record, cmp.Or(err, h.Err)
}

// readHistory returns the history as it was written.
func readHistory(ctx context.Context, r cluster.Reader, paths cluster.Paths,
	watch bool) (h cluster.Stored[cluster.History], err error) {
	data, stat, err := r.Get(ctx, paths.History(), watch)
	if errors.Is(err, cluster.ErrNoNode) {
		return h, nil
	} else if err != nil {
		return h, fmt.Errorf("cannot read znode %s: %w", paths.History(), err)
	}
	h.Exists, h.Stat = true, stat
	h.Record, h.Err = cluster.DecodeHistory(paths.History(), data)
	return h, nil
}

// ReadFencings returns the record of what people have fenced.
func ReadFencings(ctx context.Context, r cluster.Reader, paths cluster.Paths,
) (cluster.Stored[cluster.Fencings], error) {
	path := paths.Fencings()
	data, stat, err := r.Get(ctx, path, false)
	if err != nil && !errors.Is(err, cluster.ErrNoNode) {
		return cluster.Stored[cluster.Fencings]{}, fmt.Errorf("cannot read znode %s: %w", path, err)
	}
	return cluster.ReadStored[cluster.Fencings](path, data, stat, err == nil), nil
}

// RecordFencing writes an act, or its outcome. It replaces a record that is damaged.
func RecordFencing(ctx context.Context, conn cluster.ReadWriter, paths cluster.Paths, act cluster.FencingAct) error {
	for {
		read, err := ReadFencings(ctx, conn, paths)
		if err == nil {
			err = read.Newer()
		}
		if err != nil {
			return err
		}
		next := read.Record
		next.Put(act)
		_, err = conn.Do(ctx, paths.FencingsTx(read, next)...)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, cluster.ErrBadVersion), errors.Is(err, cluster.ErrNodeExists):
			// Another act was recorded meanwhile.
		default:
			return fmt.Errorf("cannot write znode %s: %w", paths.Fencings(), err)
		}
	}
}

// Force declares that no work of the fence's term is left, in a group that is stuck as [cluster.Snapshot.CheckStuck]
// says. snap must show that. noted is set if the history has an entry of the term, which then says so as well.
func Force(ctx context.Context, conn cluster.ReadWriter, paths cluster.Paths, snap cluster.Snapshot,
	by cluster.Forced) (noted bool, err error) {
	if err := snap.CheckStuck(); err != nil {
		return false, err
	}
	for {
		past, err := readTerm(ctx, conn, paths, snap.Fence.Record.Term, by)
		if err != nil {
			return false, err
		}
		_, err = conn.Do(ctx, paths.ForceTx(snap, by, past)...)
		var failed *cluster.TxError
		switch {
		case err == nil:
			return past != nil, nil
		case errors.As(err, &failed) && failed.Op.Path == paths.History() && errors.Is(err, cluster.ErrBadVersion):
			// An elector has written it meanwhile.
		case errors.Is(err, cluster.ErrBadVersion):
			return false, fmt.Errorf("nothing was changed: the fence has changed since it was read; look at the group again")
		default:
			return false, fmt.Errorf("cannot write znode %s: %w", paths.Leader(), err)
		}
	}
}

// readTerm returns the history with the entry of a term as it is to be; nil if it can't be used, or has no such entry.
func readTerm(ctx context.Context, r cluster.Reader, paths cluster.Paths, term int64,
	by cluster.Forced) (*cluster.Stored[cluster.History], error) {
	h, err := readHistory(ctx, r, paths, false)
	if err != nil || !h.Readable() || !h.Record.Force(term, by) {
		return nil, err // the fence says it as well
	}
	return &h, nil
}

// NoEligibleError is the error for a policy under which no member is eligible.
type NoEligibleError struct{ Reasons string }

func (e *NoEligibleError) Error() string {
	return "under this policy no member is eligible: " + e.Reasons + "; whatif with --policy shows the forecast, " +
		"policy --apply --force publishes it anyway"
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
	// Before are the rules of the configuration before it was changed: only what has changed since is published. With
	// nil, the whole policy is.
	Before *cluster.Rules
	// Opened is the policy in force that the proposal was made from: it is not published if another one is in force by
	// then. Nil if it replaces any.
	Opened *cluster.Stored[cluster.Policy]
}

// PublishedPolicy is the outcome of [PublishPolicy].
type PublishedPolicy struct {
	// Policy is the one in force now.
	Policy cluster.Policy
	// Changed says in lines what has changed for the group. Unpublished are differences from the policy in force that
	// were not published, because the configuration has not changed there.
	Changed     []string
	Unpublished []config.Difference
}

// ConflictError is the error if the configuration and the policy in force have changed in the same places.
type ConflictError struct {
	InForce     cluster.Policy
	Differences []config.Difference
	group       string
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("the policy is not published, because revision %d, published by %s, has changed the same: %s. "+
		"Write the values in force into the file and reload, "+
		"and change them then; or put the whole policy of the file in force with %s", e.InForce.Revision, e.InForce.By,
		config.DescribeDifferences(e.Differences),
		cluster.InGroup("'zkelectd policy --apply --config /etc/zkelectd.yaml'", e.group))
}

// ReplacedError is the error if another policy was put in force after a proposal was made from one.
type ReplacedError struct {
	InForce cluster.Policy
	// Changed says in lines what is different in force.
	Changed []string
}

func (e *ReplacedError) Error() string {
	what := "without a difference in its settings"
	if len(e.Changed) > 0 {
		what = strings.Join(e.Changed, "; ")
	}
	return fmt.Sprintf("the policy is not published, because %s has published revision %d since it was read: %s",
		e.InForce.By, e.InForce.Revision, what)
}

// PublishPolicy puts a policy in force, unless it is in force already, and says what has changed.
func PublishPolicy(ctx context.Context, conn cluster.ReadWriter, paths cluster.Paths,
	p Proposal) (PublishedPolicy, error) {
	znode := paths.Policy()
	for {
		snap, err := store.ReadAll(ctx, conn, paths, false)
		if err != nil {
			return PublishedPolicy{}, err
		}
		merged, unpublished, err := p.merge(snap.Policy)
		if err != nil {
			return PublishedPolicy{}, &request.RefusedError{Err: err}
		}
		next, needed, err := merged.next(snap)
		if err != nil {
			return PublishedPolicy{}, &request.RefusedError{Err: err}
		}
		published := PublishedPolicy{Policy: next, Unpublished: unpublished}
		if !needed {
			return published, nil
		}
		if snap.Policy.Exists {
			published.Changed = config.RulesDiff(snap.Policy.Record.Rules, next.Rules)
		}
		op := cluster.Op{Kind: cluster.OpCreate, Path: znode, Data: cluster.Encode(&next)}
		if snap.Policy.Exists {
			op.Kind, op.Version = cluster.OpSet, snap.Policy.Stat.Version
		}
		_, err = conn.Do(ctx, op)
		switch {
		case err == nil:
			return published, nil
		case errors.Is(err, cluster.ErrBadVersion), errors.Is(err, cluster.ErrNodeExists):
			// Another policy was published meanwhile: check this one against it.
		default:
			return PublishedPolicy{}, fmt.Errorf("cannot write znode %s: %w", znode, err)
		}
	}
}

// merge returns the proposal to publish only what has changed since Before, and how it differs from the configuration.
// It leaves a policy that cannot be read to next.
func (p Proposal) merge(inForce cluster.Stored[cluster.Policy]) (Proposal, []config.Difference, error) {
	if p.Before == nil || !inForce.Readable() {
		return p, nil, nil
	}
	m := config.MergeRules(*p.Before, p.Config.Rules(), inForce.Record.Rules)
	if len(m.Conflicts) > 0 {
		return p, nil, &ConflictError{InForce: inForce.Record, Differences: m.Conflicts, group: p.Group}
	}
	if m.Rules.Digest() != inForce.Record.Rules.Digest() {
		if _, err := policy.New(cluster.Policy{Rules: m.Rules}); err != nil {
			return p, nil, fmt.Errorf("the policy in force (revision %d, published by %s) is not valid with what has "+
				"changed in the file: %w", inForce.Record.Revision, inForce.Record.By, err)
		}
	}
	p.Config = p.Config.WithRules(m.Rules)
	return p, m.Unmerged, nil
}

// Next returns the record that would be in force.
func (p Proposal) Next(snap cluster.Snapshot) (cluster.Policy, error) {
	next, _, err := p.next(snap)
	if err != nil {
		err = &request.RefusedError{Err: err}
	}
	return next, err
}

// CheckOpened returns a [ReplacedError] if another policy is in force than the one that the proposal was made from.
func (p Proposal) CheckOpened(inForce cluster.Stored[cluster.Policy]) error {
	if p.Opened == nil || !inForce.Exists || p.Opened.Stat.Created == inForce.Stat.Created && p.Opened.Stat.Version ==
		inForce.Stat.Version {
		return nil
	}
	return &request.RefusedError{Err: &ReplacedError{inForce.Record, config.RulesDiff(p.Opened.Record.Rules,
		inForce.Record.Rules)}}
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
	if err := p.CheckOpened(old); err != nil {
		return next, false, err
	}
	next = PolicyRecord(p.Config, 0)
	if old.Exists && rec.Rules.Digest() == next.Rules.Digest() {
		return rec, false, nil
	}
	next.Header, next.By, next.Revision = rec.Header, p.By, rec.Revision+1
	if n := len(cluster.Encode(&next)); n > cluster.MaxRecord {
		return next, false, fmt.Errorf("the policy is not published: it has %d bytes as a record, and no daemon "+
			"reads more than %d", n, cluster.MaxRecord)
	}
	if p.Force {
		return next, true, nil
	}
	return next, true, CheckEligible(p.Config, snap, next)
}

// CheckEligible returns a [NoEligibleError] for a policy under which no member is eligible, unless that is so under the
// policy in force as well.
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

// Repairable lists the names of the records that [Damage.PlanRepairs] knows.
var Repairable = []string{"root", "policy", "control", "history", "roster", "slots", "elected", "fence", "current"}

// Repair is the repair of one damaged record.
type Repair struct {
	// Name is one of [Repairable], Fault is what is wrong with the record.
	Name  string
	Fault error
	// Action describes the repair and who performs it. Op is the write; nil if an operator has nothing to write.
	Action string
	Op     *cluster.Op
	// Refused reports whether the record must be left alone, as a newer version has written it.
	Refused bool
}

// Damage is what has been read of a group to find damaged records.
type Damage struct {
	paths    cluster.Paths
	snapshot cluster.Snapshot
	// identity is the record in the root; only of the group itself, as slots.
	identity cluster.Stored[cluster.Identity]
	// slots is the record of slots; only of the group itself, not of a slot.
	slots   cluster.Stored[cluster.Slots]
	history cluster.Stored[cluster.History]
}

// ReadDamage reads the records of a group.
func ReadDamage(ctx context.Context, r cluster.Reader, paths cluster.Paths) (*Damage, error) {
	d := &Damage{paths: paths}
	var err error
	if d.snapshot, err = store.ReadAll(ctx, r, paths, false); err != nil {
		return nil, err
	}
	if paths.Slot == "" {
		if d.identity, err = store.ReadIdentity(ctx, r, paths); err != nil {
			return nil, err
		}
		if d.slots, err = store.ReadSlots(ctx, r, paths, false); err != nil {
			return nil, err
		}
	}
	d.history, err = readHistory(ctx, r, paths, false)
	return d, err
}

// Replacement is what a repair puts in the place of a damaged record.
type Replacement struct {
	// Policy returns the configuration whose policy replaces a damaged one.
	Policy func() (config.Config, error)
	// By is who repairs the record, at the time Wall.
	By   string
	Wall time.Time
}

// PlanRepairs returns the repairs of those of the named records that are damaged; without names, of all that are.
func (d *Damage) PlanRepairs(with Replacement, names ...string) ([]Repair, error) {
	for _, name := range names {
		if !slices.Contains(Repairable, name) {
			return nil, fmt.Errorf("there is no record %q: name one or more of %q, or none for all", name, Repairable)
		}
	}
	var repairs []Repair
	for _, r := range d.faults() {
		if r.Fault == nil || (len(names) > 0 && !slices.Contains(names, r.Name)) {
			continue
		}
		if err := d.plan(&r, with); err != nil {
			return nil, err
		}
		repairs = append(repairs, r)
	}
	return repairs, nil
}

// faults returns all records with their faults, nil for those that are in order.
func (d *Damage) faults() []Repair {
	s := &d.snapshot
	return []Repair{
		{Name: "root", Fault: d.identity.Err},
		{Name: "policy", Fault: policyFault(s.Policy)},
		{Name: "control", Fault: errors.Join(s.Control.Err, s.Control.Record.Exhausted())},
		{Name: "history", Fault: d.history.Err},
		{Name: "roster", Fault: s.Roster.Err},
		{Name: "slots", Fault: slotsFault(d.slots)},
		{Name: "elected", Fault: s.Elected.Err},
		{Name: "fence", Fault: fenceFault(s.Fence)},
		{Name: "current", Fault: s.Current.Err},
	}
}

func policyFault(s cluster.Stored[cluster.Policy]) error {
	if !s.Exists || s.Err != nil {
		return s.Err
	}
	if _, err := policy.New(s.Record); err != nil {
		return fmt.Errorf("the policy in force cannot be used: %w", err)
	}
	return nil
}

func fenceFault(s cluster.Stored[cluster.Fence]) error {
	if errors.Is(s.Err, cluster.ErrNeverWritten) {
		return nil
	}
	return s.Err
}

func slotsFault(s cluster.Stored[cluster.Slots]) error {
	if errors.Is(s.Err, cluster.ErrNoSlots) {
		return nil
	}
	return s.Err
}

// plan completes the repair of a record that has a fault.
func (d *Damage) plan(r *Repair, with Replacement) error {
	if _, ok := errors.AsType[*cluster.NewerVersionError](r.Fault); ok {
		r.Refused, r.Action = true, "left alone: a newer zkelectd has written it; repair it from a host with that version"
		return nil
	}
	switch r.Name {
	case "root":
		d.planRoot(r)
	case "policy":
		return d.planPolicy(r, with)
	case "control":
		var empty cluster.Control
		empty.Continue(d.snapshot.Elected.Record.Request)
		r.Op = overwrite(d.paths.Control(), d.snapshot.Control.Stat, cluster.Encode(&empty))
		r.Action = "emptied: the requests of operators so far (a pause, moves, cordons) are no longer in force"
	case "history":
		r.Op = overwrite(d.paths.History(), d.history.Stat, cluster.EncodeHistory(&cluster.History{}))
		r.Action = "emptied: the terms so far are lost"
	default:
		r.Action = "repaired by the elector: run a daemon; if that does not help, see 'zkelectd explain'"
	}
	return nil
}

// planRoot writes the record that members of the group have written. There is a group, or it could not have been read.
func (d *Damage) planRoot(r *Repair) {
	rec := cluster.Identity{Root: d.paths.Root, Kind: cluster.KindSingle}
	if d.slots.Exists {
		rec.Kind = cluster.KindSlots
	}
	r.Op = overwrite(d.paths.Root, d.identity.Stat, cluster.Encode(&rec))
	r.Action = "restored: this is the root of the group"
}

func (d *Damage) planPolicy(r *Repair, with Replacement) error {
	c, err := with.Policy()
	if err != nil {
		return err
	}
	rec := PolicyRecord(c, d.snapshot.Elected.Record.PolicyRevision+1)
	if d.snapshot.Policy.Readable() {
		rec.Revision = max(rec.Revision, d.snapshot.Policy.Record.Revision+1)
	}
	rec.By, rec.Time = with.By, with.Wall
	r.Op = overwrite(d.paths.Policy(), d.snapshot.Policy.Stat, cluster.Encode(&rec))
	r.Action = fmt.Sprintf("replaced by the policy of the configuration (%s), as revision %d", rec.Type, rec.Revision)
	return nil
}

// overwrite returns the write of a record, on the condition that its znode has not changed since it was read.
func overwrite(path string, read cluster.Stat, data []byte) *cluster.Op {
	return &cluster.Op{Kind: cluster.OpSet, Path: path, Version: read.Version, Data: data}
}
