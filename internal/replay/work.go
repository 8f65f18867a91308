package replay

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"zkelectd/internal/recorder"
	"zkelectd/internal/transition"
)

// work is one run of the leader-only work, with its hook pre_start, as its daemon saw it.
type work struct {
	group, node, incarnation string
	term                     int64
	header                   recorder.Header
	start                    time.Duration
	// The daemon knew that the work ran until certain. It had ended at end: the daemon saw that, or the lease and the time to kill
	// were over.
	certain, end time.Duration
	// open is set if the recording does not show the end.
	open bool
}

func (w *work) String() string {
	text := fmt.Sprintf("%s in term %d from %s (boottime %s) until %s", w.node, w.term, stamp(w.header, w.start), w.start, stamp(w.header, w.certain))
	if w.open {
		text += ", where its recording ends"
	}
	return text
}

// stamp returns a moment as wall-clock time, for people.
func stamp(h recorder.Header, at time.Duration) string {
	return h.WallAt(at).UTC().Format("2006-01-02T15:04:05.000Z")
}

// workTracker follows the work of one member through its steps.
type workTracker struct {
	about    recorder.About
	header   recorder.Header
	deadline time.Duration
	current  *work
	resumed  int64 // the term of work that ran when the recording began, and that is not in current yet
}

// restore takes over the state of a machine whose records begin, or begin again after a gap.
func (t *workTracker) restore(m *transition.Machine) {
	t.deadline = m.Deadline()
	switch m.Phase() {
	case transition.Preparing, transition.Starting:
		return // the work has been ordered, and perhaps runs
	}
	if !m.Running() {
		t.current = nil // its end was not recorded
	}
	t.resumed = 0
	if m.Running() && t.current == nil {
		t.resumed = m.Term()
	}
}

func (t *workTracker) start(term int64, at time.Duration) *work {
	t.current = &work{
		group: group(t.about), node: t.about.Node, incarnation: t.about.Incarnation, term: term, header: t.header, start: at, certain: at, open: true,
	}
	return t.current
}

// step notes what a step shows; running is whether the child's process group exists after it. It returns the work that has begun, nil
// if none has, and what is wrong.
func (t *workTracker) step(s *recorder.Step, running bool) (began *work, faults []string) {
	if t.resumed != 0 {
		began, t.resumed = t.start(t.resumed, s.Now), 0
		began.end = t.deadline + t.about.Budget.Kill
	}
	before := t.current
	for _, a := range s.Actions {
		switch a := a.(type) {
		case transition.Lease:
			if a.Deadline != 0 {
				t.deadline = a.Deadline
			}
		case transition.RunPreStart:
			began, faults = t.begun(a.Term, s.Now, faults)
		case transition.StartChild:
			if t.current == nil {
				began, faults = t.begun(a.Term, s.Now, faults)
			}
		}
	}
	if before == nil {
		return began, append(faults, t.releases(s)...)
	}
	limit := t.deadline + t.about.Budget.Kill
	before.certain = max(before.certain, min(s.Now, t.deadline))
	before.end = limit
	if ends(s.Event) && !running && !continues(s) {
		before.end, before.open = min(s.Now, limit), false
		t.current = nil
	}
	return began, append(faults, t.releases(s)...)
}

// begun notes work that a step starts: only under a lease.
func (t *workTracker) begun(term int64, at time.Duration, faults []string) (*work, []string) {
	w := t.start(term, at)
	w.end = t.deadline + t.about.Budget.Kill
	if at >= t.deadline {
		faults = append(faults, fmt.Sprintf("%s started its work at boottime %s, but its lease ended at %s", w, at, t.deadline))
	}
	return w, faults
}

// releases finds a RELEASE that was sent while work ran.
func (t *workTracker) releases(s *recorder.Step) []string {
	for _, a := range s.Actions {
		if send, ok := a.(transition.Send); ok && send.Tx == transition.TxRelease && t.current != nil {
			return []string{fmt.Sprintf("%s sent RELEASE at %s while its work ran", t.current, stamp(t.header, s.Now))}
		}
	}
	return nil
}

// ends reports whether an event says that work has ended, if nothing runs after it.
func ends(ev transition.Event) bool {
	switch ev.(type) {
	case transition.ChildDead, transition.ChildFailed, transition.HookDone:
		return true
	}
	return false
}

// continues reports whether the step starts the next part of the work: pre_start is followed by the child.
func continues(s *recorder.Step) bool {
	return slices.ContainsFunc(s.Actions, func(a transition.Action) bool {
		_, ok := a.(transition.StartChild)
		return ok
	})
}

// overlaps checks S1: it finds works of one group, on one machine, of which each ran while the other did. It also returns those that
// may have, because a recording does not show the end.
func overlaps(all []*work) (certain, possible []string) {
	slices.SortStableFunc(all, func(a, b *work) int { return cmp.Compare(a.start, b.start) })
	for i, a := range all {
		for _, b := range all[i+1:] {
			if a.group != b.group || a.header.Boot != b.header.Boot || a.header.Boot == "" {
				continue
			}
			switch {
			case b.start < a.certain:
				certain = append(certain, fmt.Sprintf("%s: two works ran at once for %s:\n    %s\n    %s", a.group, min(a.certain, b.certain)-b.start, a, b))
			case b.start < a.end && a.incarnation != b.incarnation && a.open:
				possible = append(possible, fmt.Sprintf("%s: the recording of %s ends %s before the work of %s began; its work may have run until %s (a ledger shows whether it did)",
					a.group, a.node, b.start-a.certain, b.node, stamp(a.header, a.end)))
			}
		}
	}
	return certain, possible
}
