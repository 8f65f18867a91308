package operator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/elector"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/operator/request"
	"zkelectd/internal/policy"
	"zkelectd/internal/store"
	"zkelectd/internal/work/hook"
	"zkelectd/internal/work/workenv"
)

// maxExclusion bounds the duration of an exclusion, which doubles with each strike.
const maxExclusion = time.Hour

// ElectorOptions returns the elector's options for a configuration.
func ElectorOptions(c config.Config) elector.Options {
	return elector.Options{
		Exclusion: c.Election.Exclusion, ExclusionMax: max(c.Election.Exclusion, maxExclusion), Takeover: c.TakeoverTimeout(),
	}
}

// question returns the question for a forecast of snap, under the policy by which an elector with this configuration
// ranks. name is the name of the group or of one of its slots.
func question(name string, c config.Config, snap cluster.Snapshot, policies *policy.Cache) (whatif.Question, error) {
	q := whatif.Question{Snapshot: snap, Options: ElectorOptions(c), StrikeResetAfter: c.Election.StrikeResetAfter(),
		Wall: time.Now()}
	q.Options.Group = cluster.SlotName(cluster.GroupOf(name), snap.Slot)
	q.Options.Epoch = snap.Slots.Record.Epoch // as an elector that was started for these slots
	rec := snap.Policy.Record
	if !snap.Policy.Readable() {
		rec = cluster.Policy{Rules: c.Rules()} // as an elector does
	}
	var err error
	if q.Policy, err = policies.Compile(rec); err != nil {
		q.Policy, err = policy.New(cluster.Policy{Rules: c.Rules()})
	}
	return q, err
}

// AskProgram runs the ranking program argv of an exec policy. It returns the program's answer, or the reason why there
// is none.
func AskProgram(ctx context.Context, argv []string, in policy.Input) policy.Answer {
	if len(argv) == 0 {
		return policy.Answer{Err: "policy.exec is not set on this host"}
	}
	program := hook.Hook{Setting: "policy.exec", Argv: argv, Env: workenv.Clean(os.Environ()),
		Timeout: policy.ProgramTimeout}
	out, err := program.Output(ctx, policy.QuestionJSON(in))
	if err != nil {
		return policy.Answer{Err: err.Error()}
	}
	return policy.ParseAnswer(out, in)
}

// Asker returns a function that runs the ranking program of c for a forecast, while ctx is not done.
func Asker(ctx context.Context, c config.Config) func(policy.Input) *policy.Answer {
	return func(in policy.Input) *policy.Answer {
		a := AskProgram(ctx, c.Policy.Exec, in)
		return &a
	}
}

// Neighbors says which group questions are about, and what is known of other groups. The zero value is a group without
// a name, of which nothing else is known.
type Neighbors struct {
	// Group is the name of the group, or of a slot.
	Group string
	// Others returns what elections take into account of other groups, see [elector.Placement]; nil for nothing.
	Others func(context.Context, policy.Relations) elector.Placement
}

// place completes a question.
func (n Neighbors) place(ctx context.Context, q *whatif.Question) {
	var p elector.Placement
	if n.Others != nil {
		p = n.Others(ctx, policy.RelationsOf(q.Policy.Rules))
	}
	set := func(q *whatif.Question) {
		q.Placement, q.Options.Group = p, cluster.SlotName(cluster.GroupOf(n.Group), q.Snapshot.Slot)
	}
	set(q)
	for i := range q.Slots {
		set(&q.Slots[i])
	}
}

// Leaders is a group as read: with one leader, or with one for each slot.
type Leaders struct {
	Name string // of the group
	// Shared has what all slots share: the members, the policy, the requests of the whole group, and the record of
	// slots. Without slots, it is the only snapshot.
	Shared cluster.Snapshot
	// Snapshots has one for each slot, in their order, with the requests that concern the slot.
	Snapshots []cluster.Snapshot

	slotted bool
}

// slotReadsAtOnce bounds how many slots are read at once.
const slotReadsAtOnce = 16

