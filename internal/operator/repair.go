package operator

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/policy"
)

// Repairable are the names of the records that [PlanRepairs] knows.
var Repairable = []string{"policy", "control", "history", "elected", "fence", "current"}

// Repair is what is to be done about one damaged record.
type Repair struct {
	// Name is one of [Repairable], Fault what is wrong with the record.
	Name  string
	Fault error
	// Action says what is done about it, or who does it. Op is the write, nil where there is nothing for an operator to write.
	Action string
	Op     *cluster.Op
	// Refused reports whether the record must be left alone: a newer version has written it.
	Refused bool
}

// Damage is what a repair is planned from.
type Damage struct {
	Snapshot cluster.Snapshot
	// History is the error of reading it, HistoryStat the znode's.
	History     error
	HistoryStat cluster.Stat
	// Policy returns the configuration whose policy replaces a damaged one.
	Policy func() (config.Config, error)
	By     string
	Wall   time.Time
}

// PlanRepairs returns the repairs of the named records that are damaged, of all where no name is given.
func PlanRepairs(p cluster.Paths, d Damage, names ...string) ([]Repair, error) {
	for _, name := range names {
		if !slices.Contains(Repairable, name) {
			return nil, fmt.Errorf("there is no record %q: name some of %q, or none for all", name, Repairable)
		}
	}
	s := &d.Snapshot
	var plan []Repair
	for _, r := range []Repair{
		{Name: "policy", Fault: policyFault(s.Policy)},
		{Name: "control", Fault: errors.Join(s.Control.Err, s.Control.Record.Exhausted())},
		{Name: "history", Fault: d.History},
		{Name: "elected", Fault: s.Elected.Err},
		{Name: "fence", Fault: fenceFault(s.Fence)},
		{Name: "current", Fault: s.Current.Err},
	} {
		if r.Fault == nil || (len(names) > 0 && !slices.Contains(names, r.Name)) {
			continue
		}
		if err := r.plan(p, d); err != nil {
			return nil, err
		}
		plan = append(plan, r)
	}
	return plan, nil
}

func policyFault(s cluster.Slot[cluster.Policy]) error {
	if !s.Exists || s.Err != nil {
		return s.Err
	}
	if _, err := policy.New(s.Record); err != nil {
		return fmt.Errorf("the policy in force cannot be used: %w", err)
	}
	return nil
}

func fenceFault(s cluster.Slot[cluster.Fence]) error {
	if errors.Is(s.Err, cluster.ErrNeverWritten) {
		return nil
	}
	return s.Err
}

func (r *Repair) plan(p cluster.Paths, d Damage) error {
	var newer *cluster.NewerVersionError
	if errors.As(r.Fault, &newer) {
		r.Refused, r.Action = true, "left alone: a newer zkelectd has written it; repair it from a host with that version"
		return nil
	}
	s, set := &d.Snapshot, func(path string, version int32, data []byte) {
		r.Op = &cluster.Op{Kind: cluster.OpSet, Path: path, Version: version, Data: data}
	}
	switch r.Name {
	case "policy":
		c, err := d.Policy()
		if err != nil {
			return err
		}
		rec := PolicyRecord(c, s.Elected.Record.PolicyRevision+1)
		if s.Policy.Readable() {
			rec.Revision = max(rec.Revision, s.Policy.Record.Revision+1)
		}
		rec.By, rec.Time = d.By, d.Wall
		set(p.Policy(), s.Policy.Stat.Version, cluster.Encode(&rec))
		r.Action = fmt.Sprintf("replaced by the policy of the configuration (%s), as revision %d", rec.Type, rec.Revision)
	case "control":
		var empty cluster.Control
		empty.Continue(s.Elected.Record.Request)
		set(p.Control(), s.Control.Stat.Version, cluster.Encode(&empty))
		r.Action = "emptied: what operators had asked for before (a pause, moves, cordons) no longer holds"
	case "history":
		set(p.History(), d.HistoryStat.Version, cluster.EncodeHistory(&cluster.History{}))
		r.Action = "emptied: the terms so far are lost"
	default:
		r.Action = "repaired by the elector: run a daemon, and see 'zkelectd explain' if it does not"
	}
	return nil
}
