package replay

import (
	"bytes"
	"fmt"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/corejson"
	"zkelectd/internal/elector"
	"zkelectd/internal/policy"
	"zkelectd/internal/recorder"
	"zkelectd/internal/transition"
	"zkelectd/internal/watchdog"
)

// types are the types of the values of interfaces in a recording.
var types = corejson.TypesOf(
	transition.Saw{}, transition.TxDone{}, transition.RenewDone{}, transition.Admitted{}, transition.Fenced{}, transition.HookDone{}, transition.ChildStarted{},
	transition.ChildReady{}, transition.ChildFailed{}, transition.ChildDead{}, transition.Quit{}, transition.ReleaseHint{}, transition.LeavingPublished{}, transition.NoSuccessor{}, transition.Replaced{},
	transition.LeaseCut{}, transition.SessionEnded{}, transition.Tick{}, transition.RoundReply{}, transition.Remembered{},
	transition.Send{}, transition.Renew{}, transition.Lease{}, transition.AskToStart{}, transition.Fence{}, transition.RunPreStart{}, transition.RunPostStop{},
	transition.StartChild{}, transition.StopTask{}, transition.KillTask{}, transition.PublishLeaving{}, transition.Entrust{}, transition.Reread{}, transition.End{},
	transition.Announce{}, transition.Note{}, transition.SendRound{}, transition.Remember{}, transition.CurrentGone{},
)

// member replays the records of one member.
type member struct {
	about recorder.About

	wall     time.Time
	memory   cluster.LastKnown
	machine  *transition.Machine
	watchdog *watchdog.Watchdog
	elector  *elector.Elector
	resizer  *elector.Resizer

	snapshot cluster.Snapshot
	slots    map[string]cluster.SlotState
	policy   *policy.Policy
}

// call is what one record shows: the time on CLOCK_BOOTTIME, and the values. Only that of its kind is set.
type call struct {
	at       time.Duration
	snapshot *cluster.Snapshot
	slot     *cluster.SlotState
	step     *recorder.Step
	observe  *recorder.Observe
	decide   *recorder.Decide
	question *recorder.Question
	resize   *recorder.Resize
	// recorded and replayed are what the core returned then and now, encoded. They are equal if replayed is nil.
	recorded, replayed []byte
}

func decode[T any](data []byte) (*T, error) {
	v := new(T)
	return v, corejson.Decode(data, v, types)
}

// newMember returns a member whose state follows.
func newMember(data []byte) (*member, error) {
	about, err := decode[recorder.About](data)
	if err != nil {
		return nil, err
	}
	m := &member{about: *about, slots: make(map[string]cluster.SlotState)}
	m.machine = transition.New(transition.Options{Wall: func() time.Time { return m.wall }})
	m.watchdog = watchdog.New(watchdog.Options{})
	m.elector = elector.New(elector.Options{LastKnown: &m.memory})
	m.resizer = elector.NewResizer(cluster.Slots{})
	return m, nil
}

// setState sets the state of one part of the core.
func (m *member) setState(part string, data []byte) error {
	var to any
	switch part {
	case recorder.PartMachine:
		to = m.machine
	case recorder.PartWatchdog:
		to = m.watchdog
	case recorder.PartElector:
		to = m.elector
	case recorder.PartResizer:
		to = m.resizer
	default:
		return fmt.Errorf("the core has no part %q in this version", part)
	}
	return corejson.Decode(data, to, types)
}

// replay calls the core as recorded. The error says why that is not possible. A value that was only decoded has no result.
func (m *member) replay(r recorder.Record) (c call, err error) {
	switch r.Kind {
	case recorder.KindState:
		return c, m.setState(r.Key, r.Data)
	case recorder.KindSnapshot:
		if c.snapshot, err = decode[cluster.Snapshot](r.Data); err == nil {
			m.snapshot = *c.snapshot
		}
	case recorder.KindSlot:
		if c.slot, err = decode[cluster.SlotState](r.Data); err == nil {
			m.slots[r.Key] = *c.slot
		}
	case recorder.KindPolicy:
		var rec *cluster.Policy
		if rec, err = decode[cluster.Policy](r.Data); err == nil {
			m.policy, err = policy.New(*rec)
		}
	case recorder.KindStep:
		err = m.replayStep(r.Data, &c)
	case recorder.KindObserve:
		if c.observe, err = decode[recorder.Observe](r.Data); err == nil {
			c.at = c.observe.Now
			c.compare(r.Data, &recorder.Observe{Now: c.at, Findings: m.watchdog.Observe(m.snapshot, c.at)})
		}
	case recorder.KindQuestion:
		if c.question, err = decode[recorder.Question](r.Data); err == nil && m.policy != nil {
			c.at = c.question.Input.Now
			m.elector.Question(m.input(*c.question))
		}
	case recorder.KindDecide:
		err = m.replayDecide(r.Data, &c)
	case recorder.KindResize:
		if c.resize, err = decode[recorder.Resize](r.Data); err == nil {
			in := c.resize.Input
			in.Snapshot, in.Table = m.snapshot, m.states(c.resize.Table)
			c.at = in.Now
			c.compare(r.Data, &recorder.Resize{Input: c.resize.Input, Table: c.resize.Table, Decision: m.resizer.Resize(in)})
		}
	}
	return c, err
}

// compare compares a record with what the same call returns now.
func (c *call) compare(data []byte, now any) {
	if text := corejson.Encode(now); !bytes.Equal(text, data) {
		c.recorded, c.replayed = bytes.Clone(data), text
	}
}

func (m *member) replayStep(data []byte, c *call) error {
	s, err := decode[recorder.Step](data)
	if err != nil {
		return err
	}
	c.step, c.at, m.wall = s, s.Now, s.Wall
	ev := s.Event
	if ev == nil {
		return fmt.Errorf("a step without an event")
	}
	if _, ok := ev.(transition.Saw); ok {
		ev = transition.Saw{Snapshot: m.snapshot}
	}
	c.compare(data, &recorder.Step{Now: s.Now, Wall: s.Wall, Event: s.Event, Actions: m.machine.Step(s.Now, ev)})
	return nil
}

func (m *member) replayDecide(data []byte, c *call) error {
	d, err := decode[recorder.Decide](data)
	if err != nil {
		return err
	}
	if m.policy == nil {
		return fmt.Errorf("a decision without a policy")
	}
	c.decide, c.at = d, d.Input.Now
	m.memory = d.Memory
	now := recorder.NewDecide(d.Question, m.elector.Decide(m.input(d.Question)))
	c.compare(data, &now)
	return nil
}

// input returns the input of a call of the elector.
func (m *member) input(q recorder.Question) elector.Input {
	in := q.Input
	in.Snapshot, in.Policy, in.Others = m.snapshot, m.policy, m.states(q.Others)
	return in
}

func (m *member) states(names []string) []cluster.SlotState {
	var all []cluster.SlotState
	for _, name := range names {
		all = append(all, m.slots[name])
	}
	return all
}
