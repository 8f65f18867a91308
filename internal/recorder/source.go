package recorder

import (
	"reflect"
	"sync"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/corejson"
	"zkelectd/internal/elector"
	"zkelectd/internal/policy"
	"zkelectd/internal/transition"
	"zkelectd/internal/watchdog"
)

// About describes a member.
type About struct {
	Group, Root, Slot, Node, Incarnation string
	Session                              int64
	Budget                               cluster.Budget
}

// Step is one call of [transition.Machine.Step]. The snapshot of [transition.Saw] is recorded before.
type Step struct {
	Now     time.Duration
	Wall    time.Time
	Event   transition.Event
	Actions []transition.Action
}

// Observe is one call of [watchdog.Watchdog.Observe].
type Observe struct {
	Now      time.Duration
	Findings watchdog.Findings
}

// Question is one call of [elector.Elector.Question]. The snapshot, the policy and the other slots are recorded before; Others has
// the names of the slots. Memory is what the daemon remembered before the call.
type Question struct {
	Input  elector.Input
	Others []string
	Memory cluster.LastKnown
}

// Decide is one call of [elector.Elector.Decide].
type Decide struct {
	Question
	Decision elector.Decision
	Ranked   []Ranked
}

// Ranked is one entry of a decision's ranking.
type Ranked struct {
	Incarnation string
	Refusals    []policy.Refusal
}

// Resize is one call of [elector.Resizer.Resize].
type Resize struct {
	Input    elector.ResizeInput
	Table    []string
	Decision elector.ResizeDecision
}

// NewDecide returns what is recorded of a decision: its ranking names members that the snapshot describes.
func NewDecide(q Question, d elector.Decision) Decide {
	var ranked []Ranked
	for _, e := range d.Ranking.Entries {
		ranked = append(ranked, Ranked{e.Member.Name, e.Refusals})
	}
	d.Ranking.Entries = nil
	return Decide{q, d, ranked}
}

// Core is the parts of a member's core. All but Machine may be nil.
type Core struct {
	Machine  *transition.Machine
	Watchdog *watchdog.Watchdog
	Elector  *elector.Elector
	Resizer  *elector.Resizer
	Memory   *cluster.LastKnown
}

// Source calls the core of one member and records the calls. It must be used by one goroutine only.
type Source struct {
	r       *Recorder // nil: nothing is recorded
	id      uint64
	about   About
	core    Core
	epoch   uint64
	broken  bool // a record was lost
	deltas  deltas
	renewal renewal

	snapshot     snapshotKey
	slots        map[string]slotKey
	policy       *policy.Policy
	staleResizer bool // it was called without a record
}

// snapshotKey identifies a snapshot of one reader. Its members are never changed, only replaced.
type snapshotKey struct {
	at      time.Duration
	members *cluster.Member
	count   int
}

func keyOf(s *cluster.Snapshot) snapshotKey {
	k := snapshotKey{at: s.At, count: len(s.Members)}
	if k.count > 0 {
		k.members = &s.Members[0]
	}
	return k
}

// slotKey identifies the state of a slot.
type slotKey struct {
	exists                  [3]bool
	elected, fence, current cluster.Stat
}

// NewSource returns a source for a member. It records nothing if r is nil.
func (r *Recorder) NewSource(about About, core Core) *Source {
	s := &Source{r: r, about: about, core: core, broken: true}
	if r != nil {
		s.id = r.member.Add(1)
	}
	return s
}

// Invalidate makes the source record the state of the core again, because it was changed other than by the calls.
func (s *Source) Invalidate() { s.broken = true }

// begin prepares the record of a call: after a gap or in a new file, it records the state of the core first. It reports whether the
// call can be recorded.
func (s *Source) begin() bool {
	if s.r == nil {
		return false
	}
	epoch := s.r.epoch.Load()
	if !s.broken && s.epoch == epoch {
		return true
	}
	if s.r.full() {
		s.broken = true
		s.r.miss()
		return false
	}
	s.epoch, s.broken, s.staleResizer = epoch, false, false
	s.snapshot, s.slots, s.policy = snapshotKey{}, make(map[string]slotKey), nil
	s.deltas.reset()
	s.emit(KindMember, "", &s.about)
	s.emit(KindState, PartMachine, s.core.Machine)
	s.emit(KindState, PartWatchdog, s.core.Watchdog)
	s.emit(KindState, PartElector, s.core.Elector)
	s.emit(KindState, PartResizer, s.core.Resizer)
	return !s.broken
}

// encodings are buffers for encoded values.
var encodings = sync.Pool{New: func() any { return new([]byte) }}

// emit queues a record, unless one before it was lost.
func (s *Source) emit(kind Kind, key string, value any) {
	if v := reflect.ValueOf(value); s.broken || v.Kind() == reflect.Pointer && v.IsNil() {
		return
	}
	text := encodings.Get().(*[]byte)
	*text = corejson.Append((*text)[:0], value)
	s.emitText(kind, key, *text)
	encodings.Put(text)
}

func (s *Source) emitText(kind Kind, key string, text []byte) {
	if s.broken {
		return
	}
	if !s.r.send(s.deltas.append(nil, s.id, kind, key, text)) {
		s.broken = true
		s.r.miss()
	}
}

