package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/policy"
	"zkelectd/internal/store"
)

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
	slots cluster.Stored[cluster.Slots]
	// history is the error of decoding the history, historyStat its znode's stat.
	history     error
	historyStat cluster.Stat
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
	data, stat, err := readHistory(ctx, r, paths, false)
	if err != nil {
		return nil, err
	}
	if data != nil {
		_, d.history = cluster.DecodeHistory(paths.History(), data)
		d.historyStat = stat
	}
	return d, nil
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
		{Name: "history", Fault: d.history},
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
	var newer *cluster.NewerVersionError
	if errors.As(r.Fault, &newer) {
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
		r.Op = overwrite(d.paths.History(), d.historyStat, cluster.EncodeHistory(&cluster.History{}))
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
