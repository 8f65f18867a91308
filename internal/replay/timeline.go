package replay

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/corejson"
	"zkelectd/internal/recorder"
	"zkelectd/internal/transition"
)

// Line is one line of a timeline.
type Line struct {
	// Time is the wall-clock time of the host, and Boottime the time of its CLOCK_BOOTTIME.
	Time     time.Time `json:"time"`
	Boottime string    `json:"boottime"`
	Node     string    `json:"node"`
	Group    string    `json:"group,omitempty"`
	// What is the kind of the record, and Text its content.
	What string `json:"what"`
	Text string `json:"text"`
}

// Timeline shows a recording line by line.
type Timeline struct {
	// Show receives each line. All shows all records; else those that change nothing are left out: renewals, timers, snapshots and
	// decisions without a result.
	Show func(Line)
	All  bool
	// Group shows the records of one group only, unless it is empty.
	Group string

	header  recorder.Header
	last    time.Duration
	abouts  map[uint64]recorder.About
	notes   map[uint64]string // why there was no election, as last shown
	summary map[uint64]string // what the last snapshot shows
}

// Run implements [recorder.Visitor].
func (t *Timeline) Run(h recorder.Header) {
	if h.Run != t.header.Run {
		t.abouts, t.notes, t.summary = make(map[uint64]recorder.About), make(map[uint64]string), make(map[uint64]string)
	}
	t.header, t.last = h, time.Duration(h.At)
	t.show(0, "process", fmt.Sprintf("pid %d, version %s, boot ID %s", h.PID, h.Version, h.Boot))
}

// Gap implements [recorder.Visitor].
func (t *Timeline) Gap(reason string) { t.show(0, "gap", reason) }

func (t *Timeline) show(source uint64, what, text string) {
	about, known := t.abouts[source]
	if t.Group != "" && known && about.Group != t.Group {
		return
	}
	t.Show(Line{Time: t.header.WallAt(t.last).UTC(), Boottime: t.last.String(), Node: t.header.Node, Group: about.Group, What: what, Text: text})
}

// Record implements [recorder.Visitor].
func (t *Timeline) Record(r recorder.Record) {
	switch r.Kind {
	case recorder.KindMember:
		about, err := decode[recorder.About](r.Data)
		if err != nil {
			t.show(r.Source, "gap", err.Error())
			return
		}
		if before, known := t.abouts[r.Source]; !known || before != *about || t.All {
			t.abouts[r.Source] = *about
			t.show(r.Source, "member", "incarnation "+about.Incarnation)
		}
	case recorder.KindSnapshot:
		t.snapshot(r)
	case recorder.KindStep:
		t.step(r)
	case recorder.KindDecide:
		t.decide(r)
	case recorder.KindEnd:
		t.show(r.Source, "end", string(r.Data))
	case recorder.KindObserve, recorder.KindResize:
		t.other(r)
	}
}

func (t *Timeline) snapshot(r recorder.Record) {
	c, err := decode[cluster.Snapshot](r.Data)
	if err != nil {
		t.show(r.Source, "gap", err.Error())
		return
	}
	t.last = max(t.last, c.At)
	elected, fence, current := c.Elected.Record, c.Fence.Record, c.Current.Record
	text := fmt.Sprintf("elected %s in term %d (%s: %s)", elected.Node, elected.Term, elected.Cause, elected.Reason)
	if c.Leadership {
		text += fmt.Sprintf("; fence %s %s in term %d; current %s %s", fence.State, fence.Node, fence.Term, current.State, current.Node)
	}
	if c.Elector {
		var names []string
		for _, m := range c.Members {
			names = append(names, m.Name)
		}
		text += "; members " + strings.Join(names, " ")
	}
	for _, e := range []error{c.Slots.Err, c.Elected.Err, c.Fence.Err, c.Current.Err} {
		if e != nil {
			text += "; " + e.Error()
		}
	}
	if t.All || t.summary[r.Source] != text {
		t.summary[r.Source] = text
		t.show(r.Source, "read", text)
	}
}

func (t *Timeline) step(r recorder.Record) {
	s, err := decode[recorder.Step](r.Data)
	if err != nil || s.Event == nil {
		t.show(r.Source, "gap", fmt.Sprint("a step cannot be read: ", err))
		return
	}
	t.last = s.Now
	var actions []string
	for _, a := range s.Actions {
		if !t.All && routine(a) {
			continue
		}
		actions = append(actions, describe(a))
	}
	_, renewed := s.Event.(transition.RenewDone)
	_, tick := s.Event.(transition.Tick)
	_, saw := s.Event.(transition.Saw)
	if !t.All && len(actions) == 0 && (tick || saw || renewed && s.Event.(transition.RenewDone).Err == nil) {
		return
	}
	text := describe(s.Event)
	if len(actions) > 0 {
		text += " -> " + strings.Join(actions, ", ")
	}
	t.show(r.Source, "member", text)
}

// routine reports whether an action is one that each renewal repeats.
func routine(a transition.Action) bool {
	switch a := a.(type) {
	case transition.Renew, transition.Reread, transition.Entrust:
		return true
	case transition.Lease:
		return a.Deadline != 0
	}
	return false
}

// describe returns an event or an action as text.
func describe(v any) string {
	name := reflect.TypeOf(v).Name()
	if send, ok := v.(transition.Send); ok {
		return fmt.Sprintf("Send %s", send.Tx)
	}
	if text := string(corejson.Encode(v)); text != "{}" {
		return name + text
	}
	return name
}

func (t *Timeline) decide(r recorder.Record) {
	d, err := decode[recorder.Decide](r.Data)
	if err != nil {
		t.show(r.Source, "gap", err.Error())
		return
	}
	t.last = d.Input.Now
	out := d.Decision
	var parts []string
	if e := out.Elect; e != nil {
		parts = append(parts, fmt.Sprintf("elect %s in term %d (%s: %s)", e.Node, e.Term, e.Cause, e.Reason))
	}
	if f := out.Revoke; f != nil {
		parts = append(parts, fmt.Sprintf("revoke %s in term %d: %s", f.Node, f.Term, f.Reason))
	}
	if out.Control != nil {
		parts = append(parts, "bring the operators' requests up to date")
	}
	note := strings.Join([]string{out.Note, out.Blocked.Reason, out.Newer}, "")
	if note != "" && (t.All || note != t.notes[r.Source]) {
		parts = append(parts, note)
	}
	t.notes[r.Source] = note
	if t.All && len(parts) == 0 {
		parts = append(parts, "nothing to do")
	}
	if len(parts) > 0 {
		t.show(r.Source, "elector", strings.Join(parts, "; "))
	}
}

func (t *Timeline) other(r recorder.Record) {
	if r.Kind == recorder.KindObserve {
		o, err := decode[recorder.Observe](r.Data)
		if err == nil && (t.All || o.Findings.Overdue != "" || o.Findings.Revoke != "") {
			t.last = o.Now
			t.show(r.Source, "watchdog", describe(o.Findings))
		}
		return
	}
	z, err := decode[recorder.Resize](r.Data)
	if err == nil && (t.All || z.Decision.Step != "") {
		t.last = z.Input.Now
		t.show(r.Source, "resize", fmt.Sprintf("%s %s", z.Decision.Step, z.Decision.Note))
	}
}