// ReadLeaders returns a group, with slots if slotted is set. name is the name of the group or of one of its slots. It
// reads the decisions before the members, as a daemon does. If watch is true, it sets watches. It returns an error if
// it is not known which slots the group has: without any, each question about all leaders would have an answer.
func ReadLeaders(ctx context.Context, r cluster.Reader, name string, paths cluster.Paths, slotted,
	watch bool) (Leaders, error) {
	g := Leaders{Name: cluster.GroupOf(name), slotted: slotted}
	if !slotted {
		snap, err := store.ReadAll(ctx, r, paths, watch)
		g.Shared, g.Snapshots = snap, []cluster.Snapshot{snap}
		return g, err
	}
	paths.Slot = ""
	record, err := store.ReadSlots(ctx, r, paths, watch)
	if err != nil {
		return g, err
	}
	g.Snapshots = make([]cluster.Snapshot, record.Record.Count)
	readers, reading := errgroup.WithContext(ctx)
	readers.SetLimit(slotReadsAtOnce)
	for i := range g.Snapshots {
		readers.Go(func() (err error) {
			g.Snapshots[i], err = store.ReadTerm(reading, r, paths.OfSlot(i), watch)
			return err
		})
	}
	if err := readers.Wait(); err != nil {
		return g, err
	}
	if g.Shared, err = store.ReadAll(ctx, r, paths.OfSlot(0), watch); err != nil {
		return g, err
	}
	if err := SlotsUnknown(record, paths.Slots()); err != nil {
		return g, err
	}
	g.Shared.Slots = record
	for i := range g.Snapshots {
		s, own := g.Shared, &g.Snapshots[i]
		s.Slot, s.Elected, s.Fence, s.Current, s.Heir = paths.OfSlot(i).Slot, own.Elected, own.Fence, own.Current, own.Heir
		s.Control.Record = g.Shared.Control.Record.Whole().OfSlot(s.Slot)
		*own = s
	}
	g.Shared.Slot, g.Shared.Control.Record = "", g.Shared.Control.Record.Whole()
	g.Shared.Elected, g.Shared.Fence = cluster.Stored[cluster.Elected]{}, cluster.Stored[cluster.Fence]{}
	g.Shared.Current = cluster.Stored[cluster.Current]{}
	return g, nil
}

// SlotsUnknown returns an error if a record of slots does not say which slots a group has. znode is the record's.
func SlotsUnknown(record cluster.Stored[cluster.Slots], znode string) error {
	switch err := record.Err; {
	case record.Readable():
		return nil
	case errors.Is(err, cluster.ErrNoSlots):
		return fmt.Errorf("%w: no daemon has joined the group yet; start one", err)
	case record.Newer() != nil:
		return fmt.Errorf("%w: until then no slot gets another leader; leaders keep working", err)
	case err == nil:
		return fmt.Errorf("znode %s does not exist: the elector writes it again; if no daemon runs, start one", znode)
	default:
		return fmt.Errorf("%w: the elector writes it again; if no daemon runs, start one", err)
	}
}

// Question returns the question for a forecast of one slot, or without one of the whole group. ask answers instead of
// the ranking program of an exec policy.
func (g Leaders) Question(c config.Config, slot string, ask func(policy.Input) *policy.Answer,
	policies *policy.Cache) (whatif.Question, error) {
	if slot != "" && g.slotted {
		return g.slotQuestion(c, slot, ask, policies)
	}
	q, err := question(g.Name, c, g.Shared, policies)
	q.Ask = ask
	if !g.slotted || err != nil {
		return q, err
	}
	q.Slots = make([]whatif.Question, len(g.Snapshots))
	for i, s := range g.Snapshots {
		if q.Slots[i], err = g.slotQuestion(c, s.Slot, ask, policies); err != nil {
			return q, err
		}
	}
	return q, nil
}

func (g Leaders) slotQuestion(c config.Config, slot string, ask func(policy.Input) *policy.Answer,
	policies *policy.Cache) (whatif.Question, error) {
	i, n := cluster.SlotNumber(slot), len(g.Snapshots)
	if i < 0 || i >= n {
		return whatif.Question{},
			&request.RefusedError{Err: fmt.Errorf("there is no slot %s: the group has %d, 0 to %d", slot, n, n-1)}
	}
	q, err := question(g.Name, c, g.Snapshots[i], policies)
	q.Ask = ask
	for j, other := range g.Snapshots {
		if j != i {
			q.Others = append(q.Others, other.SlotState())
		}
	}
	return q, err
}

// SlotsDrift says how the slots in a group's configuration differ from those in force; empty if they are the same.
func SlotsDrift(name string, c config.Slots, inForce cluster.Stored[cluster.Slots]) string {
	rec, own := inForce.Record, cluster.SlotSize{Count: c.Count, PerNode: c.Limit()}
	if !inForce.Readable() || !c.Enabled() || own == rec.SlotSize {
		return ""
	}
	return fmt.Sprintf("the configuration of this host has %s, but %s are in force: correct slots there, or run %s",
		own, rec.SlotSize, cluster.InGroup("'zkelectd slots %s --per-node %s'", name, own.Count, own.PerNode))
}
