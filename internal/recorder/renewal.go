package recorder

import (
	"bytes"
	"slices"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/corejson"
	"zkelectd/internal/transition"
)

// renewal is the record of a renewal that succeeded. Renewals are most of what an idle leader records, and only times differ between
// them: the text of the others is made from that of the first one.
type renewal struct {
	held  cluster.HeldVersions
	renew transition.Renew // without times
	texts [][]byte         // what surrounds the times
	order []int            // of the times in the text, as indexes of renewalTimes.durations
}

// renewalTimes are the times in the record of a renewal.
type renewalTimes struct {
	wall                            time.Time
	now, sent, lease, due, deadline time.Duration
}

const wallTime = 5 // follows the durations

func (t renewalTimes) durations() []time.Duration {
	return []time.Duration{t.now, t.sent, t.lease, t.due, t.deadline}
}

// placeholders are times that occur nowhere else in the record.
var placeholders = renewalTimes{time.Unix(1, 1).UTC(), 1e15 + 1, 1e15 + 2, 1e15 + 3, 1e15 + 4, 1e15 + 5}

// timesOf returns the times of a step that is a renewal which succeeded and changed nothing else.
func timesOf(s *Step) (t renewalTimes, done transition.RenewDone, renew transition.Renew, ok bool) {
	done, ok = s.Event.(transition.RenewDone)
	if !ok || done.Err != nil || len(s.Actions) != 2 {
		return t, done, renew, false
	}
	lease, first := s.Actions[0].(transition.Lease)
	renew, second := s.Actions[1].(transition.Renew)
	t = renewalTimes{s.Wall, s.Now, done.Sent, lease.Deadline, renew.Due, renew.Deadline}
	renew.Due, renew.Deadline = 0, 0
	ok = first && second && renew.Term == done.Term && renew.Held == done.Held
	return t, done, renew, ok && !slices.Contains(t.durations(), 0) // a zero is left out of the text
}

// append appends what corejson would write of the step. It reports whether the step is a renewal.
func (r *renewal) append(b []byte, s *Step) ([]byte, bool) {
	t, done, renew, ok := timesOf(s)
	if !ok {
		return b, false
	}
	if r.texts == nil || r.held != done.Held || r.renew.Term != renew.Term || !slices.EqualFunc(r.renew.Ops, renew.Ops, sameCheck) {
		if *r, ok = newRenewal(done, renew); !ok {
			return b, false
		}
	}
	times := t.durations()
	for i, text := range r.texts[:len(r.order)] {
		b = append(b, text...)
		if k := r.order[i]; k < wallTime {
			b = append(b, times[k].String()...)
		} else {
			b = t.wall.AppendFormat(b, time.RFC3339Nano)
		}
	}
	return append(b, r.texts[len(r.order)]...), true
}

// sameCheck compares two operations of a RENEW, which only checks.
func sameCheck(a, b cluster.Op) bool {
	return a.Kind == cluster.OpCheck && b.Kind == cluster.OpCheck && a.Path == b.Path && a.Version == b.Version
}

// newRenewal splits the text of a renewal at its times.
func newRenewal(done transition.RenewDone, renew transition.Renew) (r renewal, ok bool) {
	r = renewal{held: done.Held, renew: renew}
	p := placeholders
	done.Sent, renew.Due, renew.Deadline = p.sent, p.due, p.deadline
	text := corejson.Encode(&Step{p.now, p.wall, done, []transition.Action{transition.Lease{Deadline: p.lease}, renew}})
	var names []string
	for _, d := range p.durations() {
		names = append(names, d.String())
	}
	names = append(names, p.wall.Format(time.RFC3339Nano))
	at := func(i int) int { return bytes.Index(text, []byte(names[i])) }
	for i := range names {
		if bytes.Count(text, []byte(names[i])) != 1 {
			return renewal{}, false
		}
		r.order = append(r.order, i)
	}
	slices.SortFunc(r.order, func(a, b int) int { return at(a) - at(b) })
	end := 0
	for _, i := range r.order {
		r.texts = append(r.texts, text[end:at(i)])
		end = at(i) + len(names[i])
	}
	r.texts = append(r.texts, text[end:])
	return r, true
}
