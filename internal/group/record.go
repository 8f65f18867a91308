//go:build record

package group

import (
	"reflect"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/test/record"
	"zkelectd/internal/transition"
)

// recordStep records a step of the machine for the fault campaign.
func (m *Member) recordStep(at time.Duration, ev transition.Event, actions []transition.Action) {
	l := record.Line{
		At: at, Root: m.group.opt.Paths.Root, Node: m.self.ID, Incarnation: m.self.Name,
		Event: reflect.TypeOf(ev).Name(), Running: m.machine.Running(),
	}
	switch ev := ev.(type) {
	case transition.Saw:
		recordRead(&l, &ev.Snapshot)
	case transition.Waits:
		l.Event = reflect.TypeFor[transition.Saw]().Name()
		recordRead(&l, &ev.Snapshot)
	}
	for _, a := range actions {
		switch a := a.(type) {
		case transition.Lease:
			l.Lease = a.Deadline
		case transition.RunPreStart:
			l.Starts = a.Term
		case transition.StartChild:
			l.Starts = a.Term
		case transition.Send:
			l.Releases = a.Tx == transition.TxRelease
			if a.Tx == transition.TxReady {
				l.Readies = m.machine.Term()
			}
		}
	}
	record.Write(l)
}

// recordRead adds who is elected, and who holds leadership.
func recordRead(l *record.Line, s *cluster.Snapshot) {
	if e := s.Elected; e.Readable() {
		l.Read = decisionOf(&e.Record)
		l.Read.Written, l.Read.Transaction = e.Stat.Time.UnixMilli(), e.Stat.Modified
	}
	if r := s.Fence.Record; s.Fence.Readable() && (r.State == cluster.FenceHeld || r.State == cluster.FenceReady) {
		l.Holders = append(l.Holders, record.Holder{Term: r.Term, Incarnation: r.Incarnation})
	}
	if r := s.Current.Record; s.Current.Readable() {
		l.Holders = append(l.Holders, record.Holder{Term: r.Term, Incarnation: r.Incarnation})
	}
}

func decisionOf(e *cluster.Elected) *record.Decision {
	return &record.Decision{Term: e.Term, Node: e.Node, Incarnation: e.Incarnation, Cause: string(e.Cause)}
}

// recordDecision records a decision of the elector for the fault campaign.
func (m *Member) recordDecision(elected cluster.Elected) {
	record.Write(record.Line{
		At: boottime.Now(), Root: m.group.opt.Paths.Root, Node: m.self.ID, Incarnation: m.self.Name,
		Decided: decisionOf(&elected),
	})
}