// emitStep queues the record of a step.
func (s *Source) emitStep(step *Step) {
	text := encodings.Get().(*[]byte)
	defer encodings.Put(text)
	written, renewal := s.renewal.append((*text)[:0], step)
	if !renewal {
		written = corejson.Append(written, step)
	}
	*text = written
	s.emitText(KindStep, reflect.TypeOf(step.Event).Name(), *text)
	if !renewal && len(step.Actions) > 0 {
		signal(s.r.soon)
	}
}

func (s *Source) emitSnapshot(snap *cluster.Snapshot) {
	if key := keyOf(snap); key != s.snapshot {
		s.snapshot = key
		s.emit(KindSnapshot, "", snap)
	}
}

// emitSlots records those slots that have changed, and returns the names of all.
func (s *Source) emitSlots(slots []cluster.SlotState) []string {
	var names []string
	for i := range slots {
		o := &slots[i]
		key := slotKey{[3]bool{o.Elected.Exists, o.Fence.Exists, o.Current.Exists}, o.Elected.Stat, o.Fence.Stat, o.Current.Stat}
		if before, known := s.slots[o.Slot]; !known || before != key {
			s.slots[o.Slot] = key
			s.emit(KindSlot, o.Slot, o)
		}
		names = append(names, o.Slot)
	}
	return names
}

// Step calls [transition.Machine.Step]. Wall is the time that the machine takes from its clock for people.
func (s *Source) Step(now time.Duration, wall time.Time, ev transition.Event) []transition.Action {
	recorded := s.begin()
	actions := s.core.Machine.Step(now, ev)
	if recorded {
		s.emitStep(&Step{now, wall, s.withoutSnapshot(ev), actions})
	}
	return actions
}

// withoutSnapshot records the snapshot of an event separately. It is a function of its own because saw is allocated.
func (s *Source) withoutSnapshot(ev transition.Event) transition.Event {
	if _, ok := ev.(transition.Saw); !ok {
		return ev
	}
	saw := ev.(transition.Saw) //nolint:errcheck // it was checked
	s.emitSnapshot(&saw.Snapshot)
	return transition.Saw{}
}

// Observe calls [watchdog.Watchdog.Observe].
func (s *Source) Observe(snap cluster.Snapshot, now time.Duration) watchdog.Findings {
	recorded := s.begin()
	f := s.core.Watchdog.Observe(snap, now)
	if recorded {
		s.emitSnapshot(&snap)
		s.emit(KindObserve, "", &Observe{now, f})
	}
	return f
}

// question records what a decision depends on.
func (s *Source) question(in elector.Input, memory cluster.LastKnown) Question {
	s.emitSnapshot(&in.Snapshot)
	if in.Policy != s.policy {
		s.policy = in.Policy
		s.emit(KindPolicy, "", &cluster.Policy{Revision: in.Policy.Revision, Rules: in.Policy.Rules})
	}
	q := Question{Others: s.emitSlots(in.Others), Input: in, Memory: memory}
	q.Input.Snapshot, q.Input.Policy, q.Input.Others = cluster.Snapshot{}, nil, nil
	return q
}

func (s *Source) memory() cluster.LastKnown {
	if s.core.Memory == nil {
		return cluster.LastKnown{}
	}
	return *s.core.Memory
}

// Asked records a call of [elector.Elector.Question] without a decision.
func (s *Source) Asked(in elector.Input) {
	if s.begin() {
		q := s.question(in, s.memory())
		s.emit(KindQuestion, "", &q)
	}
}

// Decide calls [elector.Elector.Decide].
func (s *Source) Decide(in elector.Input) elector.Decision {
	recorded, memory := s.begin(), s.memory()
	d := s.core.Elector.Decide(in)
	if recorded {
		record := NewDecide(s.question(in, memory), d)
		s.emit(KindDecide, "", &record)
		if d.Elect != nil || d.Revoke != nil {
			signal(s.r.soon)
		}
	}
	return d
}

// Resize calls [elector.Resizer.Resize]. Calls while no resize is under way are not recorded.
func (s *Source) Resize(in elector.ResizeInput) elector.ResizeDecision {
	if slots := in.Snapshot.Slots; slots.Readable() && slots.Record.Next == nil {
		s.staleResizer = true
		return s.core.Resizer.Resize(in)
	}
	recorded := s.begin()
	if recorded && s.staleResizer {
		s.staleResizer = false
		s.emit(KindState, PartResizer, s.core.Resizer)
	}
	d := s.core.Resizer.Resize(in)
	if recorded {
		s.emitSnapshot(&in.Snapshot)
		z := Resize{Input: in, Table: s.emitSlots(in.Table), Decision: d}
		z.Input.Snapshot, z.Input.Table = cluster.Snapshot{}, nil
		s.emit(KindResize, "", &z)
	}
	return d
}

// End records that the member's loop has ended.
func (s *Source) End(reason string) {
	if s.begin() {
		s.emit(KindEnd, "", &reason)
		signal(s.r.soon)
	}
}
